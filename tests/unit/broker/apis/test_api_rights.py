"""Which right each api asks for, in each version, and where its answer says that it is missing.

The rows are those of Apache Kafka's table of operations and resources, for records, groups and
transactions. Each is asked for a topic `t` that is denied and a topic `u` that is not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest

from broker.apis import consumer, data, transactional
from broker.protocol.versions import SERVED, ApiKey
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import CLUSTER_NAME, DENIED, Operation, ResourceType
from raftctl.security import Action
from tests.kit.authorizing import ListedActions
from tests.unit.broker.apis.asking import TOPIC_ID, ask, new_broker
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.server.fakes import publish, topic_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("S4")
U_ID = UUID(int=6)
TOPIC_IDS = {TOPIC_ID: "t", U_ID: "u"}
_IDENTITY = [
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "index",
    "producer_id",
    "log_dir",
]
_TRANSACTIONAL = 16
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def on_topic(operation: Operation, name: str = "t") -> Action:
    return Action(operation, ResourceType.TOPIC, name)


def on_group(operation: Operation) -> Action:
    return Action(operation, ResourceType.GROUP, "g")


def on_cluster(operation: Operation) -> Action:
    return Action(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def on_id(operation: Operation) -> Action:
    return Action(operation, ResourceType.TRANSACTIONAL_ID, "x")


class Row(NamedTuple):
    """A right, and what happens without it."""

    key: ApiKey
    message: dict[str, Any]
    denied: tuple[Action, ...]
    at: str
    """A pattern of the paths in the answer at which the error stands, and no other."""
    versions: range | None = None
    """None: all that are served."""
    error: ErrorCode | None = None
    """None: that of the denied resource."""

    @property
    def is_about_a_topic(self) -> bool:
        """True if the topic `t` is denied."""
        return any(one.resource_name == "t" for one in self.denied)

    def __str__(self) -> str:
        denied = self.denied[-1]
        what = f"{denied.operation.name}-{denied.resource_type.name}"
        return f"{self.key.name}-{what}-{self.versions or 'all'}"


def topics(inner: str, *partitions: Any, name: str = "name") -> list[dict[str, Any]]:
    ids = (("t", TOPIC_ID), ("u", U_ID))
    return [{name: one, "topic_id": topic_id, inner: [*partitions]} for one, topic_id in ids]


def produce(attributes: int = 0, **fields: Any) -> dict[str, Any]:
    records = make_batch([b"v"], producer_id=9, producer_epoch=0, sequence=0, attributes=attributes)
    data = topics("partition_data", *({"index": n, "records": records} for n in (0, 1)))
    return {"acks": -1, "timeout_ms": 1_000, "topic_data": data, **fields}


def fetch(replica_id: int = -1) -> dict[str, Any]:
    asked = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 100} for n in (0, 1)]
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": topics("partitions", *asked, name="topic"),
        "forgotten_topics_data": [],
    }


OFFSETS = topics("partitions", *({"partition_index": n, "timestamp": -1} for n in (0, 1)))
EPOCHS = topics(
    "partitions",
    *({"partition": n, "current_leader_epoch": -1, "leader_epoch": 0} for n in (0, 1)),
    name="topic",
)
DELETED = topics("partitions", *({"partition_index": n, "offset": 0} for n in (0, 1)))
INDEXES = topics("partition_indexes", 0, 1)
COMMITTED = topics(
    "partitions",
    *({"partition_index": n, "committed_offset": 5, "committed_metadata": ""} for n in (0, 1)),
)
MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m"}
JOIN = {
    "group_id": "g",
    "session_timeout_ms": 1,
    "rebalance_timeout_ms": 1,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"x"}],
}
SYNC = {**MEMBER, "assignments": [], "protocol_type": "consumer", "protocol_name": "range"}
LEAVE = {**MEMBER, "members": [{"member_id": "m", "group_instance_id": None}]}
COMMIT = {
    "group_id": "g",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "retention_time_ms": -1,
    "topics": COMMITTED,
}
FETCHED = {"group_id": "g", "topics": INDEXES, "member_id": None, "member_epoch": -1}
FETCH_OFFSETS = {
    **FETCHED,
    "groups": [FETCHED, {**FETCHED, "group_id": "h"}],
    "require_stable": False,
}
HEARTBEAT = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ["t", "u"],
    "topic_partitions": [],
}
PRODUCER = {"transactional_id": "x", "producer_id": 9, "producer_epoch": 0}
OLD_PRODUCER = {f"v3_and_below_{key}": value for key, value in PRODUCER.items()}
ADDED = topics("partitions", 0, 1)
ADD = {
    **OLD_PRODUCER,
    "v3_and_below_topics": ADDED,
    "transactions": [{**PRODUCER, "verify_only": False, "topics": ADDED}],
}
INIT = {"transactional_id": "x", "transaction_timeout_ms": 1_000}
TXN_COMMIT = {**PRODUCER, "group_id": "g", "topics": COMMITTED}
MARKERS = {
    "markers": [
        {
            "producer_id": 9,
            "producer_epoch": 0,
            "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": INDEXES,
        }
    ]
}
WRITE, READ, DESCRIBE = Operation.WRITE, Operation.READ, Operation.DESCRIBE
ALTER, ACT = Operation.ALTER, Operation.CLUSTER_ACTION
READS_GROUP = (on_group(READ),)
USES_ID = (on_id(WRITE),)

ROWS = [
    # --- records
    Row(
        ApiKey.PRODUCE,
        produce(_TRANSACTIONAL, transactional_id="x"),
        USES_ID,
        "responses/*/error_code",
    ),
    Row(ApiKey.PRODUCE, produce(), (on_topic(WRITE),), "responses/t/*/error_code"),
    Row(ApiKey.FETCH, fetch(2), (on_cluster(ACT),), "responses/*/error_code", error=REFUSED),
    Row(ApiKey.FETCH, fetch(), (on_topic(READ),), "responses/t/*/error_code"),
    Row(
        ApiKey.LIST_OFFSETS,
        {"replica_id": -1, "isolation_level": 0, "topics": OFFSETS},
        (on_topic(DESCRIBE),),
        "topics/t/*/error_code",
    ),
    Row(
        ApiKey.DELETE_RECORDS,
        {"topics": DELETED, "timeout_ms": 1},
        (on_topic(Operation.DELETE),),
        "topics/t/*/error_code",
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {"replica_id": -1, "topics": EPOCHS},
        (on_cluster(ACT), on_topic(DESCRIBE)),
        "topics/t/*/error_code",
    ),
    Row(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": ADDED}]},
        (on_cluster(ALTER),),
        "results/*/error_code",
    ),
    Row(
        ApiKey.DESCRIBE_LOG_DIRS,
        {"topics": None},
        (on_cluster(DESCRIBE),),
        "error_code",
        range(3, 5),
    ),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        {"topics": INDEXES},
        (on_topic(READ),),
        "topics/t/*/error_code",
    ),
    # --- groups
    Row(ApiKey.JOIN_GROUP, JOIN, READS_GROUP, "error_code"),
    Row(ApiKey.SYNC_GROUP, SYNC, READS_GROUP, "error_code"),
    Row(ApiKey.HEARTBEAT, MEMBER, READS_GROUP, "error_code"),
    Row(ApiKey.LEAVE_GROUP, LEAVE, READS_GROUP, "error_code"),
    Row(ApiKey.OFFSET_COMMIT, COMMIT, READS_GROUP, "topics/*/error_code"),
    Row(ApiKey.OFFSET_COMMIT, COMMIT, (on_topic(READ),), "topics/t/*/error_code"),
    Row(
        ApiKey.OFFSET_FETCH,
        FETCH_OFFSETS,
        (on_group(DESCRIBE),),
        "topics/*/error_code",
        range(1, 2),
    ),
    Row(ApiKey.OFFSET_FETCH, FETCH_OFFSETS, (on_group(DESCRIBE),), "error_code", range(2, 8)),
    Row(
        ApiKey.OFFSET_FETCH,
        FETCH_OFFSETS,
        (on_group(DESCRIBE),),
        "groups/g/error_code",
        range(8, 11),
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        FETCH_OFFSETS,
        (on_topic(DESCRIBE),),
        "topics/t/*/error_code",
        range(1, 8),
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        FETCH_OFFSETS,
        (on_topic(DESCRIBE),),
        "groups/*/topics/t/*/error_code",
        range(8, 11),
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        {"group_id": "g", "topics": DELETED},
        (on_group(Operation.DELETE),),
        "error_code",
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        {"group_id": "g", "topics": DELETED},
        (on_topic(READ),),
        "topics/t/*/error_code",
    ),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        {"groups": ["g", "h"], "include_authorized_operations": False},
        (on_group(DESCRIBE),),
        "groups/g/error_code",
    ),
    Row(
        ApiKey.DELETE_GROUPS,
        {"groups_names": ["g", "h"]},
        (on_group(Operation.DELETE),),
        "results/g/error_code",
    ),
    Row(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, READS_GROUP, "error_code"),
    Row(ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, (on_topic(DESCRIBE),), "error_code"),
    Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": ["g", "h"], "include_authorized_operations": False},
        (on_group(DESCRIBE),),
        "groups/g/error_code",
    ),
    # --- transactions
    Row(ApiKey.INIT_PRODUCER_ID, INIT, USES_ID, "error_code"),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        {**INIT, "transactional_id": None},
        (on_topic(WRITE, "some"), on_cluster(Operation.IDEMPOTENT_WRITE)),
        "error_code",
    ),
    Row(ApiKey.ADD_PARTITIONS_TO_TXN, ADD, USES_ID, "results_*/*_error_code", range(4)),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ADD,
        (on_topic(WRITE),),
        "results_*/t/*_error_code",
        range(4),
    ),
    Row(ApiKey.ADD_PARTITIONS_TO_TXN, ADD, (on_cluster(ACT),), "error_code", range(4, 6)),
    Row(ApiKey.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"}, USES_ID, "error_code"),
    Row(ApiKey.ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "g"}, READS_GROUP, "error_code"),
    Row(ApiKey.TXN_OFFSET_COMMIT, TXN_COMMIT, USES_ID, "topics/*/error_code"),
    Row(ApiKey.TXN_OFFSET_COMMIT, TXN_COMMIT, READS_GROUP, "topics/*/error_code"),
    Row(ApiKey.TXN_OFFSET_COMMIT, TXN_COMMIT, (on_topic(READ),), "topics/t/*/error_code"),
    Row(ApiKey.END_TXN, {**PRODUCER, "committed": True}, USES_ID, "error_code"),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        MARKERS,
        (on_cluster(ALTER), on_cluster(ACT)),
        "markers/*/error_code",
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": ["x", "y"]},
        (on_id(DESCRIBE),),
        "transaction_states/x/error_code",
    ),
]


def errors_in(answer: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Each error code of an answer, by its path: `topics/t/partitions/0/error_code`."""
    for name, value in answer.items():
        if name.endswith("error_code"):
            yield f"{path}{name}", value
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from errors_in(one, f"{path}{name}/{_identity(one)}/")


