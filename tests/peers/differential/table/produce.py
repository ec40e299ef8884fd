"""Produce: batches right and wrong, sequences, and what is then stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cramjam

from broker.log.batches.record_batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from broker.protocol.versions import ApiKey
from tests.peers.differential.language import (
    Ask,
    Body,
    Built,
    Script,
    Step,
    few,
    prepare,
    since,
    topic,
    until,
)
from tests.peers.differential.records import Rec, T, batch, compressed, message_set, payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PRODUCE = ApiKey.PRODUCE


def produced(
    records: Any, name: str = "$t", partition: int = 0, acks: int = -1, **more: Any
) -> Body:
    """The body of a request of one batch."""
    part = {"index": partition, "records": records}
    one = {"name": name, "topic_id": f"{name}.id", "partition_data": [part]}
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": [one], **more}


def stored(name: str = "$t", partition: int = 0) -> Ask:
    """What a reader of everything gets."""
    part = {"partition": partition, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    one = {"topic": name, "topic_id": f"{name}.id", "partitions": [part]}
    body = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [one],
    }
    return Ask(f"stored {name}-{partition}", ApiKey.FETCH, body, [12, 17])


def producer(name: str = "$pid") -> Ask:
    """Keeps the id of a new idempotent producer."""
    body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    return prepare(ApiKey.INIT_PRODUCER_ID, 4, body, **{name: ("producer_id",)})


def sequenced(
    sequence: int, *values: bytes, epoch: int = 0, name: str = "$pid", attributes: int = 0
) -> Built:
    """A batch of a producer whose id was kept."""

    def make(kept: Any) -> bytes:
        return batch(*values, producer=(kept[name], epoch, sequence), attributes=attributes)

    return Built(make)


def scripts() -> Iterator[Script]:
    """All of this family."""
    yield from _valid()
    yield from _wrong_batches()
    yield from _null()
    yield from _configured()
    yield from _idempotent()
    yield from _wrong_requests()


def _valid() -> Iterator[Script]:
    yield Script(
        "produce valid",
        [
            *topic("$t", 2),
            Ask("one record", PRODUCE, produced(batch(b"a"))),
            Ask("three records", PRODUCE, produced(batch(b"a", Rec(b"b", b"k", 5), Rec(None)))),
            Ask("headers", PRODUCE, produced(batch(Rec(b"a", headers=[(b"h", b"1")])))),
            Ask("partition 1, leader only", PRODUCE, produced(batch(b"a"), partition=1, acks=1)),
            Ask("no acks", PRODUCE, produced(batch(b"a"), acks=0), silent=True),
            Ask("no timestamp", PRODUCE, produced(batch(b"a", time=-1))),
            Ask("base offset set", PRODUCE, produced(batch(b"a", base_offset=77))),
            Ask("leader epoch set", PRODUCE, produced(batch(b"a", epoch=9))),
            stored(),
            stored(partition=1),
        ],
    )
    for codec, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        versions = since(PRODUCE, 7) if codec == 4 else None
        body = produced(batch(b"value" * 50, b"other" * 50, codec=codec))
        steps = [*topic("$t"), Ask(name, PRODUCE, body, versions), stored()]
        yield Script(f"produce codec {name}", steps)
    zstd = produced(batch(b"a", codec=4))
    steps = [*topic("$t"), Ask("zstd", PRODUCE, zstd, until(PRODUCE, 7)), stored()]
    yield Script("produce zstd too early", steps)


def _wrong_batches() -> Iterator[Script]:
    good = batch(b"a", b"b")
    nested = payload([Rec(b"a"), Rec(b"b")])
    wrong: dict[str, Any] = {
        "empty": b"",
        "cut in the header": good[:30],
        "cut in the records": good[:-3],
        "trailing bytes": good + b"\0\0",
        "two batches": good + good,
        "crc wrong": batch(b"a", crc=1),
        "magic 0": message_set(0),
        "magic 1": message_set(1),
        "magic 3": batch(b"a", magic=3),
        "length too small": batch(b"a", length=20),
        "length negative": batch(b"a", length=-1),
        "length too large": batch(b"a", length=10_000),
        "count 0": batch(b"a", count=0),
        "no records": batch(count=0, last_delta=-1, body=b"", newest=T),
        "count negative": batch(b"a", count=-1),
        "count too large": batch(b"a", b"b", count=3, last_delta=2),
        "count too small": batch(b"a", b"b", count=1, last_delta=0),
        "last delta too large": batch(b"a", b"b", last_delta=5),
        "last delta too small": batch(b"a", b"b", last_delta=0),
        "deltas from 1": batch(Rec(b"a", delta=1), Rec(b"b", delta=2)),
        "deltas alike": batch(Rec(b"a", delta=0), Rec(b"b", delta=0)),
        "deltas backwards": batch(Rec(b"a", delta=1), Rec(b"b", delta=0)),
        "control": batch(b"a", attributes=CONTROL),
        "control of a transaction": batch(b"a", attributes=CONTROL | TRANSACTIONAL),
        "transactional without id": batch(b"a", attributes=TRANSACTIONAL),
        "attributes unknown": batch(b"a", attributes=0x100),
        "delete horizon": batch(b"a", attributes=0x40),
        "append time set": batch(b"a", attributes=LOG_APPEND_TIME),
        "codec 5": batch(b"a", codec=5),
        "codec 6": batch(b"a", codec=6),
        "codec 7": batch(b"a", codec=7),
        "payload garbage": batch(count=2, last_delta=1, body=b"\xff" * 40),
        "payload zeros": batch(count=2, last_delta=1, body=b"\0" * 40),
        "payload empty": batch(count=2, last_delta=1, body=b""),
        "payload too long": batch(count=2, last_delta=1, body=nested + b"\x01\x02"),
        "record length too large": batch(count=1, last_delta=0, body=b"\x80\x10" + nested[1:]),
        "newest lies ahead": batch(b"a", newest=T + 99_000),
        "newest lies behind": batch(Rec(b"a", at=500), newest=T),
        "newest without time": batch(b"a", newest=-1),
        "time negative": batch(b"a", time=-5),
        "producer without sequence": batch(b"a", producer=(7, 0, -1)),
        "producer without epoch": batch(b"a", producer=(7, -1, 0)),
        "sequence without producer": batch(b"a", producer=(-1, -1, 4)),
        "producer unknown": batch(b"a", producer=(999_999, 0, 0)),
        "producer unknown, later sequence": batch(b"a", producer=(999_998, 0, 5)),
        "too large": batch(b"a" * 1_100_000),
    }
    linked = bytes(cramjam.lz4.compress(nested))
    wrong["lz4 linked blocks"] = batch(count=2, last_delta=1, codec=3, body=linked)
    for codec, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
        wrong[f"{name} garbage"] = batch(count=2, last_delta=1, codec=codec, body=b"\xff" * 40)
        wrong[f"{name} empty"] = batch(count=2, last_delta=1, codec=codec, body=b"")
        cut = compressed(codec, nested)[:-4]
        wrong[f"{name} cut"] = batch(count=2, last_delta=1, codec=codec, body=cut)
        wrong[f"{name} of garbage"] = batch(
            count=2, last_delta=1, codec=codec, body=compressed(codec, b"\xff" * 40)
        )
        wrong[f"{name} count too large"] = batch(b"a", b"b", codec=codec, count=3, last_delta=2)
        wrong[f"{name} count too small"] = batch(b"a", b"b", codec=codec, count=1, last_delta=0)
        wrong[f"{name} deltas alike"] = batch(Rec(b"a"), Rec(b"b", delta=0), codec=codec)
    for name, data in wrong.items():
        versions = few(PRODUCE, 7)
        steps = [*topic("$t"), Ask("batch", PRODUCE, produced(data), versions), stored()]
        yield Script(f"produce {name}", steps)


def _null() -> Iterator[Script]:
    # Apache Kafka never answers it.
    null = Ask("batch", PRODUCE, produced(None), [9], patience_s=2)
    yield Script("produce null", [*topic("$t"), null, stored()])


def _configured() -> Iterator[Script]:
    keyless = batch(Rec(b"a", b"k"), Rec(b"b"), Rec(b"c", b"k"), Rec(b"d"))
    large = batch(b"x" * 100_000, codec=1)
    ancient, later = batch(b"a", Rec(b"b", at=1)), batch(b"a", Rec(b"b", at=4_000_000_000_000))
    cases: list[tuple[str, dict[str, str], dict[str, bytes]]] = [
        ("compacted", {"cleanup.policy": "compact"}, {"keys missing": keyless}),
        ("compacted gzip", {"cleanup.policy": "compact"}, {"zip": batch(Rec(b"a"), codec=1)}),
        (
            "compact and delete",
            {"cleanup.policy": "compact,delete"},
            {"no keys": batch(b"a", b"b"), "keys": batch(Rec(b"a", b"k"))},
        ),
        (
            "append time",
            {"message.timestamp.type": "LogAppendTime"},
            {"old": ancient, "ahead": later, "gzip": batch(b"a", codec=1), "none": batch(time=-1)},
        ),
        ("time ahead", {}, {"one record": later, "all": batch(b"a", time=4_000_000_000_000)}),
        (
            "time behind",
            {"message.timestamp.before.max.ms": "3600000"},
            {"old": ancient, "none": batch(b"a", time=-1)},
        ),
        (
            "small batches",
            {"max.message.bytes": "1000"},
            {"gzip": large, "plain": batch(b"x" * 999)},
        ),
        (
            "small, uncompressed",
            {"max.message.bytes": "1000", "compression.type": "uncompressed"},
            {"gzip": large, "fits": batch(b"x" * 500, codec=1), "plain": batch(b"x")},
        ),
        ("small segments", {"segment.bytes": "1048576"}, {"fits": batch(b"x" * 500_000)}),
    ]
    for name in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        config = {"compression.type": name}
        bodies = {f"codec {codec}": batch(b"v" * 90, codec=codec) for codec in range(5)}
        cases.append((f"compression {name}", config, bodies))
    for name, config, bodies in cases:
        steps: list[Step] = [*topic("$t", configs=config)]
        for case, data in bodies.items():
            steps.append(Ask(case, PRODUCE, produced(data), few(PRODUCE, 7)))
        # What a broker compresses need not have the same bytes.
        if not name.startswith("compression"):
            steps.append(stored())
        yield Script(f"produce to {name}", steps)


def _idempotent() -> Iterator[Script]:
    for version in few(PRODUCE):
        plans: dict[str, Sequence[Built]] = {
            "in order": [sequenced(0, b"a"), sequenced(1, b"b", b"c"), sequenced(3, b"d")],
            "again": [
                sequenced(0, b"a"),
                sequenced(1, b"b"),
                sequenced(0, b"a"),
                sequenced(1, b"b"),
            ],
            "long ago": [*(sequenced(n, b"a") for n in range(7)), sequenced(0, b"a")],
            "other size": [sequenced(0, b"a", b"b"), sequenced(0, b"a"), sequenced(1, b"a")],
            "gap": [sequenced(0, b"a"), sequenced(5, b"b"), sequenced(1, b"b")],
            "not from 0": [sequenced(3, b"a"), sequenced(4, b"b")],
            "new epoch": [sequenced(0, b"a"), sequenced(0, b"b", epoch=1), sequenced(1, b"c")],
            "new epoch not from 0": [sequenced(0, b"a"), sequenced(1, b"b", epoch=1)],
            "wraps": [sequenced(2**31 - 2, b"a", b"b"), sequenced(0, b"c")],
            "wraps inside": [sequenced(2**31 - 1, b"a", b"b"), sequenced(1, b"c")],
        }
        for name, batches in plans.items():
            steps: list[Step] = [*topic("$t"), producer()]
            for number, one in enumerate(batches):
                steps.append(Ask(f"{number}", PRODUCE, produced(one), [version]))
            yield Script(f"idempotent {name} v{version}", [*steps, stored()])


def _wrong_requests() -> Iterator[Script]:
    good = batch(b"a")
    part = {"index": 0, "records": good}
    both = [part, {"index": 1, "records": good}]

    def many(*topics: Body) -> Body:
        return {"acks": -1, "timeout_ms": 10_000, "topic_data": topics}

    mine = {"name": "$t", "topic_id": "$t.id"}
    yield Script(
        "produce requests",
        [
            *topic("$t", 2),
            Ask("acks 2", PRODUCE, produced(good, acks=2)),
            Ask("acks -2", PRODUCE, produced(good, acks=-2)),
            Ask("unknown partition", PRODUCE, produced(good, partition=9)),
            Ask("negative partition", PRODUCE, produced(good, partition=-1)),
            Ask("no topics", PRODUCE, many()),
            Ask("no partitions", PRODUCE, many({**mine, "partition_data": []})),
            Ask("two partitions", PRODUCE, many({**mine, "partition_data": both})),
            Ask("one fails", PRODUCE, many({**mine, "partition_data": [part, {"index": 7}]})),
            Ask("timeout 0", PRODUCE, {**produced(good), "timeout_ms": 0}),
            Ask(
                "unknown partition, no acks",
                PRODUCE,
                produced(good, partition=9, acks=0),
                silent=True,
            ),
            Ask("transactional id alone", PRODUCE, produced(good, transactional_id="$x")),
        ],
    )
    yield Script(
        "produce to names",
        [
            Ask(name or "empty", PRODUCE, produced(good, name=name), [3, 8, 12])
            for name in ("$unknown", "", ".", "a b", "x" * 250, "__cluster_metadata")
        ],
    )
