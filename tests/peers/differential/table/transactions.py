"""Transactions of both versions: ids, partitions, offsets, ends, markers, what is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.log.batches.record_batch import TRANSACTIONAL
from broker.protocol.versions import ApiKey
from tests.peers.differential.language import (
    Ask,
    Body,
    Built,
    Kept,
    Script,
    Step,
    Until,
    few,
    prepare,
    topic,
)
from tests.peers.differential.records import batch
from tests.peers.differential.table.produce import produced, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

INIT = ApiKey.INIT_PRODUCER_ID
ADD = ApiKey.ADD_PARTITIONS_TO_TXN
ADD_OFFSETS = ApiKey.ADD_OFFSETS_TO_TXN
END = ApiKey.END_TXN
COMMIT = ApiKey.TXN_OFFSET_COMMIT
MARKERS = ApiKey.WRITE_TXN_MARKERS
DESCRIBE = ApiKey.DESCRIBE_TRANSACTIONS
LIST = ApiKey.LIST_TRANSACTIONS


def init(
    transactional_id: str | None = "$x", timeout: int = 60_000, pid: Any = -1, epoch: Any = -1
) -> Body:
    """The body of an InitProducerId."""
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout,
        "producer_id": pid,
        "producer_epoch": epoch,
    }


def begun(version: int = 4, name: str = "$x") -> Ask:
    """Keeps the id and the epoch of a transactional producer."""
    keep = {"$pid": ("producer_id",), "$epoch": ("producer_epoch",)}
    return prepare(INIT, version, init(name), **keep)


def who(shift: int = 0, name: str = "$x", **more: Any) -> Body:
    """The fields of a producer; `shift` is added to its epoch."""
    epoch = Built(lambda kept: kept["$epoch"] + shift)
    return {"transactional_id": name, "producer_id": "$pid", "producer_epoch": epoch, **more}


def adds(*partitions: int, name: str = "$t", shift: int = 0, owner: str = "$x") -> Body:
    """The body of an AddPartitionsToTxn, for every version."""
    topics = [{"name": name, "partitions": partitions}]
    mine = who(shift, owner)
    old = {f"v3_and_below_{key}": value for key, value in mine.items()}
    new = {**mine, "verify_only": False, "topics": topics}
    return {**old, "v3_and_below_topics": topics, "transactions": [new]}


def in_transaction(sequence: int = 0, shift: int = 0) -> Body:
    """The body of a Produce of one transactional batch."""

    def make(kept: Kept) -> bytes:
        ids = (kept["$pid"], kept["$epoch"] + shift, sequence)
        return batch(b"a", producer=ids, attributes=TRANSACTIONAL)

    return produced(Built(make), transactional_id="$x")


def offsets(name: str = "$t", partition: int = 0, offset: int = 5, **more: Any) -> Body:
    """The topics of a TxnOffsetCommit, and who sends it."""
    one = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
    base = {"group_id": "$g", "generation_id": -1, "member_id": "", "group_instance_id": None}
    return {**who(), **base, "topics": [{"name": name, "partitions": [one]}], **more}


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield from _init()
    yield from _classic_flow()
    yield from _new_flow()
    yield from _wrong()
    yield from _offsets()
    yield from _markers()
    yield from _told()


def _init() -> Iterator[Script]:
    cases: dict[str, Body] = {
        "idempotent": init(None),
        "idempotent, timeout 0": init(None, 0),
        "idempotent, id and epoch": init(None, pid=5, epoch=0),
        "idempotent, id alone": init(None, pid=5),
        "new": init("$a"),
        "again": init("$a"),
        "empty": init(""),
        "timeout 0": init("$b", 0),
        "timeout negative": init("$b", -1),
        "timeout too long": init("$b", 900_001),
        "timeout just right": init("$b", 900_000),
        "id without epoch": init("$c", pid=5),
        "epoch without id": init("$c", epoch=3),
        "unknown id and epoch": init("$c", pid=5, epoch=3),
        "long": init("x" * 1000),
    }
    yield Script("init producer", [Ask(name, INIT, body) for name, body in cases.items()])
    for version in few(INIT, 3):
        asks = [
            Ask("bump", INIT, init(pid="$pid", epoch="$epoch"), [version]),
            Ask("bump again", INIT, init(pid="$pid", epoch="$epoch"), [version]),
            Ask("old epoch", INIT, init(pid="$pid", epoch=-1), [version]),
            Ask("ahead", INIT, init(pid="$pid", epoch=50), [version]),
            Ask("other id", INIT, init(pid=4_999_999, epoch=0), [version]),
            Ask("anew", INIT, init(), [version]),
            Ask("bump of the old", INIT, init(pid="$pid", epoch="$epoch"), [version]),
        ]
        yield Script(f"init producer bump v{version}", [begun(version), *asks])


def marked() -> Until:
    """Until the markers are written, which takes each system its own time."""

    def is_over(told: dict[str, Any]) -> bool:
        (one,) = told["transaction_states"]
        return not one["transaction_state"].startswith("Prepare")

    return Until(DESCRIBE, 0, {"transactional_ids": ["$x"]}, is_over)


def _classic_flow() -> Iterator[Script]:
    for version in (0, 1, 2, 3):
        for committed in (True, False):
            end = who(committed=committed)
            what = "commit" if committed else "abort"
            ending = min(version, 3)
            yield Script(
                f"transaction v1 {what} v{version}",
                [
                    *topic("$t", 2),
                    Ask(
                        "init",
                        INIT,
                        init(),
                        [version],
                        {"$pid": ("producer_id",), "$epoch": ("producer_epoch",)},
                    ),
                    Ask("end before", END, end, [ending]),
                    Ask("produce before", ApiKey.PRODUCE, in_transaction(), [9]),
                    Ask("add", ADD, adds(0, 1), [version]),
                    Ask("add again", ADD, adds(0), [version]),
                    Ask("describe", DESCRIBE, {"transactional_ids": ["$x"]}),
                    Ask("produce", ApiKey.PRODUCE, in_transaction(), [9]),
                    Ask(
                        "open",
                        ApiKey.DESCRIBE_PRODUCERS,
                        {"topics": [{"name": "$t", "partition_indexes": [0, 1]}]},
                    ),
                    stored(),
                    Ask("add offsets", ADD_OFFSETS, who(group_id="$g"), [version]),
                    Ask("commit offsets", COMMIT, offsets(), [version]),
                    Ask("end", END, end, [ending]),
                    marked(),
                    Ask("end again", END, end, [ending], on="other"),
                    Ask("end the other way", END, who(committed=not committed), [ending]),
                    Ask("describe after", DESCRIBE, {"transactional_ids": ["$x"]}, on="after"),
                    Ask("next add", ADD, adds(1), [version], on="after"),
                    Ask("next end", END, end, [ending], on="after"),
                    marked(),
                    Ask("all", ApiKey.FETCH, stored().body, [11], on="after"),
                    Ask(
                        "offsets after",
                        ApiKey.OFFSET_FETCH,
                        {"groups": [{"group_id": "$g", "topics": None}]},
                        [8],
                    ),
                ],
            )


def _new_flow() -> Iterator[Script]:
    keep: dict[str, tuple[str | int, ...]] = {"$epoch": ("producer_epoch",)}
    for committed in (True, False):
        end = who(committed=committed)
        what = "commit" if committed else "abort"
        yield Script(
            f"transaction v2 {what}",
            [
                *topic("$t", 2),
                Ask(
                    "init",
                    INIT,
                    init(),
                    [5],
                    {"$pid": ("producer_id",), "$epoch": ("producer_epoch",)},
                ),
                Ask("empty end", END, end, [5], keep),
                Ask("produce", ApiKey.PRODUCE, in_transaction(), [12]),
                Ask("describe", DESCRIBE, {"transactional_ids": ["$x"]}),
                Ask("commit offsets", COMMIT, offsets(), [5]),
                Ask("old end", END, who(committed=committed), [4]),
                marked(),
                Ask("end", END, end, [5]),
                marked(),
                Ask("end again", END, end, [5]),
                Ask("end the other way", END, who(committed=not committed), [5]),
                Ask("end of the next", END, who(1, committed=committed), [5]),
                marked(),
                Ask("produce with the old epoch", ApiKey.PRODUCE, in_transaction(1), [12]),
                Ask("describe after", DESCRIBE, {"transactional_ids": ["$x"]}),
                Ask("anew", INIT, init(), [5]),
                stored(),
            ],
        )
        flow: list[Step] = [
            *topic("$t"),
            begun(5),
            Ask("produce", ApiKey.PRODUCE, in_transaction(), [12]),
            Ask("end", END, end, [5], keep),
            # At once, either may ask the client to wait until the markers are written.
            marked(),
            Ask("another", ApiKey.PRODUCE, in_transaction(), [12]),
            Ask("and its end", END, who(committed=not committed), [5], keep),
            marked(),
            Ask("after", ApiKey.PRODUCE, in_transaction(), [12]),
            Ask("init in the middle", INIT, init(), [5]),
            marked(),
            Ask("fenced produce", ApiKey.PRODUCE, in_transaction(1), [12]),
            Ask("fenced end", END, end, [5]),
            stored(),
        ]
        yield Script(f"transaction v2 {what} and on", flow)


def _wrong() -> Iterator[Script]:
    strange = {"transactional_id": "$nobody", "producer_id": 12_345, "producer_epoch": 0}
    empty = {"transactional_id": "", "producer_id": 12_345, "producer_epoch": 0}
    old = {f"v3_and_below_{key}": value for key, value in strange.items()}
    nobody = {
        **adds(0),
        **old,
        "transactions": [{**strange, "topics": [{"name": "$t", "partitions": [0]}]}],
    }
    unnamed = {
        **adds(0),
        **{f"v3_and_below_{key}": value for key, value in empty.items()},
        "transactions": [{**empty, "topics": [{"name": "$t", "partitions": [0]}]}],
    }
    cases: list[tuple[str, ApiKey, Body]] = [
        ("add for nobody", ADD, nobody),
        ("add without a name", ADD, unnamed),
        ("add old epoch", ADD, adds(0, shift=-1)),
        ("add epoch ahead", ADD, adds(0, shift=1)),
        ("add unknown topic", ADD, adds(0, name="$unknown")),
        ("add unknown partition", ADD, adds(0, 9)),
        ("add nothing", ADD, adds()),
        ("add internal topic", ADD, adds(0, name="__consumer_offsets")),
        ("add offsets for nobody", ADD_OFFSETS, {**strange, "group_id": "$g"}),
        ("add offsets without a name", ADD_OFFSETS, {**empty, "group_id": "$g"}),
        ("add offsets old epoch", ADD_OFFSETS, who(-1, group_id="$g")),
        ("add offsets epoch ahead", ADD_OFFSETS, who(1, group_id="$g")),
        ("add offsets no group", ADD_OFFSETS, who(group_id="")),
        ("end for nobody", END, {**strange, "committed": True}),
        ("end without a name", END, {**empty, "committed": True}),
        ("end old epoch", END, who(-1, committed=True)),
        ("end epoch ahead", END, who(1, committed=True)),
        ("end other id", END, {**who(committed=True), "producer_id": 12_345}),
    ]
    for name, api, body in cases:
        # One broker asks another from version 4 on.
        versions = [v for v in few(api) if api is not ADD or v < 4]
        if api is ADD:
            versions = [0, 2, 3]
        for version in versions:
            steps = [*topic("$t"), begun(), Ask(name, api, body, [version])]
            yield Script(f"transaction {name} v{version}", steps)
    yield from _wrong_adds(nobody, unnamed)


def _wrong_adds(nobody: Body, unnamed: Body) -> Iterator[Script]:
    verify = {**who(), "verify_only": True, "topics": [{"name": "$t", "partitions": [0]}]}
    yield Script(
        "transaction batched add",
        [
            *topic("$t", 2),
            begun(),
            Ask("verify before", ADD, {"transactions": [verify]}, [4, 5]),
            Ask("add", ADD, adds(0), [4, 5]),
            Ask("verify", ADD, {"transactions": [verify]}, [4, 5]),
            Ask("two", ADD, {"transactions": [*adds(1)["transactions"], verify]}, [4, 5]),
            Ask("nobody", ADD, nobody, [4, 5]),
            Ask("unnamed", ADD, unnamed, [4, 5]),
            Ask("old epoch", ADD, adds(0, shift=-1), [4, 5]),
            Ask("unknown topic", ADD, adds(0, name="$unknown"), [4, 5]),
            # Apache Kafka never answers it.
            Ask("none", ADD, {}, [5], patience_s=2),
        ],
    )
    yield Script(
        "transaction produce",
        [
            *topic("$t"),
            begun(4),
            Ask("not added", ApiKey.PRODUCE, in_transaction(), [3, 8, 11]),
            Ask("old epoch", ApiKey.PRODUCE, in_transaction(shift=-1), [8, 11, 12]),
            Ask("epoch ahead", ApiKey.PRODUCE, in_transaction(shift=1), [8, 11, 12]),
            Ask(
                "another id",
                ApiKey.PRODUCE,
                {**in_transaction(), "transactional_id": "$y"},
                [8, 12],
            ),
            Ask("no id", ApiKey.PRODUCE, {**in_transaction(), "transactional_id": None}, [8, 12]),
            Ask("sequence 5", ApiKey.PRODUCE, in_transaction(5), [12]),
            stored(),
        ],
    )


def _offsets() -> Iterator[Script]:
    for version in few(COMMIT):
        cases: dict[str, Body] = {
            "not added": offsets(),
            "unknown topic": offsets("$unknown"),
            "unknown partition": offsets(partition=9),
            "negative offset": offsets(offset=-1),
            "empty group": offsets(group_id=""),
            "old epoch": {**offsets(), **who(-1)},
            "epoch ahead": {**offsets(), **who(1)},
            "other id": {**offsets(), "producer_id": 12_345},
            "nobody": {**offsets(), "transactional_id": "$nobody"},
            "generation": offsets(generation_id=3),
            "member": offsets(member_id="nobody"),
            "generation and member": offsets(generation_id=1, member_id="nobody"),
            "instance": offsets(group_instance_id="nobody"),
            "no topics": offsets(topics=[]),
        }
        for name, body in cases.items():
            steps = [*topic("$t"), begun(), Ask(name, COMMIT, body, [version])]
            yield Script(f"transaction offsets {name} v{version}", steps)
        added = prepare(ADD_OFFSETS, 3, who(group_id="$g"))
        fetch = {"groups": [{"group_id": "$g", "topics": None}]}
        yield Script(
            f"transaction offsets pending v{version}",
            [
                *topic("$t"),
                begun(),
                added,
                Ask("commit", COMMIT, offsets(), [min(version, 4)]),
                Ask("fetch", ApiKey.OFFSET_FETCH, {**fetch, "group_id": "$g"}, [3, 8]),
                Ask(
                    "fetch stable",
                    ApiKey.OFFSET_FETCH,
                    {**fetch, "group_id": "$g", "require_stable": True},
                    [7, 8],
                ),
                Ask("end", END, who(committed=True), [3]),
                marked(),
                Ask(
                    "fetch after",
                    ApiKey.OFFSET_FETCH,
                    {**fetch, "group_id": "$g", "require_stable": True},
                    [7, 9],
                    on="b",
                ),
            ],
        )


def _markers() -> Iterator[Script]:
    def marker(
        pid: Any = "$pid", epoch: int = 0, name: str = "$t", partition: int = 0, **more: Any
    ) -> Body:
        topics = [{"name": name, "partition_indexes": [partition]}]
        one = {"producer_id": pid, "producer_epoch": epoch, "transaction_result": True}
        return {"markers": [{**one, "topics": topics, "coordinator_epoch": 0, **more}]}

    for version in (1, 2):
        cases = {
            "no transaction": marker(),
            "unknown producer": marker(pid=77_777),
            "unknown topic": marker(name="$unknown"),
            "unknown partition": marker(partition=9),
            "old coordinator": marker(coordinator_epoch=-1),
            "old epoch": marker(epoch=-1),
            "epoch ahead": marker(epoch=1),
            "epoch behind again": marker(epoch=0),
            "coordinator ahead": marker(epoch=1, coordinator_epoch=9),
            "coordinator behind": marker(epoch=1, coordinator_epoch=8),
            "no topics": {"markers": [{"producer_id": 7}]},
            "none": {},
        }
        asks = [Ask(name, MARKERS, body, [version]) for name, body in cases.items()]
        steps = [*topic("$t"), begun(), *asks, stored()]
        yield Script(f"transaction markers v{version}", steps)
    added = prepare(ADD, 3, adds(0))
    yield Script(
        "transaction markers in a transaction",
        [
            *topic("$t"),
            begun(),
            added,
            prepare(ApiKey.PRODUCE, 11, in_transaction()),
            Ask("abort", MARKERS, marker(transaction_result=False), [1]),
            Ask("produce", ApiKey.PRODUCE, in_transaction(1), [11]),
            Ask("commit", MARKERS, marker(), [2]),
            stored(),
        ],
    )


def _told() -> Iterator[Script]:
    def described(*names: str) -> Body:
        return {"transactional_ids": names}

    yield Script(
        "transactions told",
        [
            *topic("$t"),
            Ask("unknown", DESCRIBE, described("$x")),
            Ask("empty", DESCRIBE, described("")),
            Ask("none", DESCRIBE),
            begun(),
            Ask("empty transaction", DESCRIBE, described("$x")),
            Ask("twice", DESCRIBE, described("$x", "$x")),
            Ask("two", DESCRIBE, described("$x", "$y")),
            Ask("list", LIST, mine=True),
            Ask("list empty ones", LIST, {"state_filters": ["Empty"]}, mine=True),
            Ask("list ongoing", LIST, {"state_filters": ["Ongoing"]}, mine=True),
            Ask("list unknown state", LIST, {"state_filters": ["Nothing", "Empty"]}, mine=True),
            Ask("list lower case", LIST, {"state_filters": ["empty"]}, mine=True),
            Ask("list its id", LIST, {"producer_id_filters": ["$pid"]}, mine=True),
            Ask("list other id", LIST, {"producer_id_filters": [99_999]}, mine=True),
            Ask("list long", LIST, {"duration_filter": 3_600_000}, mine=True),
            Ask("list any duration", LIST, {"duration_filter": 0}, mine=True),
            Ask("list pattern", LIST, {"transactional_id_pattern": ".*x"}, mine=True),
            Ask("list other pattern", LIST, {"transactional_id_pattern": "nothing.*"}, mine=True),
            Ask("list wrong pattern", LIST, {"transactional_id_pattern": "(["}, mine=True),
            Ask("list empty pattern", LIST, {"transactional_id_pattern": ""}, mine=True),
            prepare(ADD, 3, adds(0)),
            Ask("ongoing", DESCRIBE, described("$x")),
            Ask("list now", LIST, mine=True),
            Ask("list ongoing now", LIST, {"state_filters": ["Ongoing"]}, mine=True),
        ],
    )