def _identity(item: dict[str, Any]) -> str:
    value = next((item[name] for name in _IDENTITY if name in item), "")
    return TOPIC_IDS.get(value, str(value)) if isinstance(value, UUID) else str(value)


def named(message: Any, name: str) -> Any:
    """The message with another name in place of the topic `t`."""
    if isinstance(message, dict):
        return {key: named(value, name) for key, value in message.items()}
    if isinstance(message, list):
        return [named(one, name) for one in message]
    return name if message == "t" else message


async def prepared() -> FakeBroker:
    """A broker with topics `t` and `u` that coordinates all groups and transactions."""
    broker = new_broker(group_initial_rebalance_delay_ms="0")
    publish(broker.metadata, topic_records("u", U_ID, 2))
    for kind, name in ((0, "g"), (1, "x")):
        await ask(
            broker, ApiKey.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": [name]}
        )
    for _ in range(200):
        # The shards load.
        await asyncio.sleep(0)
    return broker


def authorize(broker: FakeBroker, *denied: Action) -> ListedActions:
    """From here on the broker asks this authorizer."""
    authorizer = ListedActions(denied=denied)
    broker.context = replace(broker.context, authorizer=authorizer)
    return authorizer


async def stop(broker: FakeBroker) -> None:
    broker.context.producer_ids.close()
    await broker.groups.stop()
    await broker.verifier.stop()
    await broker.transactions.stop()


