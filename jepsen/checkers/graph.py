"""Dependency graphs of transactions, and the cycles in them.

A vertex is an operation (the index of its completion), an edge says that one comes before another
and why: `ww` overwrote or followed its write, `wr` read it, `rw` wrote over what it read, `process`
the same client did it before, `realtime` it ended before the other began.
Sources: Adya, "Weak Consistency"; Kingsbury and Alvaro, "Elle"; Tarjan for components.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import Anomaly
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from jepsen.history import Operation

ORDERS: Mapping[str, tuple[str, ...]] = {
    "": (),
    "-process": ("process",),
    "-realtime": ("realtime", "process"),
}
"""Suffix of an anomaly's name to the order beside the data's own that its cycle may use."""


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
        """Adds an edge; one from a vertex to itself says nothing."""
        if edge.source != edge.target:
            targets = self.edges.setdefault(edge.source, {})
            targets.setdefault(edge.target, {}).setdefault(edge.kind, edge)

    def targets(self, vertex: int, kinds: Collection[str]) -> Iterator[int]:
        """Where edges of these kinds lead."""
        for target, by_kind in self.edges.get(vertex, {}).items():
            if any(kind in kinds for kind in by_kind):
                yield target

    def edge(self, source: int, target: int, kinds: Sequence[str]) -> Edge:
        """The edge between two vertices of the first kind that there is."""
        by_kind = self.edges[source][target]
        return next(by_kind[kind] for kind in kinds if kind in by_kind)

    def without(self, kind: str) -> Graph:
        """The graph with no edge of that kind."""
        rest = Graph()
        for targets in self.edges.values():
            for by_kind in targets.values():
                for edge in by_kind.values():
                    if edge.kind != kind:
                        rest.add(edge)
        return rest

    def components(self, kinds: Collection[str]) -> list[set[int]]:
        """The sets of two or more vertices that all reach each other by edges of these kinds."""
        return list(_Tarjan(self, kinds).run())


class _Tarjan:
    """Strongly connected components, without recursion."""

    def __init__(self, graph: Graph, kinds: Collection[str]) -> None:
        self._graph = graph
        self._kinds = kinds
        self._number: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._on_stack: set[int] = set()

    def run(self) -> Iterator[set[int]]:
        """The components of two vertices or more."""
        for vertex in list(self._graph.edges):
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
                    if len(component) > 1:
                        yield component
            elif target not in self._number:
                work.append((target, self._enter(target)))
            elif target in self._on_stack:
                self._low[vertex] = min(self._low[vertex], self._number[target])

    def _enter(self, vertex: int) -> Iterator[int]:
        self._number[vertex] = self._low[vertex] = len(self._number)
        self._stack.append(vertex)
        self._on_stack.add(vertex)
        return self._graph.targets(vertex, self._kinds)

    def _leave(self, vertex: int) -> set[int]:
        component = set()
        while vertex not in component:
            component.add(self._stack.pop())
        self._on_stack -= component
        return component


def order_edges(mine: Sequence[Operation], vertices: Mapping[int, int]) -> Iterator[Edge]:
    """The edges of kind `process` and `realtime` between operations.

    `vertices`: index of the invocation to the vertex, of those that are in the graph. Edges that
    follow from others are left out.
    """
    last: dict[int | str, int] = {}
    for operation in mine:
        vertex = vertices.get(operation.invoke.index)
        if vertex is None:
            continue
        process = operation.invoke.process
        if process in last:
            yield Edge(last[process], vertex, "process")
        last[process] = vertex
    yield from _realtime_edges(mine, vertices)


def _realtime_edges(mine: Sequence[Operation], vertices: Mapping[int, int]) -> Iterator[Edge]:
    moments: list[tuple[int, bool, Operation]] = []
    for operation in mine:
        if operation.invoke.index not in vertices:
            continue
        moments.append((operation.invoke.index, False, operation))
        # What ends with unknown outcome may take effect later.
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


def find_cycles(graph: Graph, *, with_rw: bool) -> list[Anomaly]:
    """The cycles by their kinds: G0, G1c and, with `rw` edges, G-single and G2-item.

    Each also as `-process` and `-realtime`, where there is none of its kind without that order. Of
    each kind one is told for a component.
    """
    found: list[Anomaly] = []
    for suffix, extra in ORDERS.items():
        told = {anomaly.name for anomaly in found}
        for name, cycle in _cycles(graph, extra, with_rw=with_rw):
            if told.isdisjoint((name, f"{name}-process")):
                found.append(_anomaly(name + suffix, cycle))
    return found


def _cycles(
    graph: Graph, extra: Sequence[str], *, with_rw: bool
) -> Iterator[tuple[str, list[Edge]]]:
    for component in graph.components(("ww", *extra)):
        cycle = _through(graph, component, ("ww",), ("ww", *extra))
        if cycle:
            yield "G0", cycle
    for component in graph.components(("ww", "wr", *extra)):
        cycle = _through(graph, component, ("wr",), ("wr", "ww", *extra))
        if cycle:
            yield "G1c", cycle
    if with_rw:
        for component in graph.components(("ww", "wr", "rw", *extra)):
            yield from _rw_cycles(graph, component, ("wr", "ww", *extra))


def _through(
    graph: Graph, component: set[int], first: Sequence[str], kinds: Sequence[str]
) -> list[Edge]:
    """The shortest cycle that has an edge of the kinds `first`; empty if none has."""
    best: list[Edge] = []
    for source in sorted(component):
        for target in graph.targets(source, first):
            if target not in component:
                continue
            path = _path(graph, component, target, source, kinds)
            if path and (not best or len(path) < len(best)):
                best = _edges(graph, [source, *path], (*first, *kinds))
                if len(best) == 2:
                    return best
    return best


def _rw_cycles(
    graph: Graph, component: set[int], others: Sequence[str]
) -> Iterator[tuple[str, list[Edge]]]:
    """For the edges `rw`, the cycle through it with the fewest of them; one of each kind."""
    told: set[str] = set()
    for source in sorted(component):
        for target in sorted(graph.targets(source, ("rw",))):
            if target not in component or len(told) == 2:
                continue
            single = _path(graph, component, target, source, others)
            name = "G-single" if single else "G2-item"
            if name in told:
                continue
            path = single or _path(graph, component, target, source, (*others, "rw"))
            first = graph.edge(source, target, ("rw",))
            told.add(name)
            yield name, [first, *_edges(graph, path, (*others, "rw"))]


def _path(
    graph: Graph, inside: set[int], source: int, target: int, kinds: Collection[str]
) -> list[int]:
    """The vertices of a shortest path, both ends included; empty if there is none."""
    came_from: dict[int, int] = {source: source}
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        if vertex == target:
            path = [vertex]
            while path[-1] != source:
                path.append(came_from[path[-1]])
            return path[::-1]
        for after in graph.targets(vertex, kinds):
            if after in inside and after not in came_from:
                came_from[after] = vertex
                queue.append(after)
    return []


def _edges(graph: Graph, path: Iterable[int], kinds: Sequence[str]) -> list[Edge]:
    vertices = list(path)
    return [graph.edge(source, target, kinds) for source, target in pairwise(vertices)]


def _anomaly(name: str, cycle: list[Edge]) -> Anomaly:
    vertices = [edge.source for edge in cycle]
    steps = [[edge.kind, *edge.why] for edge in cycle]
    detail = {"cycle": [*vertices, vertices[0]], "steps": steps}
    return Anomaly(name, detail, tuple(vertices))
