"""Dependency graphs of transactions, and the cycles in them.

A vertex is an operation (the index of its completion), an edge says that one comes before another
and why: `ww` overwrote or followed its write, `wr` read it, `rw` wrote over what it read, `process`
the same client did it before, `realtime` it ended before the other began.
Sources: Adya, "Weak Consistency"; Kingsbury and Alvaro, "Elle"; Tarjan for components.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from jepsen.history import Operation

DATA = ("ww", "wr", "rw")


class Edge(NamedTuple):
    """One comes before another."""

    source: int
    target: int
    kind: str
    why: tuple[Any, ...] = ()
    """(key, value) or (key, value, next value) that shows it."""


@dataclass
class Graph:
    """Edges by their source; of several of a kind between two vertices the first is kept."""

    edges: dict[int, dict[int, dict[str, Edge]]] = field(default_factory=dict)

    def add(self, edge: Edge) -> None:
        """Add an edge; one from a vertex to itself is ignored."""
        if edge.source != edge.target:
            targets = self.edges.setdefault(edge.source, {})
            targets.setdefault(edge.target, {}).setdefault(edge.kind, edge)

    def targets(self, vertex: int, kinds: Collection[str]) -> Iterator[int]:
        """Return the vertices to which edges of these kinds lead."""
        for target, by_kind in self.edges.get(vertex, {}).items():
            if any(kind in kinds for kind in by_kind):
                yield target

    def edge(self, source: int, target: int, kinds: Sequence[str]) -> Edge:
        """Return the first edge between two vertices, by the order of the kinds."""
        by_kind = self.edges[source][target]
        return next(by_kind[kind] for kind in kinds if kind in by_kind)

    def components(self, kinds: Collection[str]) -> list[set[int]]:
        """Return the sets of two or more vertices that all reach each other by edges of these
        kinds.
        """
        return components(list(self.edges), lambda vertex: self.targets(vertex, kinds))


def components(vertices: Iterable[int], targets: Callable[[int], Iterator[int]]) -> list[set[int]]:
    """Return the sets of two or more vertices that all reach each other, and single ones that reach
    themselves in one step.
    """
    return list(_Tarjan(targets).run(vertices))


class _Tarjan:
    """Strongly connected components, without recursion."""

    def __init__(self, targets: Callable[[int], Iterator[int]]) -> None:
        self._targets = targets
        self._number: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._on_stack: set[int] = set()
        self._loops: set[int] = set()

    def run(self, vertices: Iterable[int]) -> Iterator[set[int]]:
        """The components."""
        for vertex in vertices:
            if vertex not in self._number:
                yield from self._visit(vertex)

    def _visit(self, root: int) -> Iterator[set[int]]:
        work = [(root, self._enter(root))]
        while work:
            vertex, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[vertex])
                if self._low[vertex] == self._number[vertex]:
                    component = self._leave(vertex)
                    if len(component) > 1 or vertex in self._loops:
                        yield component
            elif target not in self._number:
                work.append((target, self._enter(target)))
            elif target in self._on_stack:
                self._low[vertex] = min(self._low[vertex], self._number[target])
                if target == vertex:
                    self._loops.add(vertex)

    def _enter(self, vertex: int) -> Iterator[int]:
        self._number[vertex] = self._low[vertex] = len(self._number)
        self._stack.append(vertex)
        self._on_stack.add(vertex)
        return self._targets(vertex)

    def _leave(self, vertex: int) -> set[int]:
        component = set()
        while vertex not in component:
            component.add(self._stack.pop())
        self._on_stack -= component
        return component


def order_edges(
    mine: Sequence[Operation], vertices: Mapping[int, int], orders: Collection[str]
) -> Iterator[Edge]:
    """Return the edges of kind `process` and `realtime` between operations, of those orders.

    `vertices`: index of the invocation to the vertex, of those that are in the graph. Edges that
    follow from others are left out. What ends with unknown outcome may take effect later, so
    nothing comes after it.
    """
    if "process" in orders:
        yield from _process_edges(mine, vertices)
    if "realtime" in orders:
        yield from _realtime_edges(mine, vertices)


def _process_edges(mine: Sequence[Operation], vertices: Mapping[int, int]) -> Iterator[Edge]:
    last: dict[int | str, int] = {}
    for operation in mine:
        vertex = vertices.get(operation.invoke.index)
        if vertex is None:
            continue
        process = operation.invoke.process
        if process in last:
            yield Edge(last[process], vertex, "process")
        if operation.type is OpType.OK:
            last[process] = vertex


def _realtime_edges(mine: Sequence[Operation], vertices: Mapping[int, int]) -> Iterator[Edge]:
    moments: list[tuple[int, bool, Operation]] = []
    for operation in mine:
        if operation.invoke.index not in vertices:
            continue
        moments.append((operation.invoke.index, False, operation))
        if operation.completion is not None and operation.type is OpType.OK:
            moments.append((operation.completion.index, True, operation))
    moments.sort(key=lambda moment: moment[0])
    frontier: dict[int, None] = {}
    before: dict[int, tuple[int, ...]] = {}
    for _, ends, operation in moments:
        vertex = vertices[operation.invoke.index]
        if not ends:
            before[vertex] = tuple(frontier)
            for source in frontier:
                yield Edge(source, vertex, "realtime")
            continue
        for source in before.pop(vertex):
            frontier.pop(source, None)
        frontier[vertex] = None
