"""The two clusters in turns, and the figures that come of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tests.bench.figures import figure
from tests.bench.kafka.warmth import Warmth


@dataclass(frozen=True, slots=True)
class Quantity:
    """What the numbers of one name are."""

    unit: str
    goal: str
    digits: int = 2


Compare = Callable[[str, Mapping[str, Sequence[float]], Quantity], dict[str, Any]]
"""Name of a quantity, and its values by peer, to the figures that relate them."""


def first_to_second(
    name: str, values: Mapping[str, Sequence[float]], quantity: Quantity
) -> dict[str, Any]:
    """Ratio of the first peer's median to the second's; nothing if there is but one."""
    medians = [statistics.median(of) for of in values.values()]
    if len(medians) < 2 or not medians[1]:
        return {}
    return {f"{name}_ratio": figure([medians[0] / medians[1]], "x", quantity.goal, 2)}


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
    latency_rate: int = 1000
    """Records a second while latency is measured."""
    latency_seconds: int = 10
    compare: Compare = first_to_second
    warmth: Warmth = field(default_factory=Warmth)
    rates: Sequence[int] = ()
    """Records a second of `paced`."""
    paced_seconds: float = 6.0
    """Of one turn of it."""
    cached_megabytes: int = 0
    """Of the log that is read from the page cache; 0: as of one turn of produce."""
    connections: Sequence[int] = ()
    """Of one broker, in `connections`; of all but the last number one turn is measured."""


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
    compare: Compare = first_to_second,
) -> dict[str, Any]:
    """A B A B; for each quantity the figures of all, and those that compare them."""
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
        figures |= compare(name, values[name], quantity)
    return figures
