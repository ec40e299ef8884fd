"""A cluster whose clients and brokers log in by SASL; sessions expire in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT, Observer, SimCluster
from raftctl.errors import ErrorCode
from raftctl.security.sasl import make_client
from tests.simulation.cluster_scenarios import all_brokers_active, until
from tests.unit.broker.server.fakes import Client
from tests.unit.broker.server.sasl import authenticate, handshake, log_in, scram_record
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

TOPIC = "events"
RECORDS = 200
SESSION_S = 4.0
BETWEEN, FOR_CLIENTS = "SCRAM-SHA-512", "SCRAM-SHA-256"
PASSWORDS = {"broker": "of-brokers", "alice": "of-alice"}  # of nobody else
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEYS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": f"{BETWEEN},{FOR_CLIENTS}",
    "sasl.mechanism.inter.broker.protocol": BETWEEN,
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
        f"{_MODULE} required username=broker password={PASSWORDS['broker']};"
    ),
    "connections.max.reauth.ms": str(int(SESSION_S * 1000)),
}
RECORDS_OF_USERS = (
    scram_record(BETWEEN, "broker", PASSWORDS["broker"]),
    scram_record(FOR_CLIENTS, "alice", PASSWORDS["alice"]),
)


def login(password: str = PASSWORDS["alice"]) -> dict[str, Any]:
    """The arguments by which aiokafka logs in as alice."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": FOR_CLIENTS,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


async def clients_and_brokers_log_in(world: World) -> None:
    """What was acknowledged is read back, though every session expires several times.

    aiokafka does not renew a session, so its connections end and it opens others. Brokers renew
    theirs. A leader is killed meanwhile, so others must log in to the next one.
    """
    cluster = SimCluster(world, broker_overrides=KEYS, first_records=RECORDS_OF_USERS)
    cluster.start_all()
    acknowledged: dict[int, bytes] = {}

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        await observer.wait_for(all_brokers_active(cluster))
        writer = world.start("writer", partial(write, cluster, acknowledged))
        await until(lambda: len(acknowledged) > RECORDS // 4)
        status = await observer.wait_for(lambda status: status["partitions"] == 1)
        leader = next(b["broker_id"] for b in status["brokers"] if b["leaders"])
        world.kill(f"broker-{leader}")
        await until(lambda: len(acknowledged) > RECORDS // 2)
        cluster.start(f"broker-{leader}")
        await writer.done
        await observer.wait_for(lambda status: status["under_replicated_partitions"] == 0)
        await world.start("reader", partial(read_back, cluster, acknowledged)).done
        await world.start("guesser", partial(guess, cluster)).done
        await world.start("sleeper", partial(outlive_the_session, cluster)).done

    await world.start("operator", operator).done


async def write(cluster: SimCluster, acknowledged: dict[int, bytes], runtime: SimRuntime) -> None:
    """Create the topic, and write to it for several sessions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap, **login())
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 1, 3, topic_configs={"min.insync.replicas": "2"})])
    await admin.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True, **login()
    )
    await producer.start()
    for number in range(RECORDS):
        value = b"record %d" % number
        acknowledged[(await producer.send_and_wait(TOPIC, value)).offset] = value
        await asyncio.sleep(4 * SESSION_S / RECORDS)
    await producer.stop()


async def read_back(
    cluster: SimCluster, acknowledged: dict[int, bytes], runtime: SimRuntime
) -> None:
    """Read everything and compare it with what was acknowledged."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap, enable_auto_commit=False, **login()
    )
    await consumer.start()
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    found = [await asyncio.wait_for(consumer.getone(), 30) for _ in range(RECORDS)]
    await consumer.stop()
    assert {record.offset: record.value for record in found} == acknowledged


async def guess(cluster: SimCluster, runtime: SimRuntime) -> None:
    """Fail with a wrong password, no sooner than after the delay."""
    begun = asyncio.get_running_loop().time()
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap[:1], **login("wrong"))
    try:
        await producer.start()
    except KafkaError:
        assert asyncio.get_running_loop().time() - begun >= 0.1
    else:
        raise AssertionError("a wrong password logs in")
    finally:
        await producer.stop()


async def outlive_the_session(cluster: SimCluster, runtime: SimRuntime) -> None:
    """Renew a session twice, then let it expire: the next request ends the connection."""
    host = cluster.broker_names[0]
    client = Client(*await asyncio.open_connection(host, BROKER_PORT))
    options = jaas(username="alice", password=PASSWORDS["alice"])
    for _ in range(3):
        answer = await log_in(client, FOR_CLIENTS, make_client(FOR_CLIENTS, options, "nonce"))
        assert answer["session_lifetime_ms"] == SESSION_S * 1000, answer
        await asyncio.sleep(SESSION_S * 0.8)
        assert (await client.ask(ApiKey.METADATA, 1, {"topics": []}))["brokers"]
    await asyncio.sleep(SESSION_S * 0.3)
    client.send(ApiKey.METADATA, 1, {"topics": []})
    assert await client.ended()
    client.writer.close()
    refused = Client(*await asyncio.open_connection(host, BROKER_PORT))
    assert (await handshake(refused, "PLAIN"))["error_code"] == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM
    )
    refused.writer.close()
    early = Client(*await asyncio.open_connection(host, BROKER_PORT))
    await handshake(early, FOR_CLIENTS)
    answer = await authenticate(early, b"n,,n=nobody,r=nonce")
    assert answer["error_code"] == ErrorCode.NONE, "that nobody has the name is not revealed"
    early.writer.close()
