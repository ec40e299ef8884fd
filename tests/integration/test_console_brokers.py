"""The console on a secured cluster: brokers that ask brokers, as whoever has logged in.

One cluster for all tests, in their order: what each may do, then what each action does, as clients
of the protocol see it. Its controller shows the console to everybody, its brokers to who logs in.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from yarl import URL

from broker.protocol.versions import SERVED, ApiKey
from raftctl.ids import parse_uuid
from tests.integration.clusters import running_cluster, wait_healthy, wait_until
from tests.kit.topics import create_topic
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode

pytestmark = [pytest.mark.req("W1", "W2"), pytest.mark.timeout(300)]
TIMEOUT_S = 30
LOADING, LOADING_S = 503, 30
"""A coordinator that has just begun reads its log first; clients ask again."""
WORDS = {"broker": "between-us", "admin": "all-of-it", "alice": "wonderland", "nobody": "x"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = " ".join(f'user_{name}="{word}"' for name, word in WORDS.items())
LOGIN = f'{MODULE} required username="broker" password="{WORDS["broker"]}" {USERS};'
SECURED = {
    "listener.security.protocol.map": (
        "PLAINTEXT:SASL_PLAINTEXT,HTTP:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
    "listener.name.http.plain.sasl.jaas.config": LOGIN,
    "authorizer.class.name": "standard",
    "super.users": "User:broker;User:admin",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.partition.verification.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC, GROUP = "orders", "readers"
RULES = [
    ("TOPIC", TOPIC, "ALL"),
    ("TOPIC", "gone", "ALL"),
    ("TOPIC", "new", "CREATE"),
    ("GROUP", GROUP, "ALL"),
    ("GROUP", "no-group", "ALL"),
    ("TRANSACTIONAL_ID", "no-id", "ALL"),
]
OF_CLUSTER = ("ALTER", "ALTER_CONFIGS", "DESCRIBE")
_OF_OLDER_CLIENTS = 9
"""A version of Produce that does not add its partitions to the transaction."""
DENIED = (29, 30, 31, 53)


class Answer(NamedTuple):
    """What the console answers."""

    status: int
    document: Any


async def asked(url: str, headers: dict[str, str], data: bytes | None) -> Answer:
    """The answer to a GET, or to a POST of data."""
    timeout = aiohttp.ClientTimeout(TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        method = "GET" if data is None else "POST"
        where = URL(url, encoded=True)
        async with session.request(method, where, headers=headers, data=data) as answer:
            return Answer(answer.status, await answer.json())


class Place:
    """A cluster, and a way in for each user."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient(self.settings("admin"))

    def settings(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.layout.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": WORDS[user],
            "log_level": 0,
        }

    def ask(
        self, user: str | None, path: str, body: Any = None, node: LocalNode | None = None
    ) -> Answer:
        """Ask the console of a node; by default that of the first broker."""
        address = (node or self.cluster.layout.brokers[0]).http_address
        headers = {}
        if user is not None:
            login = base64.b64encode(f"{user}:{WORDS[user]}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        data = None
        if body is not None:
            headers |= {"Content-Type": "application/json", "X-Raftctl-Console": "1"}
            data = json.dumps(body).encode()
        url = f"http://{address}/console/api/{path}"
        return asyncio.run(asked(url, headers, data))

    def act(self, action: str, **body: Any) -> str:
        """The sentence of an action of the administrator's that is done."""
        answer = self.ask("admin", f"actions/{action}", body)
        assert answer.status == 200, answer
        done: str = answer.document["done"]
        return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A controller and three brokers, a topic with records, and a group that has read some."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), 1, 3, SECURED) as cluster:
        found = Place(cluster)
        create_topic(found.admin, TOPIC, 3, 2, {}, TIMEOUT_S)
        produce(found, [b"value"] * 30)
        consume(found, GROUP, 30)
        wait_healthy(cluster)
        yield found


def produce(place: Place, values: list[bytes], **settings: Any) -> None:
    """Produce values, to the partitions in turn."""
    producer = Producer({**place.settings("admin"), **settings})
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, b"key", number % 3)
    assert producer.flush(TIMEOUT_S) == 0


def consume(place: Place, group: str, count: int) -> None:
    """Read so many records as a group, commit, and leave."""
    consumer = consumer_of(place, group)
    for _ in range(count):
        assert consumer.poll(TIMEOUT_S) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def consumer_of(place: Place, group: str) -> Consumer:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**place.settings("admin"), **settings})
    consumer.subscribe([TOPIC])
    return consumer