def refused(answer: dict[str, Any]) -> dict[str, int]:
    """The errors of authorization in an answer, by their paths."""
    return {path: code for path, code in errors_in(answer) if code in DENIED.values()}


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_right_that_is_missing_shows_where_apache_kafka_shows_it(row: Row) -> None:
    broker = await prepared()
    # Else there is no group whose offsets can be deleted.
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    expected = row.error or DENIED[row.denied[-1].resource_type]
    for version in row.versions or SERVED[row.key]:
        authorizer = authorize(broker)
        answer = await ask(broker, row.key, version, row.message)
        assert refused(answer) == {}
        # A topic, not a partition, is a question; several groups may ask about the same topic.
        most = max(Counter(authorizer.asked).values(), default=1)
        assert most <= len(row.message.get("groups", [1]))
        authorize(broker, *row.denied)
        answer = await ask(broker, row.key, version, row.message)
        at = {path for path, _ in errors_in(answer) if fnmatch(path, row.at)}
        assert at
        assert refused(answer) == dict.fromkeys(at, expected)
    await stop(broker)


@pytest.mark.parametrize("row", [one for one in ROWS if one.is_about_a_topic], ids=str)
async def test_a_topic_that_may_not_be_seen_is_refused_whether_it_exists_or_not(row: Row) -> None:
    broker = await prepared()
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    absent = [
        one._replace(resource_name="absent") if one.resource_name == "t" else one
        for one in row.denied
    ]
    authorize(broker, *absent)
    for version in row.versions or SERVED[row.key]:
        answer = await ask(broker, row.key, version, named(row.message, "absent"))
        if str(TOPIC_ID) in str(answer):
            # Versions with ids: there is none of a topic that does not exist.
            continue
        at = row.at.replace("/t/", "/absent/")
        found = {path for path, _ in errors_in(answer) if fnmatch(path, at)}
        assert refused(answer) == dict.fromkeys(found, REFUSED)
        assert found
    await stop(broker)


