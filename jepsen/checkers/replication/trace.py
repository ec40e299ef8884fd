"""Traces of servers: checks that their own reports agree with each other.

A trace is a history whose processes are nodes; of each event there is one line, of type `info`.
`key` is the partition (`orders-0`, `__cluster_metadata-0`), and the value of

* `replica`, whenever it changes, {"leads": bool, "epoch", "high_watermark", "log_end"},
* `record`, of what is below the high watermark there, {"offset", "record": its content as text},
* `assignment`, as the node's metadata has it, {"leader": an id or -1, "leader_epoch",
  "partition_epoch", "isr": [id, ...]}.

A value may have `life`, a number: the reports of a node in one may go back behind those in
another (it was started again, or has got a new replica). `leader`, which the harness notes while it
looks on, has no key and is worth [name of the active controller, epoch].
Source: Raft figure 3; KIP-101 and KIP-497.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import HistoryError, OpType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.history import Op

METADATA_LOG = "__cluster_metadata-0"
REPLICA, RECORD, ASSIGNMENT, LEADER = "replica", "record", "assignment", "leader"
FIELDS: Mapping[str, Mapping[str, type]] = {
    REPLICA: {"leads": bool, "epoch": int, "high_watermark": int, "log_end": int},
    RECORD: {"offset": int, "record": str},
    ASSIGNMENT: {"leader": int, "leader_epoch": int, "partition_epoch": int, "isr": list},
}
"""The fields of each event's value; lists are of numbers."""
_LIFE = ("life", int)
EVENTS = (*FIELDS, LEADER)
EPOCH_WENT_BACK, HIGH_WATERMARK_WENT_BACK = "epoch-went-back", "high-watermark-went-back"
BEYOND_LOG, NOT_IN_ISR = "high-watermark-beyond-log", "leader-not-in-isr"
TWO_LEADERS, DIVERGED, INCONSISTENT = "two-leaders", "diverged-record", "inconsistent-assignment"
ANOMALIES = (
    TWO_LEADERS,
    DIVERGED,
    INCONSISTENT,
    EPOCH_WENT_BACK,
    HIGH_WATERMARK_WENT_BACK,
    BEYOND_LOG,
    NOT_IN_ISR,
)
NEVER_BACK = (
    (REPLICA, "epoch", EPOCH_WENT_BACK),
    (REPLICA, "high_watermark", HIGH_WATERMARK_WENT_BACK),
    (ASSIGNMENT, "leader_epoch", EPOCH_WENT_BACK),
    (ASSIGNMENT, "partition_epoch", EPOCH_WENT_BACK),
)
"""(event, field, anomaly): of a partition and a life of a node it never becomes less."""
NO_LEADER = -1
NUMBER_MAX = (1 << 63) - 1
NOTHING = "no server has reported anything"


class Event(NamedTuple):
    """Report of a node."""

    line: int
    node: str
    life: int
    partition: str
    f: str
    value: Mapping[str, Any]


class Claim(NamedTuple):
    """Claim of a fact of which a partition has only one at each place."""

    name: str
    """The name of the anomaly that another claim at the place is."""
    at: int
    """The epoch of `two-leaders`, the offset of `diverged-record`, else the partition epoch."""
    what: str


def check_trace(history: Sequence[Op]) -> Verdict:
    """`two-leaders` in an epoch, `diverged-record` at an offset, `inconsistent-assignment` of a
    partition epoch, `epoch-went-back`, `high-watermark-went-back`, `high-watermark-beyond-log`,
    `leader-not-in-isr`.

    Unknown without an event. Raises HistoryError if one lacks a field.
    """
    events = list(events_of(history))
    impossible = (anomaly for one in events for anomaly in impossible_in(one))
    return judge(
        [*_gone_back(events), *impossible, *_contradictions(events)],
        why_unknown="" if events else NOTHING,
        events=len(events),
        partitions=len({one.partition for one in events}),
    )


