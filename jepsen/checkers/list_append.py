"""Transactions of appends to lists and reads of whole lists: which isolation do they show?

An operation `txn` has micro-operations `["append", key, value]` and `["r", key, list]` (nil when
invoked). Every value is appended to a key once. The longest list read of a key is the order of its
versions, which makes dependencies of transactions inferable.
Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.graph import Edge, Graph, find_cycles, order_edges
from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.edn import hashable
from jepsen.history import Op, Operation, OpType, operations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

READ_COMMITTED = frozenset({"G1a", "G1b", "G1c", "internal", "duplicate-elements", "unexpected"})
"""What fails a test of a system that promises no more, besides lists that contradict each other."""
_ALWAYS = frozenset({"incompatible-order"})
_KAFKA = frozenset({"G1a", "G1b", "internal", "duplicate-elements", "unexpected", *_ALWAYS})
NO_READS = "no transaction that read anything has succeeded"
MICROS = ("append", "r")
CONSISTENCY = (
    "kafka",
    "read-committed",
    "serializable",
    "strong-session-serializable",
    "strict-serializable",
)


@dataclass
class _Txn:
    """A transaction that may have taken effect."""

    vertex: int
    operation: Operation
    reads: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    """(key, list) of what it saw of others."""
    appends: dict[Any, list[Any]] = field(default_factory=dict)
    """Key to the values, in its order."""
    forgotten: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    """(key, list) of the reads that do not end with what it had appended itself."""


def check_list_append(history: Sequence[Op], consistency: str = "strict-serializable") -> Verdict:
    """The verdict for what a system promises: one of CONSISTENCY. Raises HistoryError.

    `kafka`: what is read was committed before; writes of transactions may interleave, so only
    cycles of reads (and of what one process or real time orders) are anomalies. A transaction is
    read as a whole unless another one may lie within it (`_may_lie_within`).
    """
    mine = [one for one in operations(history) if one.invoke.f == "txn"]
    inferred = infer(mine)
    graph = Graph()
    for edge in (*inferred.edges, *order_edges(mine, inferred.vertices)):
        graph.add(edge)
    found = inferred.anomalies
    cycles = find_cycles(graph, with_rw=True)
    if consistency == "kafka":
        failing = [
            one
            for one in found
            if one.name in _KAFKA and not (one.name == "G1b" and _may_lie_within(one, mine))
        ]
        failing += find_cycles(graph.without("ww"), with_rw=False)
    else:
        failing = [one for one in [*found, *cycles] if _fails(one.name, consistency)]
    notes = [one for one in [*found, *cycles] if one not in failing]
    unknown = "" if inferred.reads else NO_READS
    return judge(failing, notes=notes, why_unknown=unknown, transactions=len(mine))


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
        and any(f == "append" and hashable(at) == key for f, at, *_ in _micros(one))
        for one in mine
    )


class Inferred(NamedTuple):
    """What transactions show by what they read and appended."""

    anomalies: list[Anomaly]
    """All but cycles."""
    edges: list[Edge]
    """That the data shows; those of orders are for others."""
    vertices: dict[int, int]
    """Index of the invocation to the vertex."""
    reads: int


def infer(mine: Sequence[Operation]) -> Inferred:
    """Keys have nothing to do with each other: of the parts of transactions that are on one key it
    shows what is on that key. Raises what values of another form raise.
    """
    txns = [_txn(one) for one in mine if one.type is not OpType.FAIL]
    failed = [_txn(one) for one in mine if one.type is OpType.FAIL]
    reads = [
        (txn, key, seen)
        for txn in txns
        if txn.operation.type is OpType.OK
        for key, seen in txn.reads
    ]
    found = [anomaly for txn in txns for anomaly in _internal(txn)]
    found += _dirty_reads(txns, failed, reads)
    orders, wrong = _version_orders(reads)
    writers = _writers(txns)
    edges = list(_edges(writers, reads, orders))
    return Inferred([*found, *wrong], edges, _vertices(txns, writers, orders), len(reads))


def _fails(name: str, consistency: str) -> bool:
    base = name.removesuffix("-process").removesuffix("-realtime")
    if name in _ALWAYS or name in READ_COMMITTED or name == "G0":
        return True
    match consistency:
        case "read-committed":
            return False
        case "serializable":
            return base == name
        case "strong-session-serializable":
            return not name.endswith("-realtime")
    return True


def _vertex(operation: Operation) -> int:
    return (operation.completion or operation.invoke).index


def _micros(operation: Operation) -> list[Any]:
    """What it did, or was to do where nobody knows."""
    completion = operation.completion
    done = completion is not None and completion.type is OpType.OK
    micro = (completion if completion is not None and done else operation.invoke).value
    return [one for one in micro if one[0] in MICROS]


def _txn(operation: Operation) -> _Txn:
    """Reads of a transaction are told without what it has appended before them itself."""
    txn = _Txn(_vertex(operation), operation)
    for f, raw_key, value in _micros(operation):
        key = hashable(raw_key)
        if f == "append":
            txn.appends.setdefault(key, []).append(hashable(value))
        elif value is not None:
            seen = tuple(hashable(one) for one in value)
            own = txn.appends.get(key, [])
            if own and list(seen[-len(own) :]) != own:
                txn.forgotten.append((key, seen))
            elif own:
                seen = seen[: -len(own)]
            txn.reads.append((key, seen))
    return txn


def _internal(txn: _Txn) -> Iterator[Anomaly]:
    """A transaction must see its own appends, and the same list of others' at each read."""
    if txn.operation.type is not OpType.OK:
        return
    for key, seen in txn.forgotten:
        detail = {"key": key, "found": seen, "own": txn.appends[key]}
        yield Anomaly("internal", detail, (txn.vertex,))
    before: dict[Any, tuple[Any, ...]] = {}
    for key, seen in txn.reads:
        if key in before and before[key] != seen:
            detail = {"key": key, "expected": before[key], "found": seen}
            yield Anomaly("internal", detail, (txn.vertex,))
        before.setdefault(key, seen)


