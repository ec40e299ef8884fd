"""Unmodified Kafka clients against a cluster of real processes: records, codecs, administration."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from raftctl.errors import ErrorCode
from tests.integration.clusters import wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import (
    CLIENTS,
    CODECS,
    TIMEOUT_S,
    KafkaClient,
    Record,
    assigned_consumer,
    end_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

NAMES = [client.name for client in CLIENTS]
each_client = pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[str]:
    """A fresh topic of three partitions on three replicas, two of which must be in sync."""
    name = f"topic-{next(_numbers)}"
    create(admin, name, 3, {"min.insync.replicas": "2"})
    yield name
    for done in admin.delete_topics([name]).values():
        done.result(TIMEOUT_S)


def create(admin: AdminClient, name: str, partitions: int, config: dict[str, str]) -> None:
    new = NewTopic(name, partitions, 3, config=config)
    for done in admin.create_topics([new], request_timeout=30).values():
        done.result(TIMEOUT_S)


def code_of(caught: pytest.ExceptionInfo[Any]) -> int:
    """The protocol's error code in an exception of confluent-kafka."""
    return int(caught.value.args[0].code())


SAMPLES = [
    Record(b"plain"),
    Record(b"with a key", key=b"k"),
    Record("ὕδωρ".encode(), key="κλειδί".encode(), timestamp_ms=1),
    Record(b"", key=b""),
    Record(None, key=b"deleted"),
    Record(b"with headers", headers=(("a", b"1"), ("b", b""), ("a", b"2")), timestamp_ms=2**41),
    Record(bytes(range(256)) * 40),
    *(Record(b"%d" % number, timestamp_ms=1_700_000_000_000 + number) for number in range(100)),
]

PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""What kafka-python needs for a codec; what others need is installed with the project."""


@pytest.mark.req("N1")
@pytest.mark.parametrize("codec", CODECS)
@each_client
def test_what_a_client_writes_every_client_reads(
    bootstrap: str, topic: str, client: KafkaClient, codec: str
) -> None:
    if not client.can(codec):
        pytest.skip(f"{client.name} needs {PACKAGES[codec]} for {codec}")
    offsets = client.write(bootstrap, topic, SAMPLES, codec=codec)
    assert offsets == list(range(len(SAMPLES)))
    readers = [reader for reader in CLIENTS if reader.can(codec)]
    for reader in readers:
        found = reader.read(bootstrap, topic, 3)
        assert found[0].records == SAMPLES, reader.name
        assert found[0].offsets == offsets
        assert [one.offsets for one in found[1:]] == [[], []]


@pytest.mark.req("N1")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
@each_client
def test_every_kind_of_acknowledgement(
    bootstrap: str, topic: str, client: KafkaClient, acks: str
) -> None:
    records = [Record(b"%d" % number, partition=number % 3) for number in range(300)]
    client.write(bootstrap, topic, records, acks=acks, idempotent=False)
    ends = [len(records) // 3] * 3
    # With acks=0 nobody says when the records have arrived.
    wait_until(lambda: end_offsets(bootstrap, topic, 3) == ends, f"ends of {ends}")
    found = client.read(bootstrap, topic, 3)
    for number, partition in enumerate(found):
        assert partition.records == records[number::3]


@pytest.mark.req("N1")
@each_client
def test_many_and_large_records_keep_their_order(
    bootstrap: str, topic: str, client: KafkaClient
) -> None:
    many = [Record(b"%06d" % number * 20, partition=number % 3) for number in range(6_000)]
    large = [Record(bytes([number]) * 900_000, partition=number) for number in range(3)]
    client.write(bootstrap, topic, many + large)
    for reader in CLIENTS:
        found = reader.read(bootstrap, topic, 3)
        for number, partition in enumerate(found):
            assert partition.records == [*many[number::3], large[number]], reader.name
            assert partition.offsets == list(range(2_001))


@pytest.mark.req("N1")
def test_a_record_too_large_is_refused_and_the_next_one_is_not(
    bootstrap: str, admin: AdminClient
) -> None:
    name = f"small-{next(_numbers)}"
    create(admin, name, 1, {"max.message.bytes": "1000"})
    client = CLIENTS[0]
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        client.write(bootstrap, name, [Record(b"x" * 2_000)])
    assert code_of(caught) == ErrorCode.MESSAGE_TOO_LARGE
    assert client.write(bootstrap, name, [Record(b"x" * 500)]) == [0]


@pytest.mark.req("N1")
def test_offsets_are_found_by_time(bootstrap: str, topic: str, admin: AdminClient) -> None:
    stamps = [1_000, 2_000, 3_000, 4_000]
    for stamp in stamps:
        CLIENTS[0].write(bootstrap, topic, [Record(b"x", timestamp_ms=stamp)])
    expected = {0: 0, 1_000: 0, 1_001: 1, 3_000: 2, 4_000: 3, 4_001: -1}
    for stamp, offset in expected.items():
        of = confluent_kafka.TopicPartition(topic, 0)
        told = admin.list_offsets({of: OffsetSpec.for_timestamp(stamp)})[of].result(TIMEOUT_S)
        assert told.offset == offset, stamp


@pytest.mark.req("N1")
@each_client
def test_a_client_that_may_creates_the_topic_it_names(
    bootstrap: str, admin: AdminClient, client: KafkaClient
) -> None:
    name = f"made-by-{client.name}"
    assert name not in admin.list_topics(timeout=10).topics
    assert client.write(bootstrap, name, [Record(b"first")]) == [0]
    assert client.read(bootstrap, name)[0].records == [Record(b"first")]


# --- administration -------------------------------------------------------------------------------


@pytest.mark.req("N1")
def test_confluent_admin_creates_describes_and_deletes(admin: AdminClient) -> None:
    name = f"topic-{next(_numbers)}"
    create(admin, name, 4, {"retention.ms": "12345", "min.insync.replicas": "2"})
    described = admin.list_topics(timeout=10).topics[name].partitions
    assert sorted(described) == [0, 1, 2, 3]
    for partition in described.values():
        assert partition.leader == partition.replicas[0]
        assert sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3]
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["retention.ms"].value == "12345"
    assert configs["min.insync.replicas"].value == "2"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].is_default
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics, "the topic to be gone")


@pytest.mark.req("N1")
def test_confluent_admin_is_told_what_is_wrong(admin: AdminClient, topic: str) -> None:
    wrong = {
        ErrorCode.TOPIC_ALREADY_EXISTS: NewTopic(topic, 1, 1),
        ErrorCode.INVALID_REPLICATION_FACTOR: NewTopic("replicas", 1, 4),
        ErrorCode.INVALID_PARTITIONS: NewTopic("partitions", 0, 1),
        ErrorCode.INVALID_TOPIC_EXCEPTION: NewTopic("not/a/name", 1, 1),
        ErrorCode.INVALID_CONFIG: NewTopic("config", 1, 1, config={"retention.ms": "soon"}),
    }
    for error, new in wrong.items():
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            admin.create_topics([new])[new.topic].result(TIMEOUT_S)
        assert code_of(caught) == error
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        admin.delete_topics(["nowhere"])["nowhere"].result(TIMEOUT_S)
    assert code_of(caught) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(admin.list_topics(timeout=10).topics) & {new.topic for new in wrong.values()} == {
        topic
    }


@pytest.mark.req("N1")
def test_confluent_admin_describes_the_cluster(
    admin: AdminClient, cluster: Any, bootstrap: str
) -> None:
    told = admin.describe_cluster().result(TIMEOUT_S)
    assert told.cluster_id == cluster.layout.cluster_id
    assert {f"{node.host}:{node.port}" for node in told.nodes} == set(bootstrap.split(","))
    assert told.controller.id in (1, 2, 3)


@pytest.mark.req("N1")
def test_kafka_python_admin(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = f"topic-{next(_numbers)}"
    try:
        admin.create_topics([KafkaPythonTopic(name, 2, 3)])
        wait_until(lambda: name in admin.list_topics(), "the topic to be there")
        wait_until(
            lambda: len(admin.describe_topics([name])[0]["partitions"]) == 2, "its partitions"
        )
        assert len(admin.describe_cluster()["brokers"]) == 3
        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics(), "the topic to be gone")
    finally:
        admin.close()


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Waits until a condition holds that takes a request to look at."""
    async with asyncio.timeout(30):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.02)


