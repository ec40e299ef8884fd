"""Transactions of appends to lists and reads of whole lists: which isolation do they show?

An operation `txn` has micro-operations `["append", key, value]` and `["r", key, list]` (nil when
invoked; the empty list where the transaction is known to have succeeded). Every value is appended
to a key once. The longest list read of a key is the order of its versions, which makes dependencies
of transactions inferable; what was appended and is not in it came after all of it.
Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.transactions._cycles import find_cycles
from jepsen.checkers.transactions._graph import DATA, Edge, Graph, order_edges
from jepsen.checkers.transactions.consistency import (
    CONSISTENCY,
    KAFKA,
    PROCESS,
    REALTIME,
    forbidden,
    orders,
)
from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import TXN, Op, Operation, OpType, operations
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

NO_READS = "no transaction that read anything has succeeded"
NO_EDGES = "the transactions have nothing to do with each other: the graph of them is empty"
NO_ORDER = "two lists of one key are equally long and contradict each other: its order is not known"
MICROS = ("append", "r")
STRICTEST = CONSISTENCY[-1]
_ABORT = "abort"
"""A micro-operation that asks for the end of the transaction; it says nothing of lists."""


@dataclass
class _Txn:
    """A transaction, or what it did to one key."""

    vertex: int
    operation: Operation
    does: list[tuple[str, Any, Any]] = field(default_factory=list)
    """(`append`, key, value) and (`r`, key, list or nil), without the reads of which nothing is
    known."""

    @property
    def ok(self) -> bool:
        """Whether it is known to have taken effect."""
        return self.operation.type is OpType.OK

    @property
    def failed(self) -> bool:
        """Whether it is known to have had none."""
        return self.operation.type is OpType.FAIL

    def appends(self) -> Iterator[tuple[Any, Any]]:
        """(key, value) in its order."""
        return ((key, value) for f, key, value in self.does if f == "append")

    def reads(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """(key, list) in its order."""
        return ((key, seen or ()) for f, key, seen in self.does if f == "r")


def check_list_append(history: Sequence[Op], consistency: str = STRICTEST) -> Verdict:
    """Return the verdict for what a system promises: one of `CONSISTENCY`. Raises HistoryError.

    `kafka`: what is read was committed before; writes of transactions may interleave, so only
    cycles of reads (and of what one process or real time orders) are anomalies. A transaction is
    read as a whole unless another one may lie within it (`_may_lie_within`).
    """
    mine = [one for one in operations(history) if one.invoke.f == TXN]
    inferred = infer(mine, disorder_allowed=not forbids_disorder(consistency))
    if inferred.unusable:
        return judge((), why_unknown=inferred.unusable, transactions=len(mine))
    graph = _graph(inferred, mine, orders(consistency))
    cycles = find_cycles(
        graph, cycle_kinds(consistency), orders(consistency), forbidden(consistency)
    )
    failing: list[Anomaly] = []
    notes: list[Anomaly] = []
    for one in [*inferred.anomalies, *cycles]:
        (notes if is_allowed(one, mine, consistency) else failing).append(one)
    reported = {one.name for one in (*failing, *notes)}
    notes += [one for one in _other_cycles(inferred, mine) if one.name not in reported]
    unknown = "" if inferred.reads else NO_READS
    if not unknown and consistency != KAFKA and not _is_linked(inferred, mine, consistency):
        unknown = NO_EDGES
    if not unknown and inferred.unordered and not forbids_disorder(consistency):
        unknown = NO_ORDER
    return judge(failing, notes=notes, why_unknown=unknown, transactions=len(mine))


def cycle_kinds(consistency: str) -> tuple[str, ...]:
    """Return those of `DATA` that cycles are made of."""
    return ("wr",) if consistency == KAFKA else DATA


def forbids_disorder(consistency: str) -> bool:
    """Return whether lists that contradict each other are wrong by themselves. Where they are not,
    the order of versions that the one shows may have a cycle which that of the other lacks.
    """
    return "incompatible-order" in forbidden(consistency)


def is_allowed(anomaly: Anomaly, mine: Sequence[Operation], consistency: str) -> bool:
    """Return whether the model does not forbid it. `mine`: all operations of its key, at least."""
    if anomaly.name not in forbidden(consistency):
        return True
    half_read = consistency == KAFKA and anomaly.name == "G1b"
    return half_read and _may_lie_within(anomaly, mine)


def _graph(inferred: Inferred, mine: Sequence[Operation], wanted: Sequence[str]) -> Graph:
    graph = Graph()
    for edge in (*inferred.edges, *order_edges(mine, inferred.vertices, wanted)):
        graph.add(edge)
    return graph


def _is_linked(inferred: Inferred, mine: Sequence[Operation], consistency: str) -> bool:
    """Whether there is an edge at all: Elle's `empty-transaction-graph` is that there is none."""
    ended = ended_of(mine)
    if any(links(edge, ended) for edge in inferred.edges):
        return True
    ok = [one for one in mine if one.type is OpType.OK]
    if REALTIME in orders(consistency):
        begun = [one.invoke.index for one in mine if one.completion]
        return bool(ok) and min(map(_vertex, ok)) < max(begun)
    processes = [one.invoke.process for one in ok]
    return PROCESS in orders(consistency) and len(set(processes)) < len(processes)


