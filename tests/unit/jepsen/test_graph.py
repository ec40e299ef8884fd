"""Cycles of dependencies, compared with a search that walks every simple cycle."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.graph import ORDERS, Edge, Graph, find_cycles

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("J4")
KINDS = ("ww", "wr", "rw", "process", "realtime")


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


def names_by_force(edges: set[Edge]) -> set[str]:
    """The kinds of cycles there are, plain ones before those that need an order."""
    cycles = list(simple_cycles(edges))
    found: set[str] = set()
    for suffix, extra in ORDERS.items():
        mine = [c for c in cycles if all(e.kind in ("ww", "wr", "rw", *extra) for e in c)]
        names = {name for cycle in mine if (name := kind_of(cycle)) not in ("", "G2-item")}
        fewest: dict[Edge, int] = {}
        for cycle in mine:
            count = sum(edge.kind == "rw" for edge in cycle)
            for edge in (edge for edge in cycle if edge.kind == "rw"):
                fewest[edge] = min(count, fewest.get(edge, count))
        names |= {"G2-item"} if any(count > 1 for count in fewest.values()) else set()
        found |= {n + suffix for n in names if found.isdisjoint((n, f"{n}-process"))}
    return found


def kind_of(cycle: list[Edge]) -> str:
    kinds = [edge.kind for edge in cycle]
    if "rw" in kinds:
        return "G-single" if kinds.count("rw") == 1 else "G2-item"
    return "G1c" if "wr" in kinds else "G0" if "ww" in kinds else ""


@pytest.mark.parametrize("seed", range(20))
def test_the_kinds_of_cycles_are_those_that_are_there(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        vertices = rng.randint(2, 5)
        edges = {
            Edge(source, target, rng.choice(KINDS))
            for _ in range(rng.randint(1, 8))
            if (source := rng.randrange(vertices)) != (target := rng.randrange(vertices))
        }
        graph = Graph()
        for edge in edges:
            graph.add(edge)
        assert {one.name for one in find_cycles(graph, with_rw=True)} == names_by_force(edges), (
            edges
        )


def test_a_cycle_is_told_with_its_reasons() -> None:
    graph = Graph()
    graph.add(Edge(1, 2, "wr", ("x", 1)))
    graph.add(Edge(2, 1, "ww", ("y", 1, 2)))
    (anomaly,) = find_cycles(graph, with_rw=True)
    assert anomaly.name == "G1c"
    assert anomaly.detail == {"cycle": [1, 2, 1], "steps": [["wr", "x", 1], ["ww", "y", 1, 2]]}
