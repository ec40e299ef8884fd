"""Anomalies of logs, one function each, and of the offsets that consumer groups commit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jepsen.checkers.kafka.log import ASSIGNING, Call, Logs, Record
from jepsen.checkers.verdict import Anomaly
from jepsen.history import OpType
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


def duplicates(logs: Logs) -> Iterator[Anomaly]:
    """`duplicate`: one value at more than one offset."""
    for key, order in logs.orders.items():
        places: defaultdict[Any, list[int]] = defaultdict(list)
        for offset, values in zip(order.offsets, order.values, strict=True):
            for value in values:
                places[value].append(offset)
        for value, offsets in places.items():
            if len(offsets) > 1:
                detail = {"key": key, "value": value, "count": len(offsets), "offsets": offsets}
                writer = logs.writers.get((key, value))
                yield Anomaly("duplicate", detail, () if writer is None else (writer.index,))


def inconsistent_offsets(logs: Logs) -> Iterator[Anomaly]:
    """`inconsistent-offsets`: several values at one offset."""
    for key, order in logs.orders.items():
        for index, values in enumerate(order.values):
            if len(values) > 1:
                found = sorted(values, key=lambda value: (str(type(value)), value))
                detail = {"key": key, "offset": order.offsets[index], "index": index}
                writers = [logs.writers.get((key, value)) for value in found]
                ops = tuple(writer.index for writer in writers if writer is not None)
                yield Anomaly("inconsistent-offsets", {**detail, "values": found}, ops)


def spurious_zero_offsets(logs: Logs) -> Iterator[Anomaly]:
    """`spurious-zero-offset`: a send got offset 0, its value is polled elsewhere."""
    polled: defaultdict[tuple[Any, Any], set[int | None]] = defaultdict(set)
    for call in logs.calls:
        for record in call.polls:
            polled[record.key, record.value].add(record.offset)
    for call in logs.calls:
        for record in call.sends if call.ok else ():
            offsets = polled.get((record.key, record.value), {0})
            if record.offset == 0 and 0 not in offsets:
                detail = {"key": record.key, "value": record.value}
                yield Anomaly("spurious-zero-offset", detail, (call.index,))


def aborted_reads(logs: Logs) -> Iterator[Anomaly]:
    """`G1a`: a poll returns what a failed operation sent."""
    for call in logs.calls:
        for record in call.polls if call.ok else ():
            writer = logs.writers.get((record.key, record.value))
            if writer is not None and writer.type is OpType.FAIL:
                detail = {"key": record.key, "value": record.value}
                names = {"writer": writer.index, "reader": call.index}
                yield Anomaly("G1a", {**detail, **names}, (writer.index, call.index))


def unexpected(logs: Logs) -> Iterator[Anomaly]:
    """`unexpected`: a poll returns what nobody has sent."""
    if not logs.writers:
        return  # a history of consumers alone
    for call in logs.calls:
        for record in call.polls:
            if (record.key, record.value) not in logs.writers:
                detail = {"key": record.key, "value": record.value, "offset": record.offset}
                yield Anomaly("unexpected", detail, (call.index,))


def precommitted_reads(logs: Logs) -> Iterator[Anomaly]:
    """`precommitted-read`: a transaction polls what it sent itself."""
    for call in logs.calls:
        sent = {(record.key, record.value) for record in call.sends}
        for record in call.polls if call.ok else ():
            if (record.key, record.value) in sent:
                detail = {"key": record.key, "value": record.value}
                yield Anomaly("precommitted-read", detail, (call.index,))


def lost_writes(logs: Logs) -> Iterator[Anomaly]:
    """`lost-write`: certainly written, polls have got further, and none has returned it."""
    newest: dict[Any, tuple[int, Call]] = {}
    for call in logs.calls:
        for key, placed in logs.placed(call.polls if call.ok else ()).items():
            furthest = max(index for index, _ in placed)
            if furthest > newest.get(key, (-1, call))[0]:
                newest[key] = (furthest, call)
    for call in logs.calls:
        if not logs.committed(call):
            continue
        for record in call.sends:
            index = logs.index(record)
            if index is None or record.key not in newest or record.value in logs.seen[record.key]:
                continue
            furthest, reader = newest[record.key]
            if index <= furthest:
                detail = {"key": record.key, "value": record.value, "index": index}
                names = {"max-read-index": furthest, "writer": call.index, "max-read": reader.index}
                yield Anomaly("lost-write", {**detail, **names}, (call.index, reader.index))


def torn_transactions(logs: Logs) -> Iterator[Anomaly]:
    """`torn-transaction`: a part of it was polled; another was not, though what came later was."""
    last_sent: dict[Any, int] = {}
    """Key to the latest invocation of a send whose value was polled."""
    first_seen: dict[tuple[Any, Any], int] = {}
    for call in logs.calls:
        for record in call.polls if call.ok else ():
            first_seen.setdefault((record.key, record.value), call.index)
            writer = logs.writers.get((record.key, record.value))
            if writer is not None:
                sent = writer.operation.invoke.index
                last_sent[record.key] = max(sent, last_sent.get(record.key, -1))
    for call in logs.calls:
        if call.operation.invoke.f != "txn" or call.type is OpType.FAIL:
            continue
        seen = [first_seen[key] for key in map(_identity, call.sends) if key in first_seen]
        for record in call.sends if seen else ():
            later = last_sent.get(record.key, -1) > min(seen)
            if _identity(record) not in first_seen and later:
                detail = {"key": record.key, "value": record.value}
                yield Anomaly("torn-transaction", detail, (call.index, min(seen)))


def _identity(record: Record) -> tuple[Any, Any]:
    return record.key, record.value


def unseen(logs: Logs) -> Iterator[Anomaly]:
    """`unseen`: acknowledged, and at the end of the test no poll has returned it."""
    missing: defaultdict[Any, list[Any]] = defaultdict(list)
    ops: defaultdict[Any, list[int]] = defaultdict(list)
    for call in logs.calls:
        for record in call.sends if call.ok else ():
            if record.value not in logs.seen.get(record.key, ()):
                missing[record.key].append(record.value)
                ops[record.key].append(call.index)
    for key, messages in missing.items():
        detail = {"key": key, "count": len(messages), "messages": messages}
        yield Anomaly("unseen", detail, tuple(ops[key]))


# --- inside one operation -------------------------------------------------------------------------


def _steps(logs: Logs, records: list[Record]) -> Iterator[tuple[Record, Record, int]]:
    """(one, the next of the same key, by how many places it is further)."""
    for placed in logs.placed(records).values():
        for (before, one), (after, other) in pairwise(placed):
            yield one, other, after - before


def internal_polls(logs: Logs) -> Iterator[Anomaly]:
    """`int-poll-skip`, `int-nonmonotonic-poll`: polls within one operation jump on or go back."""
    for call in logs.calls:
        for one, other, delta in _steps(logs, call.polls):
            if delta == 1:
                continue
            detail: dict[str, Any] = {"key": one.key, "values": [one.value, other.value]}
            detail |= {"delta": delta, "op": call.index}
            if delta > 1:
                skipped = _skipped(logs, one, delta)
                yield Anomaly("int-poll-skip", {**detail, "skipped": skipped}, (call.index,))
            else:
                yield Anomaly("int-nonmonotonic-poll", detail, (call.index,))


def _skipped(logs: Logs, one: Record, delta: int) -> list[Any]:
    index = logs.index(one)
    return [] if index is None else logs.between(one.key, index, index + delta)


def internal_sends(logs: Logs) -> Iterator[Anomaly]:
    """`int-nonmonotonic-send`, and the harmless `int-send-skip`, of sends within one operation."""
    for call in logs.calls:
        for one, other, delta in _steps(logs, call.sends):
            if delta != 1:
                detail = {"key": one.key, "values": [one.value, other.value], "delta": delta}
                name = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
                yield Anomaly(name, {**detail, "op": call.index}, (call.index,))


# --- from one operation of a process to its next --------------------------------------------------


@dataclass
class _Positions:
    """Where a process stands in each key: the place, the record and the operation."""

    last: dict[Any, tuple[int, Record, Call]] = field(default_factory=dict)

    def keep(self, keys: Iterable[Any]) -> None:
        """After an assignment it stands nowhere in the other keys."""
        kept = {hashable(key) for key in keys}
        self.last = {key: where for key, where in self.last.items() if key in kept}


_Step = tuple[Call, Call, Record, Record, int]


def _external_steps(
    logs: Logs, of: Callable[[Call], list[Record]], moves: Callable[[Call], bool]
) -> Iterator[_Step]:
    """(earlier operation, operation, last record of that, first of this, places between)."""
    positions: defaultdict[int | str, _Positions] = defaultdict(_Positions)
    for call in logs.calls:
        mine = positions[call.process]
        if call.operation.invoke.f in ASSIGNING:
            if call.type is not OpType.FAIL:
                mine.keep(call.operation.invoke.value or ())
            continue
        if call.operation.invoke.f == "final-poll":
            mine.last = {}
        for key, placed in logs.placed(of(call)).items():
            before = mine.last.get(key)
            first, record = placed[0]
            if before is not None:
                yield before[2], call, before[1], record, first - before[0]
            if moves(call):
                mine.last[key] = (*placed[-1], call)


def _succeeded(call: Call) -> bool:
    return call.ok


def external_polls(logs: Logs) -> Iterator[Anomaly]:
    """`poll-skip`, `nonmonotonic-poll`: a process' next poll does not go on where it stood.

    What did not succeed moves nobody: an aborted transaction takes its consumer back.
    """
    for earlier, call, one, other, delta in _external_steps(logs, lambda c: c.polls, _succeeded):
        if delta == 1:
            continue
        ops = (earlier.index, call.index)
        detail: dict[str, Any] = {"key": one.key, "delta": delta, "ops": list(ops)}
        if delta > 1:
            yield Anomaly("poll-skip", {**detail, "skipped": _skipped(logs, one, delta)}, ops)
        else:
            values = [one.value, other.value]
            yield Anomaly("nonmonotonic-poll", {**detail, "values": values}, ops)


def external_sends(logs: Logs) -> Iterator[Anomaly]:
    """`nonmonotonic-send`: what a process sent later stands earlier in the log."""

    def counts(call: Call) -> bool:
        return call.type is not OpType.FAIL

    for earlier, call, one, other, delta in _external_steps(logs, lambda c: c.sends, counts):
        if delta < 1:
            ops = (earlier.index, call.index)
            detail = {"key": one.key, "values": [one.value, other.value], "delta": delta}
            yield Anomaly("nonmonotonic-send", {**detail, "ops": list(ops)}, ops)


NONE_COMMITTED = -1
COMMIT, COMMITTED = LOOKS = ("commit", "committed")


@dataclass(frozen=True, slots=True)
class _Access:
    """One commit or one look at a key's committed offset."""

    index: int
    begin: int
    end: float
    """Infinite if nobody knows when, or whether, it took effect."""
    offset: int