def ended_of(mine: Sequence[Operation]) -> frozenset[int]:
    """Return the vertices of transactions that have ended, even with an unknown outcome."""
    return frozenset(one.completion.index for one in mine if one.completion)


def links(edge: Edge, ended: Collection[int]) -> bool:
    """Return whether it shows that a verdict has something to rest on: it leads from one
    transaction that has ended to another. Of others Elle makes no vertices.
    """
    return edge.source != edge.target and edge.source in ended and edge.target in ended


def _other_cycles(inferred: Inferred, mine: Sequence[Operation]) -> list[Anomaly]:
    """Cycles that a stricter model would have none of."""
    every = ("process", "realtime")
    return find_cycles(_graph(inferred, mine, every), DATA, every, forbidden(STRICTEST))


def _may_lie_within(torn: Anomaly, mine: Sequence[Operation]) -> bool:
    """Whether another transaction may have written between two appends of one that is half read.

    Readers of committed records get none behind the first record of an open transaction (the last
    stable offset), so they see the one append now and the other when that transaction has ended.
    Source: KIP-98, which promises readers no whole transactions.
    """
    writer, reader = torn.ops
    key = torn.detail["key"]
    begun = next(one.invoke.index for one in mine if _vertex(one) == writer)
    return any(
        _vertex(one) != writer
        and one.invoke.index < reader
        and (one.type is not OpType.OK or _vertex(one) > begun)
        and any(f == "append" and hashable(at) == key for f, at, *_ in micros_of(one))
        for one in mine
    )


class Inferred(NamedTuple):
    """Edges and anomalies that follow from reads and appends."""

    anomalies: list[Anomaly]
    """All but cycles."""
    edges: list[Edge]
    """The edges of the data; edges of process and real time are added elsewhere."""
    vertices: dict[int, int]
    """Index of the invocation to the vertex, of all that may have taken effect."""
    reads: int
    """The number of reads that are known to have succeeded."""
    unusable: str = ""
    """The reason why nothing can be inferred; empty if it can."""
    unordered: bool = False
    """True if a key has longest lists that show different orders of versions."""


def infer(mine: Sequence[Operation], *, disorder_allowed: bool) -> Inferred:
    """Infer edges and anomalies from reads and appends.

    Keys are independent of each other: parts of transactions on one key show all there is on that
    key. With `disorder_allowed` nothing rests on the order of versions of a key whose longest lists
    contradict each other: a cycle might be there by the one, and not by the other. Errors that
    values of another form raise are passed on.
    """
    every = [_txn(one) for one in mine]
    unusable = _unusable(mine, every)
    txns = [txn for txn in every if not txn.failed]
    vertices = {txn.operation.invoke.index: txn.vertex for txn in txns}
    reads = sum(1 for txn in txns if txn.ok for _ in txn.reads())
    if unusable:
        return Inferred([], [], vertices, reads, unusable)
    longest = _longest(txns)
    found = [anomaly for txn in txns if txn.ok for anomaly in _alone(txn)]
    found += _unclean_reads(every)
    found += _lost_updates(txns)
    found += _disorder(txns, longest)
    found += _dirty_updates(every)
    unordered = _unordered(txns, longest)
    edges = list(_edges(txns, longest, unordered if disorder_allowed else ()))
    return Inferred(found, edges, vertices, reads, unordered=bool(unordered))


def _unusable(mine: Sequence[Operation], txns: Sequence[_Txn]) -> str:
    other = unusable_micros([one for operation in mine for one in micros_of(operation)])
    if other:
        return other
    counts = Counter(append for txn in txns for append in txn.appends())
    twice = [append for append, count in counts.items() if count > 1]
    if twice:
        key, value = min(twice, key=repr)
        return f"{value!r} is appended to {key!r} more than once: what a read saw is ambiguous"
    return ""