def events_of(history: Iterable[Op]) -> Iterator[Event]:
    """Return the reports of nodes in a history. Raises HistoryError if an event lacks a field."""
    for op in history:
        if not op.by_client and op.type is OpType.INFO and op.f in EVENTS:
            yield _event(op)


def _event(op: Op) -> Event:
    value, node = op.value, str(op.process)
    if op.f == LEADER:
        if not isinstance(value, list | tuple) or list(map(type, value)) != [str, int]:
            raise HistoryError(f"line {op.index}: {op.f} needs [name, epoch]")
        fields = {"name": value[0], "epoch": value[1]}
        return Event(op.index, node, 0, METADATA_LOG, op.f, fields)
    whole = isinstance(op.key, str) and isinstance(value, dict)
    fields = {"life": 0, **value} if whole else {}
    if not all(_is(fields.get(name), kind) for name, kind in (*FIELDS[op.f].items(), _LIFE)):
        needed = ", ".join(FIELDS[op.f])
        raise HistoryError(f"line {op.index}: {op.f} needs a partition as key, and {needed}")
    return Event(op.index, node, fields["life"], op.key, op.f, fields)


def _is(value: Any, kind: type) -> bool:
    if kind is list:
        return type(value) is list and all(_is(one, int) for one in value)
    if kind is int:
        return type(value) is int and abs(value) <= NUMBER_MAX
    return type(value) is kind


def _gone_back(events: Sequence[Event]) -> Iterator[Anomaly]:
    before: dict[tuple[Any, ...], Event] = {}
    for one in events:
        who = one.f, one.partition, one.node, one.life
        last = before.get(who, one)
        before[who] = one
        for f, field, name in NEVER_BACK:
            if f == one.f and one.value[field] < last.value[field]:
                detail = {"partition": one.partition, "node": one.node, "of": field}
                detail |= {"value": one.value[field], "after": last.value[field]}
                yield Anomaly(name, detail, (last.line, one.line))


def impossible_in(one: Event) -> Iterator[Anomaly]:
    """Return the anomalies that an event shows by itself."""
    value, where = one.value, {"partition": one.partition, "node": one.node}
    if one.f == REPLICA and value["high_watermark"] > value["log_end"]:
        detail = {name: value[name] for name in ("high_watermark", "log_end")}
        yield Anomaly(BEYOND_LOG, where | detail, (one.line,))
    if one.f == ASSIGNMENT and value["leader"] not in (NO_LEADER, *value["isr"]):
        detail = {name: value[name] for name in ("leader", "isr")}
        yield Anomaly(NOT_IN_ISR, where | detail, (one.line,))


def claim_of(one: Event) -> Claim | None:
    """Return the unique fact that an event asserts (leader of an epoch, record at an offset), or
    None.
    """
    value = one.value
    if one.f == LEADER:
        return Claim(TWO_LEADERS, value["epoch"], value["name"])
    if one.f == RECORD:
        return Claim(DIVERGED, value["offset"], value["record"])
    if one.f == ASSIGNMENT:
        isr = " ".join(map(str, value["isr"]))
        what = f"leader {value['leader']} of epoch {value['leader_epoch']}, in sync {isr}"
        return Claim(INCONSISTENT, value["partition_epoch"], what)
    return Claim(TWO_LEADERS, value["epoch"], one.node) if value["leads"] else None


def _contradictions(events: Sequence[Event]) -> Iterator[Anomaly]:
    """Claims of which only one can be so; by whom each was made, and where first."""
    made: dict[tuple[str, str, int], dict[tuple[str, str], int]] = {}
    for one in events:
        claim = claim_of(one)
        if claim is not None:
            at_place = made.setdefault((claim.name, one.partition, claim.at), {})
            at_place.setdefault((claim.what, one.node), one.line)
    for (name, partition, at), at_place in made.items():
        if len({what for what, _ in at_place}) > 1:
            claims = [{"what": what, "node": node} for what, node in sorted(at_place)]
            detail = {"partition": partition, "at": at, "told": claims}
            yield Anomaly(name, detail, tuple(sorted(at_place.values())))
