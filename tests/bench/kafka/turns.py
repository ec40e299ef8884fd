"""The two clusters in turns, and the figures that come of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tests.bench.figures import figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    turns: int
    megabytes: int
    """Of record values, in one turn of produce or consume."""
    warmup_megabytes: int
    """Written twice and read before anything is measured of a cluster that runs."""
    cold_megabytes: int
    """Of the log that is read from the disk."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What the numbers of one name are."""

    unit: str
    goal: str
    digits: int = 2


class Named(Protocol):
    """One of the two, or what makes it."""

    @property
    def name(self) -> str:
        """`raftctl` or `kafka`."""


Peer = TypeVar("Peer", bound=Named)


def in_turns(
    peers: Sequence[Peer],
    turns: int,
    measure: Callable[[Peer, int], Mapping[str, float]],
    quantities: Mapping[str, Quantity],
) -> dict[str, Any]:
    """A B A B; for each quantity the figures of both and ours divided by Kafka's, of medians."""
    values: dict[str, dict[str, list[float]]] = {name: {} for name in quantities}
    for turn in range(turns):
        for peer in peers:
            for name, value in measure(peer, turn).items():
                values[name].setdefault(peer.name, []).append(value)
    figures: dict[str, Any] = {}
    for name, quantity in quantities.items():
        for peer_name, of in values[name].items():
            figures[f"{name}_{peer_name}"] = figure(
                of, quantity.unit, quantity.goal, quantity.digits
            )
        figures |= _ratio(name, values[name], quantity.goal)
    return figures


def _ratio(name: str, values: Mapping[str, Sequence[float]], goal: str) -> dict[str, Any]:
    medians = [statistics.median(of) for of in values.values()]
    if len(medians) < 2 or not medians[1]:
        return {}
    return {f"{name}_ratio": figure([medians[0] / medians[1]], "x", goal, 2)}