def test_every_api_of_these_families_has_its_rows() -> None:
    by_lists = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
    families = (data, consumer, transactional)
    keys = {key for family in families for key in family.APIS}
    assert {row.key for row in ROWS} | by_lists == keys


# --- rights of which one is enough ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "message", "either"),
    [
        (
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            {"replica_id": -1, "topics": EPOCHS},
            (on_cluster(ACT), on_topic(DESCRIBE)),
        ),
        (ApiKey.WRITE_TXN_MARKERS, MARKERS, (on_cluster(ALTER), on_cluster(ACT))),
        (
            ApiKey.INIT_PRODUCER_ID,
            {**INIT, "transactional_id": None},
            (on_cluster(Operation.IDEMPOTENT_WRITE), on_topic(WRITE, "some")),
        ),
    ],
    ids=["epochs", "markers", "producer-id"],
)
async def test_one_of_two_rights_is_enough(
    key: ApiKey, message: dict[str, Any], either: tuple[Action, Action]
) -> None:
    broker = await prepared()
    for denied in either:
        authorize(broker, denied)
        for version in SERVED[key]:
            assert refused(await ask(broker, key, version, message)) == {}
    await stop(broker)


@pytest.mark.parametrize(
    ("key", "message", "probe"),
    [
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": EPOCHS}, on_cluster(ACT)),
        (ApiKey.WRITE_TXN_MARKERS, MARKERS, on_cluster(ALTER)),
        (
            ApiKey.INIT_PRODUCER_ID,
            {**INIT, "transactional_id": None},
            on_cluster(Operation.IDEMPOTENT_WRITE),
        ),
        (ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}, on_cluster(DESCRIBE)),
        (ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []}, on_group(DESCRIBE)),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            {**HEARTBEAT, "subscribed_topic_names": None, "subscribed_topic_regex": "t"},
            on_topic(DESCRIBE),
        ),
    ],
    ids=str,
)
async def test_what_nobody_has_asked_for_is_not_logged_as_denied(
    key: ApiKey, message: dict[str, Any], probe: Action
) -> None:
    broker = await prepared()
    if key is ApiKey.LIST_GROUPS:
        await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    authorizer = authorize(broker, on_cluster(DESCRIBE), probe)
    await ask(broker, key, SERVED[key][-1], message)
    (asked,) = [action for _, action in authorizer.asked if action[:3] == probe[:3]]
    assert (asked.log_if_allowed, asked.log_if_denied) == (True, False)
    await stop(broker)


# --- lists, from which is left out what may not be seen -------------------------------------------