# --- what each may do -----------------------------------------------------------------------------


class Case(NamedTuple):
    """The same wish, to the console and by the user's own connection."""

    path: str
    """Of a view, or the name of an action."""
    body: dict[str, Any] | None
    api: str
    message: Callable[[UUID], dict[str, Any]]
    """From the id of the topic."""
    coordinated: tuple[int, str] | None = None
    """Kind and name, if only a coordinator answers."""
    led: bool = False
    """Whether only the leader of partition 0 answers."""


PLACE_0 = {"topic": TOPIC, "partition": 0}
RULE = {
    "principal": "User:eve",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
    "resource_type": "TOPIC",
    "resource_name": "nothing",
    "pattern_type": "LITERAL",
}
EVE = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": "User:eve",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}
OFFSET = {
    "partition_index": 0,
    "committed_offset": 5,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}


def configs(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
    change = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
    return {"resources": [resource], "validate_only": True}


def fetch(topic_id: UUID) -> dict[str, Any]:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "topics": [{"topic_id": topic_id, "partitions": [wanted]}],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


CASES = [
    Case(
        "create-topic",
        {"name": "new", "partitions": 1, "replication_factor": 1, "validate_only": True},
        "CREATE_TOPICS",
        lambda _: {
            "topics": [
                {
                    "name": "new",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": (),
                    "configs": (),
                }
            ],
            "timeout_ms": 5_000,
            "validate_only": True,
        },
    ),
    Case(
        "delete-topic",
        {"name": "gone"},
        "DELETE_TOPICS",
        lambda _: {"topics": [{"name": "gone", "topic_id": None}], "timeout_ms": 5_000},
    ),
    Case(
        "create-partitions",
        {"topic": TOPIC, "count": 9, "validate_only": True},
        "CREATE_PARTITIONS",
        lambda _: {
            "topics": [{"name": TOPIC, "count": 9, "assignments": None}],
            "timeout_ms": 5_000,
            "validate_only": True,
        },
    ),
    Case(
        "alter-configs",
        {"type": "topic", "name": TOPIC, "set": {"retention.ms": "9"}, "validate_only": True},
        "INCREMENTAL_ALTER_CONFIGS",
        lambda _: configs(2, TOPIC, "retention.ms", "9"),
    ),
    Case(
        "alter-configs",
        {"type": "broker", "set": {"max.connections": "999"}, "validate_only": True},
        "INCREMENTAL_ALTER_CONFIGS",
        lambda _: configs(4, "", "max.connections", "999"),
    ),
    Case(
        "elect-leaders",
        {"partitions": [PLACE_0]},
        "ELECT_LEADERS",
        lambda _: {
            "election_type": 0,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout_ms": 5_000,
        },
    ),
    Case(
        "reassign",
        {"partitions": [{**PLACE_0, "replicas": [99]}]},
        "ALTER_PARTITION_REASSIGNMENTS",
        lambda _: {
            "timeout_ms": 5_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [99]}]}],
        },
    ),
    Case(
        "delete-records",
        {**PLACE_0, "before": 0},
        "DELETE_RECORDS",
        lambda _: {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 5_000,
        },
        led=True,
    ),
    Case(
        "reset-offsets",
        {"group": GROUP, "topic": TOPIC, "to": "5", "partitions": [0]},
        "OFFSET_COMMIT",
        lambda topic_id: {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"topic_id": topic_id, "partitions": [OFFSET]}],
        },
        (0, GROUP),
    ),
    Case(
        "delete-group",
        {"group": "no-group"},
        "DELETE_GROUPS",
        lambda _: {"groups_names": ["no-group"]},
        (0, "no-group"),
    ),
    Case(
        "remove-member",
        {"group": GROUP, "member": "m"},
        "LEAVE_GROUP",
        lambda _: {
            "group_id": GROUP,
            "members": [{"member_id": "m", "group_instance_id": None, "reason": None}],
        },
        (0, GROUP),
    ),
    Case("delete-acl", RULE, "DELETE_ACLS", lambda _: {"filters": [EVE]}),
    Case(
        "alter-quota",
        {"user": "eve", "key": "producer_byte_rate", "value": 9, "validate_only": True},
        "ALTER_CLIENT_QUOTAS",
        lambda _: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "eve"}],
                    "ops": [{"key": "producer_byte_rate", "value": 9.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    Case("unregister-broker", {"broker": 77}, "UNREGISTER_BROKER", lambda _: {"broker_id": 77}),
    Case(f"messages?topic={TOPIC}&partition=0&from=0", None, "FETCH", fetch, led=True),
    Case(
        f"groups/{GROUP}",
        None,
        "DESCRIBE_GROUPS",
        lambda _: {"groups": [GROUP], "include_authorized_operations": False},
        (0, GROUP),
    ),
    Case(
        "transactions/no-id",
        None,
        "DESCRIBE_TRANSACTIONS",
        lambda _: {"transactional_ids": ["no-id"]},
        (1, "no-id"),
    ),
]


def allow(place: Place, kind: str, name: str, operation: str) -> None:
    """Allow alice an operation."""
    rule = {"principal": "User:alice", "operation": operation, "permission": "ALLOW"}
    place.act("create-acl", **rule, resource_type=kind, resource_name=name)


async def own_connection(place: Place, user: str, topic_id: UUID, case: Case) -> bool:
    """Whether the user is let do it by its own connection, as any client makes one."""
    brokers = {node.node_id: node for node in place.cluster.layout.brokers}
    asked_id = min(brokers)
    if case.led:
        cluster_topics = await asyncio.to_thread(place.admin.list_topics, TOPIC, TIMEOUT_S)
        asked_id = cluster_topics.topics[TOPIC].partitions[0].leader
    elif case.coordinated is not None:
        kind, name = case.coordinated
        body = {"key_type": kind, "coordinator_keys": [name]}
        answer = await own_request(brokers[asked_id], user, ApiKey.FIND_COORDINATOR, body)
        [found] = answer["coordinators"]
        if found["error_code"] in DENIED:
            return False
        asked_id = found["node_id"]
    answer = await own_request(brokers[asked_id], user, ApiKey[case.api], case.message(topic_id))
    return not any(code in DENIED for code in codes(answer))


def codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key == "error_code":
                yield value
            else:
                yield from codes(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from codes(one)


async def own_request(
    node: LocalNode, user: str, api: ApiKey, body: dict[str, Any], version: int | None = None
) -> dict[str, Any]:
    """The answer to a request on a connection of the user's; by default of the newest version."""
    reader, writer = await asyncio.open_connection(node.host, node.port)
    try:
        client = Client(reader, writer)
        await client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{WORDS[user]}".encode()
        login = await client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert login["error_code"] == 0
        newest = SERVED[api].stop - 1
        return await client.ask(api, newest if version is None else version, body)
    finally:
        writer.close()


def console(place: Place, user: str, case: Case, node: LocalNode) -> bool:
    """Whether the user is let do it by the console of a node."""
    path = case.path if case.body is None else f"actions/{case.path}"
    began = time.monotonic()
    while (answer := place.ask(user, path, case.body, node)).status == LOADING:
        assert time.monotonic() - began < LOADING_S, (case.path, answer)
        time.sleep(0.2)
    assert answer.status in (200, 400, 403, 404, 409), (case.path, answer)
    return answer.status != 403


@pytest.mark.req("S4")
def test_a_user_may_do_by_the_console_what_it_may_do_itself(place: Place) -> None:
    topic = place.ask("admin", f"topics?filter={TOPIC}").document["rows"][0]
    topic_id = parse_uuid(topic["id"])
    for kind, name, operation in RULES:
        allow(place, kind, name, operation)
    seen: Counter[tuple[str, bool]] = Counter()

    def compare(users: list[str]) -> None:
        for user in users:
            for case in CASES:
                own = asyncio.run(own_connection(place, user, topic_id, case))
                for node in place.cluster.layout.brokers[:2]:
                    assert console(place, user, case, node) is own, (user, case.path, own)
                seen[user, own] += 1

    compare(["admin", "nobody", "alice"])
    assert seen["admin", True] == len(CASES)
    assert seen["nobody", False] == len(CASES)
    assert 0 < seen["alice", False] < len(CASES)
    for operation in OF_CLUSTER:
        allow(place, "CLUSTER", "kafka-cluster", operation)
    seen.clear()
    compare(["alice"])
    assert seen["alice", True] == len(CASES)


# --- what is done, as others see it ---------------------------------------------------------------


def topic_of(place: Place, name: str) -> Any:
    """A topic as a client sees it; None if it is not there."""
    return place.admin.list_topics(timeout=TIMEOUT_S).topics.get(name)


def config_of(place: Place, name: str, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, name)
    found = place.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    value: str = found[key].value
    return value


def committed(place: Place, group: str) -> dict[int, int]:
    asked_for = [ConsumerGroupTopicPartitions(group)]
    found = place.admin.list_consumer_group_offsets(asked_for)[group].result(TIMEOUT_S)
    return {one.partition: one.offset for one in found.topic_partitions}


def test_topics_and_configs(place: Place) -> None:
    name = "t" * 249
    place.act("create-topic", name=name, partitions=2, replication_factor=2, configs={})
    wait_until(lambda: topic_of(place, name) is not None, "the topic is there")
    place.act("create-partitions", topic=name, count=3)
    wait_until(lambda: len(topic_of(place, name).partitions) == 3, "it has three partitions")
    place.act("alter-configs", type="topic", name=name, set={"retention.ms": "12345"})
    wait_until(lambda: config_of(place, name, "retention.ms") == "12345", "it has the config")
    place.act("alter-configs", type="topic", name=name, remove=["retention.ms"])
    wait_until(lambda: config_of(place, name, "retention.ms") != "12345", "it has it no more")
    before = topic_of(place, name).partitions[0]
    replicas = [*reversed(before.replicas)]
    place.act("reassign", partitions=[{"topic": name, "partition": 0, "replicas": replicas}])
    wait_until(
        lambda: topic_of(place, name).partitions[0].replicas == replicas, "it has other replicas"
    )
    place.act("elect-leaders", election="preferred", partitions=None)
    wait_until(
        lambda: topic_of(place, name).partitions[0].leader == replicas[0], "the preferred leads"
    )
    place.act("delete-topic", name=name)
    wait_until(lambda: topic_of(place, name) is None, "the topic is gone")


def test_records_are_read_and_deleted(place: Place) -> None:
    produce(place, [b"\xff\x00", b"x" * 900_000, "\u202e<script>".encode()] * 3)
    produce(place, [bytes(700_000)] * 30, **{"compression.type": "zstd"})
    ends = consumer_of(place, "not-used")
    low, high = ends.get_watermark_offsets(TopicPartition(TOPIC, 1), TIMEOUT_S)
    seen = []
    offset = low
    while offset < high:
        path = f"messages?topic={TOPIC}&partition=1&limit=7&from={offset}"
        page = place.ask("admin", path).document
        seen += [row["offset"] for row in page["rows"]]
        assert page["next_offset"] > offset
        assert len(json.dumps(page)) < 3 << 20
        offset = page["next_offset"]
    assert seen == list(range(low, high))
    large = place.ask("admin", f"messages?topic={TOPIC}&partition=1&from=latest&limit=12").document
    assert {row["value"]["size"] for row in large["rows"]} >= {700_000}
    assert all(row["value"]["cut"] for row in large["rows"] if row["value"]["size"] > 65_536)
    place.act("delete-records", topic=TOPIC, partition=1, before=4)
    assert ends.get_watermark_offsets(TopicPartition(TOPIC, 1), TIMEOUT_S)[0] == 4
    ends.close()


def test_groups(place: Place) -> None:
    hostile = "<script>\u202e" + "g" * 200
    consume(place, hostile, 3)
    for node in place.cluster.layout.brokers:
        found = place.ask("admin", f"groups?filter={quote('<script>')}", node=node).document
        [row] = found["rows"]
        assert (row["group"], row["state"], row["members"]) == (hostile, "Empty", 0)
        assert row["lag"] > 0
    place.act("reset-offsets", group=hostile, topic=TOPIC, to="earliest")
    assert committed(place, hostile) == {0: 0, 1: 4, 2: 0}
    place.act("reset-offsets", group=hostile, topic=TOPIC, to="6", partitions=[2])
    assert committed(place, hostile)[2] == 6
    consumer = consumer_of(place, hostile)
    assert consumer.poll(TIMEOUT_S) is not None
    path = f"groups/{quote(hostile)}"
    [member] = place.ask("admin", path).document["members"]
    assert member["assignment"][0]["topic"] == TOPIC
    refused = place.ask("admin", "actions/delete-group", {"group": hostile})
    assert (refused.status, refused.document["error"]) == (409, "NON_EMPTY_GROUP")
    place.act("remove-member", group=hostile, member=member["id"])
    wait_until(
        lambda: (
            [one["id"] for one in place.ask("admin", path).document["members"]] != [member["id"]]
        ),
        "the member is gone",
    )
    consumer.close()
    wait_until(lambda: not place.ask("admin", path).document["members"], "all have left")
    place.act("delete-group", group=hostile)
    groups = place.admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert hostile not in {one.group_id for one in groups}


def test_rules_and_quotas(place: Place) -> None:
    def rules() -> int:
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            "nothing",
            ResourcePatternType.LITERAL,
            "User:eve",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return len(place.admin.describe_acls(wanted).result(TIMEOUT_S))

    place.act("create-acl", **RULE)
    wait_until(lambda: rules() == 1, "there is a rule")
    place.act("delete-acl", **RULE)
    wait_until(lambda: rules() == 0, "there is none")

    def quotas() -> Any:
        user = {"entity_type": "user", "match_type": 0, "match": "eve"}
        body = {"components": [user], "strict": False}
        node = place.cluster.layout.brokers[1]
        answer = asyncio.run(own_request(node, "admin", ApiKey.DESCRIBE_CLIENT_QUOTAS, body))
        return [one["values"] for one in answer["entries"]]

    place.act("alter-quota", user="eve", key="producer_byte_rate", value=1024)
    wanted = [[{"key": "producer_byte_rate", "value": 1024.0}]]
    wait_until(lambda: quotas() == wanted, "eve has a quota")
    place.act("alter-quota", user="eve", key="producer_byte_rate", value=None)
    wait_until(lambda: quotas() == [], "eve has none")


def test_a_transaction_that_hangs_is_shown_and_aborted(place: Place) -> None:
    leader = topic_of(place, TOPIC).partitions[2].leader
    node = next(one for one in place.cluster.layout.brokers if one.node_id == leader)
    # As a delayed batch of an older client leaves it.
    batch = make_batch([b"open"], producer_id=77, producer_epoch=3, sequence=0, attributes=0x10)
    body = {
        "transactional_id": "lost",
        "acks": -1,
        "timeout_ms": 5_000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 2, "records": batch}]}],
    }
    answer = asyncio.run(own_request(node, "admin", ApiKey.PRODUCE, body, _OF_OLDER_CLIENTS))
    assert [*codes(answer)] == [0]
    first = place.ask("admin", "transactions").document["rows"][0]
    assert (first["hanging"], first["topic"], first["partition"]) == (True, TOPIC, 2)
    # She sees no transactional ids but one: another's would seem to hang.
    refused = place.ask("alice", "actions/abort-transaction", {"topic": TOPIC, "partition": 2})
    assert refused.status == 409
    place.act("abort-transaction", topic=TOPIC, partition=2)

    def stable() -> bool:
        path = f"messages?topic={TOPIC}&partition=2&from=latest"
        page = place.ask("admin", path).document
        return bool(page["last_stable_offset"] == page["high_watermark"])

    wait_until(stable, "readers of committed records go on")


