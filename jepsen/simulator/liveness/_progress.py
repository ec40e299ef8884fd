"""Progress of a quorum while things go wrong, and leases that the log has ended.

Both are checked at intervals of `LOOK_S` while a scenario runs.

`a_connected_majority_commits`: voters that are a majority, run on sound disks and reach each other
for `ELECTIONS` election timeouts have a leader that commits, whatever is done to all others. A link
that is reset every few bytes carries no longer message, so it does not count as reaching. Commits
show in the high watermark, which the leader's own records move when clients are idle.

`nobody_leads_without_a_majority`: a leader that runs, but has not reached a majority of its voters
for the time of check-quorum and `SLACK_S`, leads no more (KIP-595).

`fenced_broker_is_not_sure`: once any node has published that a broker is fenced, or registered
again, no process of an earlier broker epoch, running or paused, would say that it has its session.
A process may fence itself, and may stop in a controlled shutdown. Source:
`docs/decisions/0016-leases.md`. Locks are judged where programs hold them
(`tests/simulation/lock_scenarios.py`).
"""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import TYPE_CHECKING, Any

from jepsen.simulator.network import Link
from jepsen.simulator.properties import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.cluster import SimCluster
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.quorum import RaftDriver

LOOK_S = 0.05
ELECTIONS = 12
USUAL_EXTRA_MS = Link().latency_extra_mean_ms
SLACK_S = 1.0
"""The delay of commits that were under way when the links were cut."""
Group = tuple[int, ...]
"""Voters by node id."""


class Progress:
    """Follows the controllers of one cluster while its scenario runs."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._loop = cluster.world.loop
        self.leases = Leases(cluster)
        self.timeout_s = ELECTIONS * cluster.election_timeout_s
        """The time a sound majority may go without a commit."""
        self._alone_max_s = cluster.check_quorum_s + SLACK_S
        self._committed = -1
        self._committed_s = self._loop.time()
        self._sound_since_s: dict[Group, tuple[float, tuple[int, ...]]] = {}
        """Since when each group is sound, and which life of its members that is of."""
        self._alone_since_s: dict[tuple[int, int], float] = {}
        """Since when a leader has reached no majority, by node id and epoch."""
        self.waits_s = 0.0
        """The longest that a sound majority has gone without a commit."""

    async def watch(self) -> None:
        """Look until it is cancelled; the first violation fails the world."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Raise `Violation` if one of them does not hold any more."""
        now_s = self._loop.time()
        drivers = dict(self._drivers())
        committed = max((d.high_watermark for d in drivers.values()), default=-1)
        if committed > self._committed:
            self._committed, self._committed_s = committed, now_s
        self._look_at_majorities(drivers, now_s)
        self._look_at_leaders(drivers, now_s)
        self.leases.look()

    def _look_at_majorities(self, drivers: dict[int, RaftDriver], now_s: float) -> None:
        sound = {}
        for group in self._majorities(drivers):
            lives = tuple(self._life(member) for member in group)
            since_s, known = self._sound_since_s.get(group, (now_s, lives))
            sound[group] = (since_s if known == lives else now_s, lives)
        self._sound_since_s = sound
        for group, (since_s, _) in sound.items():
            waited_s = now_s - max(since_s, self._committed_s)
            self.waits_s = max(self.waits_s, waited_s)
            if waited_s > self.timeout_s:
                raise Violation(
                    "a_connected_majority_commits",
                    f"{group} could for {waited_s:.1f} s, and {self._committed} is the newest: "
                    f"{_views(drivers)}",
                )

    def _look_at_leaders(self, drivers: dict[int, RaftDriver], now_s: float) -> None:
        alone = {}
        for number, driver in drivers.items():
            if not driver.is_leader:
                continue
            voters = driver.core.voters
            others = (n for n in voters.ids if n != number)
            reached = {number, *(n for n in others if self._reach(n, number, late=True))}
            if len(reached.intersection(voters.ids)) < voters.majority:
                key = number, driver.epoch
                alone[key] = self._alone_since_s.get(key, now_s)
                if now_s - alone[key] > self._alone_max_s:
                    raise Violation(
                        "nobody_leads_without_a_majority",
                        f"{number} leads {driver.epoch} and has reached only {sorted(reached)} of "
                        f"{sorted(voters.ids)} for {now_s - alone[key]:.1f} s",
                    )
        self._alone_since_s = alone

    def _drivers(self) -> Iterator[tuple[int, RaftDriver]]:
        """Of the controllers that run, by node id."""
        for name in self._cluster.controller_names:
            node = self._cluster.nodes.get(name)
            if self._cluster.is_up(name) and node is not None and node.driver is not None:
                yield node.config.node_id, node.driver

    def _majorities(self, drivers: dict[int, RaftDriver]) -> Iterator[Group]:
        """The smallest groups that are a majority in the eyes of all, run and reach each other."""
        well = [number for number in sorted(drivers) if self._is_well(number)]
        sets = {frozenset[int](driver.core.voters.ids) for driver in drivers.values()}
        sets.add(frozenset(number for number, _ in self._cluster.properties.quorum.voters))
        size = max(len(voters) for voters in sets) // 2 + 1
        for group in combinations(well, size):
            counts = all(2 * len(voters.intersection(group)) > len(voters) for voters in sets)
            if counts and all(self._reach(a, b) for a, b in combinations(group, 2)):
                yield group

    def _life(self, number: int) -> int:
        return self._cluster.world.node(f"controller-{number}").incarnations

    def _is_well(self, number: int) -> bool:
        node = self._cluster.world.node(f"controller-{number}")
        process = node.process
        keys = self._cluster.properties.quorum.voters
        votes = any(
            key in (None, self._cluster.directory_ids.get(n)) for n, key in keys if n == number
        )
        return votes and node.disk.sound and process is not None and not process.terminating

    def _reach(self, one: int, other: int, *, late: bool = False) -> bool:
        """Whether both run and hear each other: at the usual speed, or with `late` at any, and even
        if connections break before a message is through."""
        here, there = f"controller-{one}", f"controller-{other}"
        if not (self._cluster.is_up(here) and self._cluster.is_up(there)):
            return False
        link = self._cluster.world.network.link
        return _carries(link(here, there), late) and _carries(link(there, here), late)