def unusable_micros(micros: Iterable[Any]) -> str:
    """Return the reason why nothing can be inferred from such micro-operations; empty if it can."""
    other = {str(one[0]) for one in micros} - {*MICROS, _ABORT}
    return f"transactions of lists append and read (r), but here is {min(other)}" if other else ""


def _vertex(operation: Operation) -> int:
    return (operation.completion or operation.invoke).index


def micros_of(operation: Operation) -> list[Any]:
    """Return what it did, or was to do if that is unknown.

    What has failed or is unknown may show what it read, too. It does so if it shows all that it was
    to append.
    """
    asked, completion = operation.invoke.value, operation.completion
    if completion is None:
        return list(asked)
    result = completion.value
    if completion.type is OpType.OK:
        return list(result)
    is_whole = isinstance(result, list | tuple) and all(
        one in result for one in asked if one[0] == "append"
    )
    return list(result if is_whole else asked)


def _txn(operation: Operation) -> _Txn:
    txn = _Txn(_vertex(operation), operation)
    for f, *rest in micros_of(operation):
        if f == "append":
            key, value = rest
            txn.does.append((f, hashable(key), hashable(value)))
        elif f == "r":
            key, *seen = rest
            value = seen[0] if seen else None
            if value is not None or txn.ok:
                seen_list = None if value is None else tuple(map(hashable, value))
                txn.does.append((f, hashable(key), seen_list))
    return txn


# --- what a transaction shows by itself -----------------------------------------------------------


def _alone(txn: _Txn) -> Iterator[Anomaly]:
    """`internal`: it does not see what it has read or appended itself. `future-read`: it sees what
    it appends later. One of each for a key at most. Nil is not the empty list to who read the other
    just before: as in Elle, what is read twice is the same."""
    reported: set[Any] = set()
    known: dict[Any, tuple[bool, tuple[Any, ...] | None]] = {}
    for f, key, value in txn.does:
        whole, expected = known.get(key, (False, ()))
        if f == "append":
            known[key] = (whole, (*(expected or ()), value))
            continue
        wrong = value != expected if whole else not _ends_with(value or (), expected or ())
        if wrong and key not in reported:
            reported.add(key)
            detail = {"key": key, "expected": expected, "found": value, "whole": whole}
            yield Anomaly("internal", detail, (txn.vertex,))
        known[key] = (True, value)
    yield from _future_reads(txn)


def _ends_with(seen: tuple[Any, ...], tail: tuple[Any, ...]) -> bool:
    return len(tail) <= len(seen) and seen[len(seen) - len(tail) :] == tail


def _future_reads(txn: _Txn) -> Iterator[Anomaly]:
    seen: dict[Any, set[Any]] = {}
    reported: set[Any] = set()
    for f, key, value in txn.does:
        if f == "r":
            seen.setdefault(key, set()).update(value or ())
        elif value in seen.get(key, ()) and key not in reported:
            reported.add(key)
            yield Anomaly("future-read", {"key": key, "value": value}, (txn.vertex,))


# --- what reads show of who appended --------------------------------------------------------------


def _unclean_reads(every: Sequence[_Txn]) -> Iterator[Anomaly]:
    """`G1a`: what failed is read. `G1b`: what is read was not yet the last word of its writer.
    `garbage-read`: nobody has appended it."""
    writers = {append: txn for txn in every for append in txn.appends()}
    last = {(txn.vertex, key): value for txn in every for key, value in txn.appends()}
    for reader in every:
        for key, seen in reader.reads() if reader.ok else ():
            for value in seen:
                writer = writers.get((key, value))
                detail = {"key": key, "value": value}
                if writer is None:
                    yield Anomaly("garbage-read", detail, (reader.vertex,))
                elif writer.failed:
                    yield Anomaly("G1a", detail, (writer.vertex, reader.vertex))
            end = writers.get((key, seen[-1])) if seen else None
            if end and end is not reader and last[end.vertex, key] != seen[-1]:
                detail = {"key": key, "value": seen[-1]}
                yield Anomaly("G1b", detail, (end.vertex, reader.vertex))


def _lost_updates(txns: Sequence[_Txn]) -> Iterator[Anomaly]:
    """Several transactions that have succeeded read the same list, and each appended to it."""
    by_read: dict[tuple[Any, tuple[Any, ...]], list[int]] = {}
    for txn in txns:
        if not txn.ok:
            continue
        first: dict[Any, tuple[Any, ...]] = {}
        written: set[Any] = set()
        for f, key, value in txn.does:
            if f == "r":
                first.setdefault(key, value or ())
            elif key in first and key not in written:
                written.add(key)
                by_read.setdefault((key, first[key]), []).append(txn.vertex)
    for (key, seen), vertices in by_read.items():
        if len(vertices) > 1:
            detail = {"key": key, "value": seen}
            yield Anomaly("lost-update", detail, tuple(sorted(vertices)))


