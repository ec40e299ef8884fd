"""The cycles of a graph of transactions, by the anomalies that they are.

`G0` has edges `ww` alone, `G1c` also `wr`, `G-single-item` one edge `rw`, `G-nonadjacent-item`
several, none of which follows another, `G2-item` others. With `-process` or `-realtime` a cycle
needs edges of that order. Of each component one of each kind is reported, the shortest found,
unless it is a case of one that is reported already.
Sources: Adya, "Weak Consistency"; Cerone and Gotsman, "Analysing Snapshot Isolation", for
neighbouring edges `rw`; Elle for the names.

A walk that comes back to where it began is cut where it meets itself. One of the two parts has no
two neighbouring `rw` if the whole has none. So what has such a walk has such a cycle, or a worse
one, and the searches may visit a vertex by each kind of edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from jepsen.checkers.transactions._graph import Edge, components
from jepsen.checkers.transactions.consistency import CYCLES, implied
from jepsen.checkers.verdict import Anomaly

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from jepsen.checkers.transactions._graph import Graph

STEPS_MAX = 2_000_000
"""Steps of a search that has found one cycle already, and looks for a shorter one."""


class _Kind(NamedTuple):
    """A kind of cycle: where one begins, and what may follow."""

    first: str
    """The kind of its first edge."""
    others: tuple[str, ...]
    """The kinds of the rest."""
    nonadjacent: bool = False
    """Whether edges `rw` may be among the rest, if none follows another."""


_KINDS: Mapping[str, _Kind] = {
    "G0": _Kind("ww", ("ww",)),
    "G1c": _Kind("wr", ("wr", "ww")),
    "G-single-item": _Kind("rw", ("wr", "ww")),
    "G-nonadjacent-item": _Kind("rw", ("wr", "ww"), nonadjacent=True),
    "G2-item": _Kind("rw", ("wr", "ww", "rw")),
}


def find_cycles(
    graph: Graph, kinds: Sequence[str], orders: Sequence[str], wrong: Collection[str]
) -> list[Anomaly]:
    """Return the cycles of edges of these kinds of `DATA` and of these orders.

    Where the data shows that one comes before another, an order need not say so, too. It may only
    if the component has no cycle that is `wrong` without.
    """
    found: list[Anomaly] = []
    for vertices in graph.components((*kinds, *orders)):
        reported: set[str] = set()
        mine: list[Anomaly] = []
        for with_both in (False, True):
            if not any(one.name in wrong for one in mine):
                part = _part(graph, vertices, kinds, orders, with_both=with_both)
                mine += _cycles(part, kinds, orders, reported)
        found += mine
    return found


def _cycles(
    part: _Part, kinds: Sequence[str], orders: Sequence[str], reported: set[str]
) -> Iterator[Anomaly]:
    for order in ("", *orders):
        for name in CYCLES:
            full = f"{name}-{order}" if order else name
            if full in reported or _KINDS[name].first not in kinds:
                continue
            extra = ("process",) if order == "process" else orders if order else ()
            cycle = _Search(part, name, extra).shortest()
            if cycle:
                reported |= implied(full)
                yield _anomaly(full, cycle)


@dataclass
class _Part:
    """A component: the edges within it."""

    edges: dict[int, dict[int, dict[str, Edge]]] = field(default_factory=dict)

    def targets(self, vertex: int, kinds: Sequence[str]) -> Iterator[int]:
        """Where edges of these kinds lead."""
        for target, by_kind in self.edges[vertex].items():
            if any(kind in by_kind for kind in kinds):
                yield target

    def cycle(self, walk: Sequence[int], kinds: Sequence[str]) -> list[Edge]:
        """The edges of the walk and back to its beginning, each of the first kind there is."""
        steps = []
        for source, target in pairwise([*walk, walk[0]]):
            by_kind = self.edges[source][target]
            steps.append(next(by_kind[kind] for kind in kinds if kind in by_kind))
        return steps


def _part(
    graph: Graph,
    vertices: set[int],
    kinds: Sequence[str],
    orders: Sequence[str],
    *,
    with_both: bool,
) -> _Part:
    """In the order of the vertices, so that the same graph has the same answer.

    Where one wrote over what the other had written or read, that it did not see it says no more.
    """
    part = _Part()
    for source in sorted(vertices):
        mine = part.edges[source] = {}
        for target, by_kind in sorted(graph.edges[source].items()):
            if target in vertices:
                shown = [kind for kind in by_kind if kind in kinds]
                wanted = shown if shown and not with_both else [*kinds, *orders]
                mine[target] = {kind: one for kind, one in by_kind.items() if kind in wanted}
                if "ww" in mine[target] or "wr" in mine[target]:
                    mine[target].pop("rw", None)
    return part


class _Search:
    """The search for one kind of cycle in a component.

    It begins at the end of each edge that may be the first and goes on from there in all
    directions, as long as what it finds is shorter than what it has.
    """

    def __init__(self, part: _Part, name: str, orders: Sequence[str]) -> None:
        self._part = part
        self._kind = _KINDS[name]
        self._orders = frozenset(orders)
        self._plain = (*self._kind.others, *orders)
        self._best: list[Edge] = []
        self._steps = 0

    def shortest(self) -> list[Edge]:
        """Empty if there is none."""
        for target, sources in self._beginnings().items():
            limit = len(self._best) - 1 if self._best else len(self._part.edges) * 2
            walk = self._walk(target, sources, limit)
            if walk:
                self._take(walk)
            if len(self._best) == 2 or (self._best and self._steps > STEPS_MAX):
                break
        return self._best

    def _beginnings(self) -> dict[int, set[int]]:
        """The ends of edges that may be the first, and where such edges come from."""
        first = self._kind.first
        within = first in self._plain
        found: dict[int, set[int]] = {}
        for inside in self._may_hold():
            for source, targets in self._part.edges.items():
                if within and source not in inside:
                    continue
                for target, by_kind in targets.items():
                    if target in inside and first in by_kind:
                        found.setdefault(target, set()).add(source)
        return dict(sorted(found.items()))

    def _may_hold(self) -> list[set[int]]:
        """Vertices that such a cycle may go through: ends of its first edge are among them.

        Without neighbouring `rw` each of them follows another edge. Taken together with that one it
        is a step of a graph, and it is there that cycles must be.
        """
        part = self._part
        if self._kind.first in self._plain:
            return components(list(part.edges), lambda vertex: part.targets(vertex, self._plain))
        found = components(list(part.edges), self._single_or_double)
        return [set().union(*found)] if found else []

    def _single_or_double(self, vertex: int) -> Iterator[int]:
        for target in self._part.targets(vertex, self._plain):
            yield target
            yield from self._part.targets(target, ("rw",))

    def _walk(self, start: int, sources: set[int], limit: int) -> list[int]:
        """The vertices of a shortest walk from there to one of the sources; empty if there is none.

        A state is a vertex, and whether the last edge was an `rw` that no other may follow.
        """
        free = self._kind.nonadjacent
        begin = (start, free)
        came_from = {begin: begin}
        shell = [begin]
        length = 1
        while shell and length <= limit:
            after = []
            for state in shell:
                vertex, last_rw = state
                if vertex in sources and not (free and last_rw):
                    return _path(came_from, state)
                for target, by_kind in self._part.edges[vertex].items():
                    self._steps += 1
                    plain = any(kind in by_kind for kind in self._plain)
                    steps = [(target, False)] if plain else []
                    if free and not last_rw and "rw" in by_kind:
                        steps.append((target, True))
                    for step in steps:
                        if step not in came_from:
                            came_from[step] = state
                            after.append(step)
            shell = after
            length += 1
        return []

    def _take(self, walk: list[int]) -> None:
        """Keeps what the walk, and the first edge from its end, show if that is better."""
        # `rw` only where nothing else leads: it is what is to be avoided.
        kinds = (*(kind for kind in self._plain if kind != "rw"), "rw")
        cycle = self._part.cycle(walk, kinds)
        first = self._part.edges[walk[-1]][walk[0]][self._kind.first]
        cycle = _simple([first, *cycle[:-1]])
        found = {edge.kind for edge in cycle}
        shows = self._kind.first in found and (not self._orders or self._orders & found)
        if shows and (not self._best or len(cycle) < len(self._best)):
            self._best = cycle


def _path(
    came_from: Mapping[tuple[int, bool], tuple[int, bool]], end: tuple[int, bool]
) -> list[int]:
    path = [end]
    while came_from[path[-1]] != path[-1]:
        path.append(came_from[path[-1]])
    return [vertex for vertex, _ in reversed(path)]


def _simple(cycle: list[Edge]) -> list[Edge]:
    """A part of the cycle with no vertex twice, without neighbouring `rw` if it has none."""
    at: dict[int, int] = {}
    for place, edge in enumerate(cycle):
        if edge.source in at:
            inner = cycle[at[edge.source] : place]
            outer = cycle[: at[edge.source]] + cycle[place:]
            adjacent = inner[0].kind == inner[-1].kind == "rw"
            return _simple(outer if adjacent else inner)
        at[edge.source] = place
    return cycle


def _anomaly(name: str, cycle: list[Edge]) -> Anomaly:
    vertices = [edge.source for edge in cycle]
    steps = [[edge.kind, *edge.why] for edge in cycle]
    detail = {"cycle": [*vertices, vertices[0]], "steps": steps}
    return Anomaly(name, detail, tuple(vertices))