def offset_regressions(calls: Sequence[Call]) -> Iterator[Anomaly]:
    """`committed-offset-regression`: what is read had been replaced before by a higher offset.

    A commit of a lower offset is allowed: the commit that may have been last is believed.
    """
    commits, reads = _accesses(calls, COMMIT), _accesses(calls, COMMITTED)
    for key, looks in reads.items():
        writes = commits.get(key, [])
        for look in (look for look in looks if look.end < float("inf")):
            best = _stale(look, writes)
            if best is not None:
                detail = {"key": key, "committed": best.offset, "found": look.offset}
                yield Anomaly("committed-offset-regression", detail, (best.index, look.index))


def _stale(look: _Access, writes: Sequence[_Access]) -> _Access | None:
    """The commit that the look should have seen, if no other explains what it saw."""
    above = [w for w in writes if w.end < look.begin and w.offset > look.offset]
    possible = [w for w in writes if w.offset == look.offset and w.begin < look.end]
    for source in possible:
        if not any(source.end < write.begin for write in above):
            return None
    return max(above, key=lambda write: write.offset, default=None)


def _accesses(calls: Sequence[Call], f: str) -> Mapping[Any, list[_Access]]:
    found: defaultdict[Any, list[_Access]] = defaultdict(list)
    for call in calls:
        if call.operation.invoke.f != f or call.type is OpType.FAIL:
            continue
        end = float(call.index) if call.ok else float("inf")
        # What was asked for is only known once it ended, also if nobody knows how.
        last = call.operation.completion or call.operation.invoke
        for key, offset in (last.value or {}).items():
            number = NONE_COMMITTED if offset is None else offset
            begin = call.operation.invoke.index
            found[hashable(key)].append(_Access(call.index, begin, end, number))
    return found