_Reads = list[tuple[_Txn, Any, tuple[Any, ...]]]


def _dirty_reads(txns: list[_Txn], failed: list[_Txn], reads: _Reads) -> Iterator[Anomaly]:
    """G1a: what failed is read. G1b: what is read was not yet the last word of its writer."""
    aborted = {(key, v): t for t in failed for key, vs in t.appends.items() for v in vs}
    writers = _writers(txns)
    for reader, key, seen in reads:
        for value in seen:
            if (key, value) in aborted and (key, value) not in writers:
                ops = (aborted[key, value].vertex, reader.vertex)
                yield Anomaly("G1a", {"key": key, "value": value}, ops)
            elif (key, value) not in writers:
                yield Anomaly("unexpected", {"key": key, "value": value}, (reader.vertex,))
        writer = writers.get((key, seen[-1])) if seen else None
        if writer is not None and writer is not reader and writer.appends[key][-1] != seen[-1]:
            detail = {"key": key, "value": seen[-1]}
            yield Anomaly("G1b", detail, (writer.vertex, reader.vertex))


def _writers(txns: Iterable[_Txn]) -> _Writers:
    return {(key, v): txn for txn in txns for key, vs in txn.appends.items() for v in vs}


def _version_orders(reads: _Reads) -> tuple[dict[Any, tuple[Any, ...]], list[Anomaly]]:
    """The longest list of each key, and what contradicts it."""
    longest: dict[Any, tuple[_Txn, tuple[Any, ...]]] = {}
    wrong = []
    for txn, key, seen in reads:
        if len(seen) > len(longest.get(key, (txn, ()))[1]):
            longest[key] = (txn, seen)
    for txn, key, seen in reads:
        if len(set(seen)) < len(seen):
            detail = {
                "key": key,
                "values": sorted({v for v in seen if seen.count(v) > 1}, key=repr),
            }
            wrong.append(Anomaly("duplicate-elements", detail, (txn.vertex,)))
        other, order = longest.get(key, (txn, ()))
        if order[: len(seen)] != seen:
            detail = {"key": key, "values": [list(seen), list(order)]}
            wrong.append(Anomaly("incompatible-order", detail, (txn.vertex, other.vertex)))
    return {key: tuple(dict.fromkeys(seen)) for key, (_, seen) in longest.items()}, wrong


_Orders = dict[Any, tuple[Any, ...]]
_Writers = dict[tuple[Any, Any], _Txn]


def _vertices(txns: list[_Txn], writers: _Writers, orders: _Orders) -> dict[int, int]:
    """What nobody knows to have happened is a vertex only if somebody saw it."""
    seen = {
        writers[key, value].vertex
        for key, order in orders.items()
        for value in order
        if (key, value) in writers
    }
    return {
        txn.operation.invoke.index: txn.vertex
        for txn in txns
        if txn.operation.type is OpType.OK or txn.vertex in seen
    }


def _edges(writers: _Writers, reads: _Reads, orders: _Orders) -> Iterator[Edge]:
    for key, order in orders.items():
        for before, after in pairwise(order):
            one, other = writers.get((key, before)), writers.get((key, after))
            if one and other:
                yield Edge(one.vertex, other.vertex, "ww", (key, before, after))
    for reader, key, seen in reads:
        order = orders.get(key, ())
        if order[: len(seen)] != seen:
            continue
        writer = writers.get((key, seen[-1])) if seen else None
        if writer:
            yield Edge(writer.vertex, reader.vertex, "wr", (key, seen[-1]))
        overwriter = writers.get((key, order[len(seen)])) if len(seen) < len(order) else None
        if overwriter:
            yield Edge(reader.vertex, overwriter.vertex, "rw", (key, order[len(seen)]))
