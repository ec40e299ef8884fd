"""Cycles of dependencies, compared with a search that walks every simple cycle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.transactions import Edge, Graph, find_cycles
from jepsen.checkers.transactions._graph import DATA
from jepsen.checkers.transactions.consistency import implied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.req("J4")


def simple_cycles(edges: set[Edge]) -> Iterator[list[Edge]]:
    """Every cycle that visits no vertex twice, beginning at its least."""

    def walk(path: list[Edge], start: int) -> Iterator[list[Edge]]:
        for edge in edges:
            if edge.source != path[-1].target:
                continue
            if edge.target == start:
                yield [*path, edge]
            elif edge.target > start and edge.target not in {one.source for one in path}:
                yield from walk([*path, edge], start)

    for edge in edges:
        if edge.target > edge.source:
            yield from walk([edge], edge.source)


def names_by_force(edges: set[Edge], orders: Sequence[str]) -> set[str]:
    """The kinds of cycles there are, but those of which another one that is there is a case."""
    found = {
        name + suffix
        for suffix, extra in suffixes(orders).items()
        for cycle in simple_cycles(edges)
        if (name := kind_of(cycle, extra))
    }
    return {one for one in found if not any(one in implied(other) - {other} for other in found)}


def suffixes(orders: Sequence[str]) -> dict[str, set[str]]:
    """What may be in a cycle of that suffix."""
    found: dict[str, set[str]] = {"": set()}
    for order in orders:
        found[f"-{order}"] = {"process"} if order == "process" else set(orders)
    return found


def kind_of(cycle: list[Edge], extra: set[str]) -> str:
    kinds = [edge.kind for edge in cycle]
    if not {"ww", "wr", "rw", *extra}.issuperset(kinds) or (extra and extra.isdisjoint(kinds)):
        return ""
    if kinds.count("rw") < 2:
        other = "G1c" if "wr" in kinds else "G0" if "ww" in kinds else ""
        return "G-single-item" if "rw" in kinds else other
    turns = zip(kinds, [*kinds[1:], kinds[0]], strict=True)
    return "G2-item" if ("rw", "rw") in turns else "G-nonadjacent-item"


def random_edges(rng: random.Random, orders: Sequence[str]) -> set[Edge]:
    """Edges of one component, most of the time; orders lead upwards, as time does."""
    vertices = rng.randint(2, 6)
    edges: dict[tuple[int, int, str], Edge] = {}
    for _ in range(rng.randint(2, 12)):
        source, target = rng.sample(range(vertices), 2)
        kind = rng.choice(["ww", "wr", "rw", "rw", *orders])
        if kind in orders and source > target:
            source, target = target, source
        if not any((source, target) == pair[:2] for pair in edges):
            edges[source, target, kind] = Edge(source, target, kind)
    return set(edges.values())


@pytest.mark.parametrize("orders", [(), ("process",), ("realtime",), ("process", "realtime")])
@pytest.mark.parametrize("seed", range(10))
def test_the_kinds_of_cycles_are_those_that_are_there(seed: int, orders: tuple[str, ...]) -> None:
    """In a component of one kind each; what is found is there, and forbids what is not told."""
    rng = random.Random(f"{seed} {orders}")
    for _ in range(60):
        edges = random_edges(rng, orders)
        graph = Graph()
        for edge in edges:
            graph.add(edge)
        found = {one.name for one in find_cycles(graph, DATA, orders, ())}
        by_force = names_by_force(edges, orders)
        if len(graph.components((*DATA, *orders))) < 2:
            assert found == by_force, edges
        assert found.issuperset(by_force), edges


def test_a_cycle_is_told_with_its_reasons() -> None:
    graph = Graph()
    graph.add(Edge(1, 2, "wr", ("x", 1)))
    graph.add(Edge(2, 1, "ww", ("y", 1, 2)))
    (anomaly,) = find_cycles(graph, DATA, (), ())
    assert anomaly.name == "G1c"
    assert anomaly.detail == {"cycle": [1, 2, 1], "steps": [["wr", "x", 1], ["ww", "y", 1, 2]]}