def test_a_controller_that_is_no_broker_asks_them_too(place: Place) -> None:
    [controller] = place.cluster.layout.controllers
    sees_nothing = place.ask(None, "groups", node=controller)
    assert (sees_nothing.status, sees_nothing.document["rows"]) == (200, [])
    refused = place.ask(None, "actions/delete-topic", {"name": TOPIC}, controller)
    assert (refused.status, refused.document["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    rule = {"principal": "User:ANONYMOUS", "operation": "DESCRIBE", "permission": "ALLOW"}
    place.act("create-acl", **rule, resource_type="GROUP", resource_name=GROUP)
    wait_until(
        lambda: place.ask(None, "groups", node=controller).document["rows"], "it sees the group"
    )
    log = place.cluster.log_path(controller).read_text()
    assert "console_action" in log
    assert not any(word in log for word in WORDS.values() if len(word) > 1)


def test_a_broker_that_is_gone_is_unregistered(place: Place) -> None:
    gone = place.cluster.layout.brokers[2]
    place.cluster.kill(gone)
    began = time.monotonic()
    answer = place.ask("admin", "groups").document
    assert time.monotonic() - began < 12
    assert answer["total"] >= 1 or answer["unanswered"]
    place.act("unregister-broker", broker=gone.node_id)
    wait_until(
        lambda: gone.node_id not in place.admin.list_topics(timeout=TIMEOUT_S).brokers,
        "the broker is forgotten",
    )