@pytest.mark.req("N1")
async def test_aiokafka_admin(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    name = f"topic-{next(_numbers)}"
    await admin.start()
    try:
        await admin.create_topics([AiokafkaTopic(name, 2, 3)])

        async def is_listed() -> bool:
            return name in await admin.list_topics()

        async def is_described() -> bool:
            return len((await admin.describe_topics([name]))[0]["partitions"]) == 2

        async def is_gone() -> bool:
            return not await is_listed()

        # The next broker that is asked may be an instant behind the one that answered.
        await eventually(is_listed)
        await eventually(is_described)
        assert len((await admin.describe_cluster())["brokers"]) == 3
        await admin.delete_topics([name])
        await eventually(is_gone)
    finally:
        await admin.close()


@pytest.mark.req("A1", "A2")
def test_raftctl_topics(bootstrap: str) -> None:
    name = f"topic-{next(_numbers)}"
    to = ("--bootstrap-server", bootstrap, "--output", "json")
    more = ("--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=777")
    assert raftctl("topics", "create", name, *more, *to).document == {"created": name}
    assert {"topic": name, "partitions": 2} in raftctl("topics", "list", *to).document
    described = raftctl("topics", "describe", name, *to).document
    assert [one["partition"] for one in described["partitions"]] == [0, 1]
    assert all(one["isr"] == [1, 2, 3] for one in described["partitions"])
    again = raftctl("topics", "create", name, *to)
    assert (again.status, again.stdout) == (1, "")
    assert again.stderr.startswith("raftctl: TOPIC_ALREADY_EXISTS: ")
    assert again.stderr.count("\n") == 1
    assert raftctl("topics", "delete", name, *to).document == {"deleted": name}
    gone = raftctl("topics", "describe", name, *to)
    assert (gone.status, gone.stdout) == (1, "")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.stderr


@pytest.mark.req("N1")
def test_a_long_fetch_answers_as_soon_as_a_record_comes(bootstrap: str, topic: str) -> None:
    consumer = assigned_consumer(
        bootstrap, **{"fetch.wait.max.ms": 10_000, "socket.timeout.ms": 30_000}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert consumer.poll(1.0) is None
        CLIENTS[0].write(bootstrap, topic, [Record(b"awaited")])
        written_s = time.monotonic()
        message = consumer.poll(8)
        assert message is not None
        assert message.value() == b"awaited"
        assert time.monotonic() - written_s < 4
    finally:
        consumer.close()
