"""Topics and partitions: Metadata, DescribeTopicPartitions, their making, change, and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import Ask, Body, Script, Step, few, prepare, since, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

METADATA = ApiKey.METADATA
PARTITIONS = ApiKey.DESCRIBE_TOPIC_PARTITIONS
CREATE = ApiKey.CREATE_TOPICS
DELETE = ApiKey.DELETE_TOPICS
MORE = ApiKey.CREATE_PARTITIONS
REASSIGN = ApiKey.ALTER_PARTITION_REASSIGNMENTS
MOVES = ApiKey.LIST_PARTITION_REASSIGNMENTS
ELECT = ApiKey.ELECT_LEADERS
UNKNOWN_ID = UUID(int=0xFD)
WRONG_NAMES = ("", ".", "..", "a b", "a/b", "é", "x" * 249, "x" * 250, "a:b")


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield from _metadata()
    yield _described()
    yield from _created()
    yield from _deleted()
    yield from _enlarged()
    yield from _reassigned()
    yield _elected()


def names(*asked: str, create: bool = False, **more: Any) -> Body:
    """The body of a Metadata by names."""
    topics = [{"name": one, "topic_id": None} for one in asked]
    return {"topics": topics, "allow_auto_topic_creation": create, **more}


def _metadata() -> Iterator[Script]:
    operations = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    asks: list[Step] = [
        *topic("$t", 2),
        Ask("one", METADATA, names("$t")),
        Ask("one, creating", METADATA, names("$t", create=True)),
        Ask("twice", METADATA, names("$t", "$t")),
        Ask("operations", METADATA, names("$t", **operations)),
        Ask("internal", METADATA, names("__consumer_offsets")),
        Ask("none", METADATA, names(), since(METADATA, 1)),
        Ask("all", METADATA, {"topics": None}, since(METADATA, 1), mine=True),
        Ask("all, the old way", METADATA, names(), [0], mine=True),
    ]
    # Below version 4 a broker may always create, so that a name is asked for once.
    for name in ("$unknown", *WRONG_NAMES[:6], "x" * 250, "__cluster_metadata"):
        label = f"{name[:12] or 'empty'}"
        asks.append(Ask(f"unknown {label}", METADATA, names(name), since(METADATA, 4)))
    yield Script("metadata", asks)
    created: list[Step] = []
    for number, version in enumerate((0, 1, 3, 4, 8, 13)):
        created += [
            Ask("creates", METADATA, names(f"$c{number}", create=True), [version]),
            Ask("is created", METADATA, names(f"$c{number}"), [12 - number % 2]),
        ]
    wrong = [
        Ask(f"creates {name[:12] or 'empty'}", METADATA, names(name, create=True))
        for name in ("", "a b", "x" * 250, "__cluster_metadata")
    ]
    unique: list[Step] = []
    for number, step in enumerate(created):
        assert isinstance(step, Ask)
        unique.append(Ask(f"{step.name} {number // 2}", METADATA, step.body, step.versions))
    yield Script("metadata creates", [*unique, *wrong])
    by_id = {
        "id": [{"topic_id": "$t.id", "name": None}],
        "unknown id": [{"topic_id": UNKNOWN_ID, "name": None}],
        "id and name": [{"topic_id": "$t.id", "name": "$t"}],
        "id and another name": [{"topic_id": "$t.id", "name": "$u"}],
        "id twice": [{"topic_id": "$t.id", "name": None}, {"topic_id": "$t.id", "name": None}],
        "no id, no name": [{"topic_id": None, "name": None}],
        "mixed": [{"topic_id": "$t.id", "name": None}, {"topic_id": None, "name": "$u"}],
    }
    more = [
        Ask(
            name,
            METADATA,
            {"topics": topics, "allow_auto_topic_creation": False},
            since(METADATA, 10),
        )
        for name, topics in by_id.items()
    ]
    yield Script("metadata by id", [*topic("$t"), *topic("$u"), *more])


def _described() -> Script:
    def asked(*topics: str, limit: int = 2000, cursor: Any = None) -> Body:
        named = [{"name": one} for one in topics]
        return {"topics": named, "response_partition_limit": limit, "cursor": cursor}

    def start(name: str, partition: int) -> Body:
        return {"topic_name": name, "partition_index": partition}

    cases: dict[str, Body] = {
        "one": asked("$t"),
        "two": asked("$t", "$u"),
        "twice": asked("$t", "$t"),
        "unknown": asked("$unknown"),
        "internal": asked("__consumer_offsets"),
        "limit": asked("$t", "$u", limit=2),
        "limit of a topic": asked("$t", "$u", limit=3),
        "limit 0": asked("$t", limit=0),
        "limit -1": asked("$t", limit=-1),
        "limit too large": asked("$t", limit=10_000_000),
        "cursor": asked("$t", "$u", cursor=start("$t", 1)),
        "cursor at the end": asked("$t", "$u", cursor=start("$t", 3)),
        "cursor behind the end": asked("$t", "$u", cursor=start("$t", 9)),
        "cursor negative": asked("$t", cursor=start("$t", -1)),
        "cursor not asked for": asked("$t", cursor=start("$u", 0)),
        "cursor of none": asked("$t", cursor=start("$unknown", 0)),
        "cursor empty": asked("$t", cursor=start("", 0)),
        **{f"name {name[:9] or 'empty'} {len(name)}": asked(name) for name in WRONG_NAMES},
    }
    asks = [Ask(name, PARTITIONS, body) for name, body in cases.items()]
    whole = Ask("all", PARTITIONS, asked(limit=2000), mine=True)
    return Script("topic partitions", [*topic("$t", 3), *topic("$u", 2), *asks, whole])


def new(
    name: str, partitions: int = 1, factor: int = 1, assigned: Any = None, **configs: str | None
) -> Body:
    """One topic of a CreateTopics; underscores in configs are dots."""
    pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    base = {"name": name, "num_partitions": partitions, "replication_factor": factor}
    manual = [{"partition_index": n, "broker_ids": ids} for n, ids in (assigned or {}).items()]
    return {**base, "assignments": manual, "configs": pairs}


def creating(*topics: Body, **more: Any) -> Body:
    """The body of a CreateTopics."""
    return {"topics": topics, "timeout_ms": 10_000, **more}


def _created() -> Iterator[Script]:
    def cases(v: int) -> dict[str, Body]:
        name = f"$c{v}"
        return {
            "one": creating(new(name)),
            "again": creating(new(name)),
            "only checked": creating(new(f"{name}-v"), validate_only=True),
            "only checked again": creating(new(name), validate_only=True),
            "defaults": creating(new(f"{name}-d", -1, -1)),
            "three partitions": creating(new(f"{name}-3", 3)),
            "no partitions": creating(new(f"{name}-x", 0)),
            "negative partitions": creating(new(f"{name}-x", -2)),
            "no replicas": creating(new(f"{name}-x", 1, 0)),
            "too many replicas": creating(new(f"{name}-x", 1, 2)),
            "negative replicas": creating(new(f"{name}-x", 1, -2)),
            "assigned": creating(new(f"{name}-a", -1, -1, {0: [1], 1: [1]})),
            "assigned unknown": creating(new(f"{name}-x", -1, -1, {0: [9]})),
            "assigned twice": creating(new(f"{name}-x", -1, -1, {0: [1, 1]})),
            "assigned none": creating(new(f"{name}-x", -1, -1, {0: []})),
            "assigned with a hole": creating(new(f"{name}-x", -1, -1, {0: [1], 2: [1]})),
            "assigned and counted": creating(new(f"{name}-x", 1, 1, {0: [1]})),
            "assigned and factor": creating(new(f"{name}-x", -1, 1, {0: [1]})),
            "configs": creating(new(f"{name}-c", retention_ms="1000", cleanup_policy="compact")),
            "unknown config": creating(new(f"{name}-x", no_such_thing="1")),
            "wrong config": creating(new(f"{name}-x", retention_ms="soon")),
            "config too small": creating(new(f"{name}-x", segment_bytes="1")),
            "null config": creating(new(f"{name}-x", retention_ms=None)),
            "config twice": creating(
                {**new(f"{name}-x"), "configs": [{"name": "retention.ms", "value": "1"}] * 2}
            ),
            "min isr 0": creating(new(f"{name}-x", min_insync_replicas="0")),
            "twice": creating(new(f"{name}-t"), new(f"{name}-t")),
            "two": creating(new(f"{name}-p"), new(f"{name}-x", 0)),
            "none": creating(),
            "internal": creating(new("__consumer_offsets")),
            "metadata": creating(new("__cluster_metadata")),
            "timeout 0": creating(new(f"{name}-y", validate_only="x"), timeout_ms=0),
        }

    for version in range(2, 8):
        asks = [Ask(name, CREATE, body, [version]) for name, body in cases(version).items()]
        yield Script(f"create topics v{version}", asks)
    wrong = [
        Ask(
            f"name {name[:9] or 'empty'} {len(name)}",
            CREATE,
            creating(new(name), validate_only=True),
        )
        for name in WRONG_NAMES
    ]
    alike = [
        prepare(CREATE, 7, creating(new("$a.b"))),
        Ask("collides", CREATE, creating(new("$a_b")), few(CREATE)),
    ]
    yield Script("create topics by names", [*wrong, *alike])


def _deleted() -> Iterator[Script]:
    def by(*topics: Body, **more: Any) -> Body:
        listed = [one["name"] for one in topics if one.get("name")]
        return {"topics": topics, "topic_names": listed, "timeout_ms": 10_000, **more}

    for version in range(1, 7):
        asks = [
            Ask("one", DELETE, by({"name": "$t"}), [version]),
            Ask("again", DELETE, by({"name": "$t"}), [version]),
            Ask("unknown", DELETE, by({"name": "$unknown"}), [version]),
            Ask("invalid name", DELETE, by({"name": "a b"}), [version]),
            Ask("metadata", DELETE, by({"name": "__cluster_metadata"}), [version]),
            Ask("two", DELETE, by({"name": "$u"}, {"name": "$unknown"}), [version]),
            Ask("twice", DELETE, by({"name": "$v"}, {"name": "$v"}), [version]),
            Ask("none", DELETE, by(), [version]),
            Ask("is gone", METADATA, names("$t", "$u", "$v"), [7, 12]),
        ]
        made = [*topic("$t"), *topic("$u"), *topic("$v")]
        yield Script(f"delete topics v{version}", [*made, *asks])
    steps = [
        Ask("id and name", DELETE, by({"name": "$t", "topic_id": "$t.id"}), [6]),
        Ask("unknown id", DELETE, by({"name": None, "topic_id": UNKNOWN_ID}), [6]),
        Ask("neither", DELETE, by({"name": None, "topic_id": None}), [6]),
        Ask("empty name", DELETE, by({"name": "", "topic_id": None}), [6]),
        Ask("id twice", DELETE, by(*({"name": None, "topic_id": "$t.id"},) * 2), [6]),
        Ask(
            "id and its name apart",
            DELETE,
            by({"name": None, "topic_id": "$u.id"}, {"name": "$u"}),
            [6],
        ),
        Ask("id", DELETE, by({"name": None, "topic_id": "$v.id"}), [6]),
        Ask("id again", DELETE, by({"name": None, "topic_id": "$v.id"}), [6]),
    ]
    yield Script("delete topics by id", [*topic("$t"), *topic("$u"), *topic("$v"), *steps])


def _enlarged() -> Iterator[Script]:
    def more(count: int, assigned: Any = None, name: str = "$t", **rest: Any) -> Body:
        manual = None if assigned is None else [{"broker_ids": ids} for ids in assigned]
        one = {"name": name, "count": count, "assignments": manual}
        return {"topics": [one], "timeout_ms": 10_000, **rest}

    cases = {
        "to 3": more(3),
        "to 3 again": more(3),
        "to 2": more(2),
        "to 0": more(0),
        "to -1": more(-1),
        "only checked": more(9, validate_only=True),
        "only checked, fewer": more(1, validate_only=True),
        "assigned": more(4, [[1]]),
        "assigned unknown": more(5, [[9]]),
        "assigned too few": more(6, [[1]]),
        "assigned too many": more(5, [[1], [1]]),
        "assigned twice": more(5, [[1, 1]]),
        "assigned none": more(5, [[]]),
        "assigned nothing": more(5, []),
        "unknown topic": more(3, name="$unknown"),
        "invalid topic": more(3, name="a b"),
        "metadata": more(3, name="__cluster_metadata"),
        "huge": more(20_000, validate_only=True),
    }
    here = {"name": "$t", "count": 8, "assignments": None}
    twice: Body = {"topics": [here, here], "timeout_ms": 10_000}
    for version in (0, 1, 2, 3):
        asks = [Ask(name, MORE, body, [version]) for name, body in cases.items()]
        rest = [
            Ask("twice", MORE, twice, [version]),
            Ask("none", MORE, {"topics": [], "timeout_ms": 1}, [version]),
            Ask("now", METADATA, names("$t"), [8, 12]),
        ]
        yield Script(f"create partitions v{version}", [*topic("$t"), *asks, *rest])


def _reassigned() -> Iterator[Script]:
    def moved(replicas: Any, partition: int = 0, name: str = "$t", **rest: Any) -> Body:
        part = {"partition_index": partition, "replicas": replicas}
        one = {"name": name, "partitions": [part]}
        return {
            "topics": [one],
            "timeout_ms": 10_000,
            "allow_replication_factor_change": True,
            **rest,
        }

    cases = {
        "same": moved([1]),
        "cancel none": moved(None),
        "nobody": moved([]),
        "unknown broker": moved([9]),
        "negative broker": moved([-1]),
        "twice": moved([1, 1]),
        "more": moved([1, 9]),
        "unknown partition": moved([1], 9),
        "cancel unknown partition": moved(None, 9),
        "unknown topic": moved([1], name="$unknown"),
        "invalid topic": moved([1], name="a b"),
        "no factor change": moved([1], allow_replication_factor_change=False),
        "another factor": moved([1, 2], allow_replication_factor_change=False),
        "none": {"topics": [], "timeout_ms": 1000},
    }
    asks = [Ask(name, REASSIGN, body) for name, body in cases.items()]
    part = {"partition_index": 0, "replicas": [1]}
    double = {"topics": [{"name": "$t", "partitions": [part, part]}], "timeout_ms": 10_000}
    asks.append(Ask("a partition twice", REASSIGN, double))
    yield Script("reassignments", [*topic("$t"), *asks])

    def asked(*partitions: int, name: str = "$t") -> Body:
        return {"topics": [{"name": name, "partition_indexes": partitions}], "timeout_ms": 1000}

    lists = {
        "one": asked(0),
        "unknown partition": asked(9),
        "unknown topic": asked(0, name="$unknown"),
        "invalid topic": asked(0, name="a b"),
        "no partitions": asked(),
        "all": {"topics": None, "timeout_ms": 1000},
        "none": {"topics": [], "timeout_ms": 1000},
    }
    told = [Ask(name, MOVES, body) for name, body in lists.items()]
    yield Script("reassignments listed", [*topic("$t"), *told])


def _elected() -> Script:
    def elected(*partitions: int, kind: int = 0, name: str = "$t") -> Body:
        one = {"topic": name, "partitions": partitions}
        return {"election_type": kind, "topic_partitions": [one], "timeout_ms": 10_000}

    def mixed() -> Body:
        return {"election_type": 0, "topic_partitions": [], "timeout_ms": 1000}

    cases = {
        "preferred": elected(0),
        "unclean": elected(0, kind=1),
        "kind 2": elected(0, kind=2),
        "kind -1": elected(0, kind=-1),
        "two": elected(0, 1),
        "a partition twice": elected(0, 0),
        "unknown partition": elected(9),
        "unclean unknown partition": elected(9, kind=1),
        "unknown topic": elected(0, name="$unknown"),
        "invalid topic": elected(0, name="a b"),
        "no partitions": elected(),
        "no topics": mixed(),
    }
    asks = [Ask(name, ELECT, body) for name, body in cases.items()]
    every = {"election_type": 0, "topic_partitions": None, "timeout_ms": 10_000}
    last = Ask("all", ELECT, every, mine=True)
    return Script("elections", [*topic("$t", 2), *asks, last])