async def test_groups_that_may_not_be_described_are_not_listed() -> None:
    broker = await prepared()
    for group_id in ("g", "h"):
        broker_answer = await ask(broker, ApiKey.OFFSET_COMMIT, 8, {**COMMIT, "group_id": group_id})
        assert refused(broker_answer) == {}

    async def listed(version: int) -> list[str]:
        no_filter: dict[str, Any] = {"states_filter": [], "types_filter": []}
        answer = await ask(broker, ApiKey.LIST_GROUPS, version, no_filter)
        assert answer["error_code"] == ErrorCode.NONE
        return sorted(one["group_id"] for one in answer["groups"])

    for version in SERVED[ApiKey.LIST_GROUPS]:
        authorize(broker, on_cluster(DESCRIBE), on_group(DESCRIBE))
        assert await listed(version) == ["h"]
        # Who may describe the cluster sees every group.
        authorize(broker, on_group(DESCRIBE))
        assert await listed(version) == ["g", "h"]
    await stop(broker)


async def begin(broker: FakeBroker, name: str) -> None:
    """A transaction with partition 0 of both topics."""
    message = {"transactional_id": name, "transaction_timeout_ms": 10_000}
    found = await ask(broker, ApiKey.INIT_PRODUCER_ID, 4, message)
    producer = {key: found[key] for key in ("producer_id", "producer_epoch")}
    who = {
        f"v3_and_below_{key}": one for key, one in {**producer, "transactional_id": name}.items()
    }
    added = {**who, "v3_and_below_topics": topics("partitions", 0)}
    assert (await ask(broker, ApiKey.ADD_PARTITIONS_TO_TXN, 3, added))[
        "results_by_topic_v3_and_below"
    ][0]["results_by_partition"][0]["partition_error_code"] == ErrorCode.NONE


async def test_transactions_and_topics_that_may_not_be_described_are_left_out() -> None:
    broker = await prepared()
    for name in ("x", "y"):
        await begin(broker, name)
    authorize(broker, on_id(DESCRIBE), on_topic(DESCRIBE))
    for version in SERVED[ApiKey.LIST_TRANSACTIONS]:
        no_filter: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
        answer = await ask(broker, ApiKey.LIST_TRANSACTIONS, version, no_filter)
        assert [one["transactional_id"] for one in answer["transaction_states"]] == ["y"]
    answer = await ask(broker, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x", "y"]})
    hidden, shown = answer["transaction_states"]
    assert (hidden["transaction_state"], hidden["topics"]) == ("", [])
    assert [one["topic"] for one in shown["topics"]] == ["u"]
    await stop(broker)


async def test_log_directories_are_not_shown_before_there_is_room_for_the_error() -> None:
    broker = await prepared()
    await ask(broker, ApiKey.PRODUCE, 8, produce())
    for version in (1, 2):
        authorize(broker)
        shown = await ask(broker, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": None})
        assert shown["results"]
        authorize(broker, on_cluster(DESCRIBE))
        answer = await ask(broker, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": None})
        assert answer["results"] == []
    await stop(broker)


async def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described() -> None:
    broker = await prepared()
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    authorize(broker, on_topic(DESCRIBE))
    for version in range(2, 11):
        every = {**FETCHED, "topics": None}
        request = {**every, "groups": [every], "require_stable": False}
        answer = await ask(broker, ApiKey.OFFSET_FETCH, version, request)
        (topic,) = (answer["groups"][0] if version >= 8 else answer)["topics"]
        assert topic.get("name", "u") == "u"
        assert topic.get("topic_id", U_ID) == U_ID
    await stop(broker)


# --- groups ---------------------------------------------------------------------------------------


async def test_a_group_says_what_the_client_may_do_with_it() -> None:
    broker = await prepared()
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    authorize(broker, on_group(READ), on_group(Operation.DELETE))
    left = 1 << DESCRIBE | 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.ALTER_CONFIGS
    for version in range(3, 7):
        request = {"groups": ["g", "none"], "include_authorized_operations": True}
        answer = await ask(broker, ApiKey.DESCRIBE_GROUPS, version, request)
        group, dead = answer["groups"]
        assert group["authorized_operations"] == left
        # Before version 6 a group that does not exist is no error, but a dead group.
        every = 0b1101_0100_1000
        assert dead["authorized_operations"] == (every if version < 6 else -(1 << 31))
    await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**HEARTBEAT, "group_id": "c"})
    described = {"group_ids": ["c"], "include_authorized_operations": True}
    (group,) = (await ask(broker, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, described))["groups"]
    assert group["authorized_operations"] == 0b1101_0100_1000
    await stop(broker)


async def test_a_group_is_hidden_from_who_may_not_describe_a_topic_of_its_members() -> None:
    broker = await prepared()
    await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, HEARTBEAT)
    other = {**HEARTBEAT, "group_id": "h", "subscribed_topic_names": ["u"]}
    await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, other)
    authorize(broker, on_topic(DESCRIBE))
    for version in SERVED[ApiKey.CONSUMER_GROUP_DESCRIBE]:
        request = {"group_ids": ["g", "h"], "include_authorized_operations": True}
        answer = await ask(broker, ApiKey.CONSUMER_GROUP_DESCRIBE, version, request)
        hidden, shown = answer["groups"]
        assert (hidden["error_code"], hidden["group_id"]) == (REFUSED, "g")
        assert (hidden["members"], hidden["group_state"], hidden["group_epoch"]) == ([], "", 0)
        assert hidden["authorized_operations"] == -(1 << 31)
        assert (shown["error_code"], len(shown["members"])) == (ErrorCode.NONE, 1)
    await stop(broker)