# --- what reads show of the order of versions -----------------------------------------------------

_Longest = dict[Any, tuple[int, tuple[Any, ...]]]
"""Key to (who read it, the longest list)."""


def _longest(txns: Iterable[_Txn]) -> _Longest:
    longest: _Longest = {}
    for txn in txns:
        for key, seen in txn.reads():
            if len(seen) > len(longest.get(key, (0, ()))[1]):
                longest[key] = (txn.vertex, seen)
    return longest


def _versions(longest: _Longest) -> dict[Any, tuple[Any, ...]]:
    return {key: tuple(dict.fromkeys(seen)) for key, (_, seen) in longest.items()}


def _unordered(txns: Iterable[_Txn], longest: _Longest) -> frozenset[Any]:
    """The keys of which several lists are longest: any of them may be the order of versions."""
    orders: dict[Any, set[tuple[Any, ...]]] = {}
    for txn in txns:
        for key, seen in txn.reads():
            if key in longest and len(seen) == len(longest[key][1]):
                orders.setdefault(key, set()).add(tuple(dict.fromkeys(seen)))
    return frozenset(key for key, several in orders.items() if len(several) > 1)


def _disorder(txns: Sequence[_Txn], longest: _Longest) -> Iterator[Anomaly]:
    """`duplicate-elements` of a list, and `incompatible-order`: lists that contradict each other.

    Each list of a key that is not as the longest begins is reported once.
    """
    reported = set()
    for txn in txns:
        for key, seen in txn.reads():
            if len(set(seen)) < len(seen):
                twice = sorted({v for v in seen if seen.count(v) > 1}, key=repr)
                detail = {"key": key, "values": twice}
                yield Anomaly("duplicate-elements", detail, (txn.vertex,))
            other, order = longest.get(key, (txn.vertex, ()))
            if order[: len(seen)] != seen and (key, seen) not in reported:
                reported.add((key, seen))
                detail = {"key": key, "values": [list(seen), list(order)]}
                yield Anomaly("incompatible-order", detail, (txn.vertex, other))


def _dirty_updates(every: Sequence[_Txn]) -> Iterator[Anomaly]:
    """What failed lies below what has succeeded; transactions of unknown outcome may be between."""
    writers = {append: txn for txn in every for append in txn.appends()}
    for key, order in _versions(_longest(every)).items():
        failed: _Txn | None = None
        values: list[Any] = []
        for value in order:
            writer = writers.get((key, value))
            values.append(value)
            if writer is None:
                continue
            if writer.failed and failed is None:
                failed, values = writer, [value]
            elif writer.ok:
                if failed is not None:
                    detail = {"key": key, "values": values}
                    yield Anomaly("dirty-update", detail, (failed.vertex, writer.vertex))
                failed = None


def _edges(txns: Sequence[_Txn], longest: _Longest, unordered: Collection[Any]) -> Iterator[Edge]:
    """`ww`, `wr` and `rw`. What nobody read comes after the last version that somebody read. Of an
    `unordered` key it is only known who read from whom."""
    writers = {append: txn for txn in txns for append in txn.appends()}
    readers: dict[tuple[Any, Any], dict[int, None]] = {}
    for txn in txns:
        for key, seen in txn.reads():
            readers.setdefault((key, seen[-1:]), {})[txn.vertex] = None
            yield from _wr_edges(txn, key, seen, writers)
    versions = _versions(longest)
    before = {
        (key, value): (earlier,)
        for key, order in versions.items()
        for earlier, value in pairwise(order)
    }
    before |= {(key, order[0]): () for key, order in versions.items() if order}
    for txn in txns:
        for key, value in txn.appends():
            if key in unordered:
                continue
            earlier = before.get((key, value), versions.get(key, ())[-1:])
            writer = writers.get((key, *earlier)) if earlier else None
            if writer:
                yield Edge(writer.vertex, txn.vertex, "ww", (key, *earlier, value))
            for reader in readers.get((key, earlier), ()):
                yield Edge(reader, txn.vertex, "rw", (key, value))


def _wr_edges(
    txn: _Txn, key: Any, seen: tuple[Any, ...], writers: dict[tuple[Any, Any], _Txn]
) -> Iterator[Edge]:
    """It read what the last writer but itself has appended."""
    for value in reversed(seen):
        writer = writers.get((key, value))
        if writer is not txn:
            if writer:
                yield Edge(writer.vertex, txn.vertex, "wr", (key, value))
            return
