"""Draws of a seed beside its faults: the kinds of faults that are on, and the cluster.

Where everything may go wrong all the time, some bugs stay hidden: those that need many faults of
one kind, or a quiet that another kind spoils. So each kind is off in half of the seeds.
Source: Groce, Zhang, Eide, Chen and Regehr, "Swarm Testing", ISSTA 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import TIMEOUTS
from jepsen.simulator.faults import ALL_KINDS, FAULT_MS_MAX, FILLING, Draws
from jepsen.simulator.world import stream

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKERS = 3
VOTERS = {1: 1, 3: 6, 5: 2}
"""The number of voters, with weights: five cost the most time."""
STATIC_SHARE = 0.25
ON_SHARE = 0.5
LASTING_MS = {1_000: 1, FAULT_MS_MAX: 2, 9_000: 1}
"""The longest that a fault may last, with weights. The last is longer than a connected majority may
go without a commit.
"""
BOOTSTRAP_SHARE = 0.5
"""The share of seeds whose brokers have bootstrap servers of their own: some of the voters."""
ELECTION_TIMEOUTS_MS = {250: 1, 500: 3, 1_500: 1}
"""The election timeouts, with weights; the fetch timeout is twice as long."""
COMBINED_SHARE = 0.25
"""The share of seeds in which some nodes are brokers and controllers in one process."""
BESIDE = ("keys", "locks", "administrators")
BESIDE_SHARE = 0.5
"""The share of seeds with other clients beside those that write and read records; each of them is
on in half of those."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """The draws of one seed."""

    voters: int
    dynamic: bool
    election_timeout_ms: int
    draws: Draws
    asked_by_brokers: int = 0
    """The number of controllers that are brokers' bootstrap servers; 0 if as controllers have."""
    combined: int = 0
    """The number of nodes that are brokers and controllers."""
    beside: tuple[str, ...] = ()
    """The clients of `BESIDE` that there are."""

    def __str__(self) -> str:
        voters = f"{self.voters} {'dynamic' if self.dynamic else 'static'} voters"
        kinds = " ".join(sorted(self.draws.kinds)) or "nothing"
        if self.asked_by_brokers:
            voters += f", brokers with {self.asked_by_brokers} bootstrap servers"
        if self.combined:
            voters += f", of which {self.combined} are brokers too"
        if self.beside:
            voters += f", with {' and '.join(self.beside)}"
        return (
            f"{voters}, elections of {self.election_timeout_ms} ms, "
            f"faults of up to {self.draws.ms_max} ms: {kinds}"
        )

    @property
    def timeouts(self) -> Mapping[str, str]:
        """The configuration of every node."""
        return TIMEOUTS | {
            "controller.quorum.election.timeout.ms": str(self.election_timeout_ms),
            "controller.quorum.fetch.timeout.ms": str(2 * self.election_timeout_ms),
        }


def draw(seed: int) -> Swarm:
    """Draw everything of a seed but its faults."""
    source = stream(seed, "swarm")

    def one_of(weights: Mapping[int, int]) -> int:
        return source.choices(list(weights), list(weights.values()))[0]

    voters = one_of(VOTERS)
    filling = stream(seed, "filling is on")
    later = [kind for kind in FILLING if filling.random() < ON_SHARE]
    brokers = stream(seed, "bootstrap servers")
    own = brokers.random() < BOOTSTRAP_SHARE
    others = stream(seed, "beside")
    roles = stream(seed, "roles")
    several = roles.random() < COMBINED_SHARE
    alone = others.random() >= BESIDE_SHARE
    return Swarm(
        voters=voters,
        dynamic=source.random() >= STATIC_SHARE,
        election_timeout_ms=one_of(ELECTION_TIMEOUTS_MS),
        draws=Draws(
            frozenset(later).union(
                kind for kind in ALL_KINDS if kind not in FILLING and source.random() < ON_SHARE
            ),
            one_of(LASTING_MS),
        ),
        asked_by_brokers=brokers.randint(1, voters) if own else 0,
        combined=roles.randint(1, min(voters, BROKERS)) if several else 0,
        beside=tuple(one for one in BESIDE if not alone and others.random() < ON_SHARE),
    )