def _carries(link: Link, late: bool) -> bool:
    if link.blocked:
        return False
    return late or (link.latency_extra_mean_ms <= USUAL_EXTRA_MS and link.reset_every_bytes is None)


def _views(drivers: dict[int, RaftDriver]) -> str:
    return "; ".join(
        f"{number} is {d.core.role} of {d.leader_id} in {d.epoch} among {d.core.voters.ids}"
        for number, d in drivers.items()
    )


class Leases:
    """Follows the brokers of one cluster while its scenario runs."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._newest: MetadataImage | None = None
        """The newest committed image that anybody has ever published."""
        self.refused = 0
        """The number of times that a broker fenced by the log was not sure of its session."""

    def look(self) -> None:
        """Raise `Violation` if a broker is sure of its session although it is fenced."""
        for image in self._images():
            if self._newest is None or image.offset > self._newest.offset:
                self._newest = image
        if self._newest is None:
            return
        for name in self._cluster.broker_names:
            self._look_at(name, self._newest)

    def _look_at(self, name: str, newest: MetadataImage) -> None:
        node: Any = self._cluster.nodes.get(name)
        process = self._cluster.world.node(name).process
        # Known by what it shows: the harness imports no broker.
        context = None if node is None else getattr(node.broker, "_context", None)
        if process is None or process.terminating or context is None:
            return
        broker = newest.brokers.get(node.config.node_id)
        if broker is None or not _has_lost(broker, broker_epoch := context.broker_epoch()):
            return
        # A paused process goes on with its next handle: what it would believe then counts.
        if process.context.copy().run(context.has_session):
            raise Violation(
                "fenced_broker_is_not_sure",
                f"{name} of broker epoch {broker_epoch} is sure of its session, and at "
                f"offset {newest.offset} it is fenced ({broker.fenced}) in {broker.broker_epoch}",
            )
        self.refused += 1

    def _images(self) -> Iterator[MetadataImage]:
        for node in self._cluster.nodes.values():
            if node.loader is not None:
                yield node.loader.image


def _has_lost(broker: BrokerImage, broker_epoch: int) -> bool:
    if broker_epoch < 0 or broker.broker_epoch < broker_epoch:
        return False
    is_gone = broker.broker_epoch > broker_epoch
    return is_gone or (broker.fenced and not broker.in_controlled_shutdown)
