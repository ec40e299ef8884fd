"""Fetch and its sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.protocol.versions import ApiKey
from tests.peers.differential.language import Ask, Body, Script, Step, few, prepare, since, topic
from tests.peers.differential.records import Rec, T, batch
from tests.peers.differential.table.produce import produced, producer, sequenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FETCH = ApiKey.FETCH
LIST = ApiKey.LIST_OFFSETS
EPOCH = ApiKey.OFFSET_FOR_LEADER_EPOCH
DELETE = ApiKey.DELETE_RECORDS
UNKNOWN_ID = UUID(int=0xFF)
IDS_SINCE = 13


def filled_topic(name: str = "$t", partitions: int = 1, batches: int = 3) -> list[Step]:
    """A topic whose partitions have that many batches of two records each, a second apart."""
    steps = topic(name, partitions)
    for partition in range(partitions):
        for number in range(batches):
            data = batch(b"a", Rec(b"b", at=10), time=T + 1000 * number)
            body = produced(data, name, partition)
            steps.append(prepare(ApiKey.PRODUCE, 12, body))
    return steps


def part(partition: int = 0, offset: int = 0, **more: Any) -> Body:
    """A partition of a Fetch."""
    return {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
        **more,
    }


def fetched(*parts: Body, name: str = "$t", topics: Any = None, **more: Any) -> Body:
    """The body of a Fetch of one topic."""
    one = {"topic": name, "topic_id": f"{name}.id", "partitions": parts or [part()]}
    body = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [one] if topics is None else topics,
    }
    return {**body, **more}


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield _fetch()
    yield from _unknown_topics()
    yield from _sessions()
    yield from _list_offsets()
    yield _epochs()
    yield from _delete_records()
    yield _producers()


def _fetch() -> Script:
    cases: dict[str, Body] = {
        "from 0": fetched(),
        "inside a batch": fetched(part(offset=3)),
        "at the end": fetched(part(offset=6)),
        "behind the end": fetched(part(offset=7)),
        "negative offset": fetched(part(offset=-1)),
        "leader epoch 0": fetched(part(current_leader_epoch=0)),
        "leader epoch ahead": fetched(part(current_leader_epoch=9)),
        "last fetched epoch 0": fetched(part(offset=2, last_fetched_epoch=0)),
        "last fetched epoch ahead": fetched(part(offset=2, last_fetched_epoch=5)),
        "one byte": fetched(part(partition_max_bytes=1)),
        "no bytes": fetched(part(partition_max_bytes=0)),
        "one byte in all": fetched(max_bytes=1),
        "no bytes in all": fetched(max_bytes=0),
        "negative bytes": fetched(part(partition_max_bytes=-1)),
        "two partitions": fetched(part(), part(1, 4)),
        "a partition twice": fetched(part(), part(offset=4)),
        "unknown partition": fetched(part(9)),
        "negative partition": fetched(part(-1)),
        "no topics": fetched(topics=[]),
        "read committed": fetched(isolation_level=1),
        "isolation level 2": fetched(isolation_level=2),
        "isolation level -1": fetched(isolation_level=-1),
        "rack": fetched(rack_id="here"),
        "waits for more": fetched(part(offset=6), min_bytes=1, max_wait_ms=30),
        "min above max": fetched(min_bytes=1 << 21, max_wait_ms=30),
        "negative wait": fetched(part(offset=6), min_bytes=1, max_wait_ms=-1),
        "cluster id": fetched(cluster_id="other"),
        "debugging replica": fetched(replica_id=-2, replica_state={"replica_id": -2}),
        "replica -3": fetched(replica_id=-3, replica_state={"replica_id": -3}),
        "unknown replica": fetched(replica_id=7, replica_state={"replica_id": 7}),
        "itself as replica": fetched(replica_id=1, replica_state={"replica_id": 1}),
    }
    asks = [Ask(name, FETCH, body) for name, body in cases.items()]
    return Script("fetch", [*filled_topic(partitions=2), *asks])


def _unknown_topics() -> Iterator[Script]:
    asks: list[Step] = []
    for name in ("$unknown", "", "a b", "__cluster_metadata"):
        one = {"topic": name, "topic_id": UNKNOWN_ID, "partitions": [part()]}
        asks.append(Ask(name or "empty", FETCH, fetched(topics=[one])))
    no_id = {"topic_id": None, "partitions": [part()]}
    asks.append(Ask("no id", FETCH, fetched(topics=[no_id]), since(FETCH, IDS_SINCE)))
    yield Script("fetch unknown", asks)
    gone: Body = {"topic_names": ["$t"], "topics": [{"name": "$t"}], "timeout_ms": 10_000}
    steps = [*filled_topic(), prepare(ApiKey.DELETE_TOPICS, 6, gone)]
    yield Script("fetch deleted", [*steps, Ask("by its id", FETCH, fetched(), [13, 17])])


def _sessions() -> Iterator[Script]:
    session: Mapping[str, Any] = {"session_id": "$session"}
    for version in few(FETCH, 7):
        several = [part(), part(1)]
        one = {"topic": "$t", "topic_id": "$t.id", "partitions": [1]}
        forget: Mapping[str, Any] = {"forgotten_topics_data": [one]}
        plan: list[tuple[str, Body]] = [
            ("nothing new", fetched(topics=[], **session, session_epoch=1)),
            ("another offset", fetched(part(offset=4), **session, session_epoch=2)),
            ("forgets", fetched(topics=[], **session, session_epoch=3, **forget)),
            ("again nothing", fetched(topics=[], **session, session_epoch=4)),
            ("epoch again", fetched(topics=[], **session, session_epoch=4)),
            ("epoch ahead", fetched(topics=[], **session, session_epoch=9)),
            ("other session", fetched(topics=[], session_id=99, session_epoch=5)),
            ("adds unknown", fetched(part(7), **session, session_epoch=5)),
            ("is that told again", fetched(topics=[], **session, session_epoch=6)),
            ("a new one in place", fetched(*several, **session, session_epoch=0)),
            ("the old one", fetched(topics=[], **session, session_epoch=7)),
            ("ended", fetched(topics=[], **session, session_epoch=-1)),
            ("after the end", fetched(topics=[], **session, session_epoch=1)),
        ]
        create = Ask(
            "created",
            FETCH,
            fetched(*several, session_epoch=0),
            [version],
            {"$session": ("session_id",)},
        )
        asks = [Ask(name, FETCH, body, [version]) for name, body in plan]
        steps = [*filled_topic(partitions=2), create, *asks]
        yield Script(f"fetch session v{version}", steps)


def offsets(*partitions: Body, name: str = "$t", **more: Any) -> Body:
    """The body of a ListOffsets."""
    return {"replica_id": -1, "topics": [{"name": name, "partitions": partitions}], **more}


def at(timestamp: int, partition: int = 0, epoch: int = -1) -> Body:
    """A partition of a ListOffsets."""
    return {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": epoch,
    }


def _list_offsets() -> Iterator[Script]:
    cases: dict[str, Body] = {
        f"time {time}": offsets(at(time)) for time in (*range(-8, 1), -99, -(2**63), 2**63 - 1)
    }
    cases |= {
        "first time": offsets(at(T)),
        "inside the first batch": offsets(at(T + 5)),
        "between batches": offsets(at(T + 500)),
        "last time": offsets(at(T + 2010)),
        "after the last": offsets(at(T + 2011)),
        "leader epoch 0": offsets(at(-1, epoch=0)),
        "leader epoch ahead": offsets(at(-1, epoch=9)),
        "unknown partition": offsets(at(-1, 9)),
        "negative partition": offsets(at(-1, -1)),
        "two partitions": offsets(at(-1), at(-2, 1)),
        "a partition twice": offsets(at(-1), at(-2)),
        "unknown topic": offsets(at(-1), name="$unknown"),
        "invalid topic": offsets(at(-1), name="a b"),
        "empty name": offsets(at(-1), name=""),
        "no partitions": offsets(),
        "no topics": {"replica_id": -1},
        "read committed": offsets(at(-1), isolation_level=1),
        "read committed by time": offsets(at(T + 500), isolation_level=1),
        "isolation level 3": offsets(at(-1), isolation_level=3),
        "debugging replica": offsets(at(-1), replica_id=-2),
        "replica 1": offsets(at(-1), replica_id=1),
        "replica 9": offsets(at(-1), replica_id=9),
    }
    asks = [Ask(name, LIST, body) for name, body in cases.items()]
    yield Script("list offsets", [*filled_topic(partitions=2), *asks])
    empty = [
        Ask(f"time {time}", LIST, offsets(at(time)), few(LIST)) for time in (-1, -2, -3, -4, T)
    ]
    yield Script("list offsets empty", [*topic("$t"), *empty])


def _epochs() -> Script:
    def asked(epoch: int, current: int = -1, partition: int = 0, name: str = "$t") -> Body:
        one = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        return {"replica_id": -1, "topics": [{"topic": name, "partitions": [one]}]}

    cases = {
        "epoch 0": asked(0),
        "epoch ahead": asked(5),
        "epoch -1": asked(-1),
        "epoch -2": asked(-2),
        "epoch -7": asked(-7),
        "current 0": asked(0, 0),
        "current ahead": asked(0, 3),
        "unknown partition": asked(0, partition=7),
        "unknown topic": asked(0, name="$unknown"),
        "invalid topic": asked(0, name="a b"),
        "no topics": {"replica_id": -1},
        "replica 1": {**asked(0), "replica_id": 1},
        "replica -2": {**asked(0), "replica_id": -2},
    }
    asks = [Ask(name, EPOCH, body) for name, body in cases.items()]
    return Script("offset for leader epoch", [*filled_topic(), *asks])


def _delete_records() -> Iterator[Script]:
    def deleted(offset: int, partition: int = 0, name: str = "$t") -> Body:
        one = {"partition_index": partition, "offset": offset}
        return {"topics": [{"name": name, "partitions": [one]}], "timeout_ms": 10_000}

    for version in (0, 1, 2):
        cases = {
            "up to 2": deleted(2),
            "up to 1": deleted(1),
            "up to 3": deleted(3),
            "behind the end": deleted(7),
            "negative": deleted(-2),
            "unknown partition": deleted(0, 9),
            "unknown topic": deleted(0, name="$unknown"),
            "invalid topic": deleted(0, name="a b"),
            "internal topic": deleted(0, name="__consumer_offsets"),
            "metadata": deleted(0, name="__cluster_metadata"),
            "no topics": {"timeout_ms": 1000},
            "timeout 0": {**deleted(4), "timeout_ms": 0},
            "all": deleted(-1),
        }
        asks: list[Step] = [Ask(name, DELETE, body, [version]) for name, body in cases.items()]
        after: list[Step] = [
            Ask("fetch before the start", FETCH, fetched(), [12]),
            Ask("earliest", LIST, offsets(at(-2)), [7]),
            Ask("by time", LIST, offsets(at(T)), [7]),
        ]
        name = f"delete records v{version}"
        yield Script(name, [*filled_topic(), *asks, *after])
    config = {"cleanup.policy": "compact"}
    keyed = prepare(ApiKey.PRODUCE, 12, produced(batch(Rec(b"a", b"k"), Rec(b"b", b"k"))))
    ask = Ask("compacted", DELETE, deleted(1), [0, 2])
    yield Script("delete records of compacted", [*topic("$t", configs=config), keyed, ask])


def _producers() -> Script:
    def asked(*partitions: int, name: str = "$t") -> Body:
        return {"topics": [{"name": name, "partition_indexes": partitions}]}

    api = ApiKey.DESCRIBE_PRODUCERS
    send = prepare(ApiKey.PRODUCE, 12, produced(sequenced(0, b"a", b"b")))
    return Script(
        "describe producers",
        [
            *topic("$t", 2),
            Ask("none", api, asked(0)),
            producer(),
            send,
            Ask("one", api, asked(0)),
            Ask("two partitions", api, asked(0, 1)),
            Ask("unknown partition", api, asked(9)),
            Ask("unknown topic", api, asked(0, name="$unknown")),
            Ask("invalid topic", api, asked(0, name="a b")),
            Ask("no partitions", api, asked()),
            Ask("no topics", api),
        ],
    )