async def test_a_subscription_by_expression_leaves_out_what_may_not_be_described() -> None:
    broker = await prepared()
    by_regex = {**HEARTBEAT, "subscribed_topic_names": None, "subscribed_topic_regex": "[tu]"}
    authorize(broker, on_topic(DESCRIBE))
    answer = await ask(broker, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, by_regex)
    assert answer["error_code"] == ErrorCode.NONE
    assert [one["topic_id"] for one in answer["assignment"]["topic_partitions"]] == [U_ID]
    await stop(broker)


async def test_a_refused_group_costs_the_others_of_a_fetch_of_offsets_nothing() -> None:
    broker = await prepared()
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, {**COMMIT, "group_id": "h"})
    authorize(broker, on_group(DESCRIBE))
    answer = await ask(broker, ApiKey.OFFSET_FETCH, 9, FETCH_OFFSETS)
    denied, allowed = answer["groups"]
    assert (denied["error_code"], denied["topics"]) == (DENIED[ResourceType.GROUP], [])
    offsets = [one["committed_offset"] for one in allowed["topics"][0]["partitions"]]
    assert offsets == [5, 5]
    await stop(broker)


@pytest.mark.parametrize("key", [ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT], ids=str)
async def test_the_error_of_a_coordinator_is_that_of_the_allowed_partitions_alone(
    key: ApiKey,
) -> None:
    broker = await prepared()
    authorize(broker, on_topic(READ))
    message = COMMIT if key is ApiKey.OFFSET_COMMIT else TXN_COMMIT
    stale = {"member_id": "m", "generation_id": 3, "generation_id_or_member_epoch": 3}
    answer = await ask(broker, key, 5, {**message, **stale})
    codes = {one["name"]: {p["error_code"] for p in one["partitions"]} for one in answer["topics"]}
    (code,) = codes["u"]
    assert codes["t"] == {REFUSED}
    assert code not in (ErrorCode.NONE, REFUSED)
    await stop(broker)


async def test_nothing_of_what_is_denied_is_committed() -> None:
    broker = await prepared()
    authorize(broker, on_topic(READ))
    await ask(broker, ApiKey.OFFSET_COMMIT, 8, COMMIT)
    authorize(broker)
    answer = await ask(broker, ApiKey.OFFSET_FETCH, 7, {**FETCHED, "require_stable": False})
    offsets = {
        one["name"]: [p["committed_offset"] for p in one["partitions"]] for one in answer["topics"]
    }
    assert offsets == {"t": [-1, -1], "u": [5, 5]}
    authorize(broker, on_topic(READ, "u"))
    await ask(broker, ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": DELETED})
    authorize(broker)
    answer = await ask(broker, ApiKey.OFFSET_FETCH, 7, {**FETCHED, "require_stable": False})
    assert [p["committed_offset"] for p in answer["topics"][1]["partitions"]] == [5, 5]
    await stop(broker)


async def test_partitions_that_a_producer_may_not_write_keep_the_others_out() -> None:
    broker = await prepared()
    authorize(broker, on_topic(WRITE))
    for version in range(4):
        answer = await ask(broker, ApiKey.ADD_PARTITIONS_TO_TXN, version, ADD)
        codes = {
            one["name"]: [p["partition_error_code"] for p in one["results_by_partition"]]
            for one in answer["results_by_topic_v3_and_below"]
        }
        assert codes == {"t": [REFUSED] * 2, "u": [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2}
    await stop(broker)
