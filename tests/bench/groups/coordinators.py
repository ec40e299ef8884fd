"""The coordinator is killed: how soon another takes commits, also with many offsets to load."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Any

from broker.coordinator.internal_topics import partition_of
from broker.protocol.versions import ApiKey
from broker.types import CONSUMER_OFFSETS
from raftctl.errors import KafkaError
from raftctl.localcluster.layout import LOCAL_TIMEOUTS
from tests.bench.groups.wire import AGAIN_S, GIVE_UP_S, Wire
from tests.bench.kafka.turns import Quantity, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.groups.loads import Options
    from tests.bench.groups.wire import Place
    from tests.bench.kafka.clusters import Cluster

SETTLE_S = 1.0
PING_EVERY_S = 0.002
OFFSETS_AT_ONCE = 100
"""Partitions of the topic whose offsets are loaded, and offsets of one group."""
FILLERS = 8
OFFSETS_PARTITIONS = 50
LOADED_PARTITION = 7
_MS = 1_000


def failover(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Kill -9 of a group's coordinator to the first commit that another one takes."""
    session = LOCAL_TIMEOUTS["broker.session.timeout.ms"]
    goal = f"kill -9 to first commit, session timeout {session} ms; goal: at most 1"
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), "failover", 1)

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        found = asyncio.run(_moved(cluster, "failover", "failover", 1))
        return {"coordinator_failover": found.resumed_s}

    return in_turns(clusters, options.turns, measure, {"coordinator_failover": Quantity("s", goal)})


def loading(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """A coordinator takes up a partition of many offsets; how long it keeps others waiting."""
    size = f"{options.offsets:,} offsets"
    quantities = {
        "load": Quantity("s", f"{size}: from being named to the first commit; goal: at most 5 s"),
        "load_longest_wait": Quantity("ms", "of an ApiVersions meanwhile; goal: at most 50 ms", 1),
    }
    groups = list(_groups(max(1, options.offsets // OFFSETS_AT_ONCE)))
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), "loaded", OFFSETS_AT_ONCE)
        asyncio.run(_fill(cluster, "loaded", groups))

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        found = asyncio.run(_moved(cluster, groups[0], "loaded", OFFSETS_AT_ONCE))
        return {"load": found.loaded_s, "load_longest_wait": found.longest_wait_s * _MS}

    return in_turns(clusters, options.turns, measure, quantities)


def _groups(count: int) -> Iterator[str]:
    """Ids that all have the same coordinator, in one partition."""
    names = (f"load-{number}" for number in itertools.count())
    same = (one for one in names if partition_of(one, OFFSETS_PARTITIONS) == LOADED_PARTITION)
    return itertools.islice(same, count)


async def _fill(cluster: Cluster, topic: str, groups: Sequence[str]) -> None:
    left = iter(groups)

    async def fill() -> None:
        wire = Wire(cluster.bootstrap)
        place = await wire.commit(groups[0], topic, OFFSETS_AT_ONCE)
        for group in left:
            if not await wire.is_taken(place, group, topic, OFFSETS_AT_ONCE):
                place = await wire.commit(group, topic, OFFSETS_AT_ONCE)
        wire.close()

    await asyncio.gather(*(fill() for _ in range(FILLERS)))


class _Move:
    """A group whose coordinator is killed. Times in seconds, of `time.perf_counter`."""

    def __init__(self, wire: Wire, group: str, topic: str, partitions: int) -> None:
        self.longest_wait_s = 0.0
        self._wire = wire
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._killed = self._named = self._resumed = 0.0

    @property
    def resumed_s(self) -> float:
        """From the kill to the first commit."""
        return self._resumed - self._killed

    @property
    def loaded_s(self) -> float:
        """From when another coordinator was named to the first commit."""
        return self._resumed - self._named

    async def run(self, cluster: Cluster) -> None:
        """Commits, kills who took it, commits again."""
        before = await self._wire.commit(self._group, self._topic, self._partitions)
        await asyncio.sleep(SETTLE_S)
        cluster.kill_broker(before.node_id)
        self._killed = time.perf_counter()
        try:
            await self._commit(before)
            self._resumed = time.perf_counter()
        finally:
            # Whatever is measured next needs it.
            cluster.start_broker(before.node_id)
        for topic in (CONSUMER_OFFSETS, self._topic):
            cluster.wait_isr(cluster.admin(), topic)

    async def _commit(self, dead: Place) -> None:
        """Asks again and again until somebody else than the dead takes a commit."""
        what = self._group, self._topic, self._partitions
        async with asyncio.timeout(GIVE_UP_S):
            place = await self._other_than(dead)
            self._named = time.perf_counter()
            ping = asyncio.create_task(self._ping(place))
            try:
                while not await self._wire.is_taken(place, *what):
                    await asyncio.sleep(AGAIN_S)
                    place = await self._other_than(dead)
            finally:
                ping.cancel()
                await asyncio.wait([ping])

    async def _other_than(self, dead: Place) -> Place:
        while True:
            (place,) = await self._wire.coordinators([self._group])
            if place != dead:
                return place
            await asyncio.sleep(AGAIN_S)

    async def _ping(self, place: Place) -> None:
        """Notes how long the broker keeps the simplest of all questions waiting."""
        wire, self.longest_wait_s = Wire(f"{place.host}:{place.port}"), 0.0
        try:
            while True:
                began = time.perf_counter()
                # A connection that breaks was kept waiting, too.
                with contextlib.suppress(KafkaError):
                    await wire.ask((place.host, place.port), ApiKey.API_VERSIONS, 0, {})
                self.longest_wait_s = max(self.longest_wait_s, time.perf_counter() - began)
                await asyncio.sleep(PING_EVERY_S)
        finally:
            wire.close()


async def _moved(cluster: Cluster, group: str, topic: str, partitions: int) -> _Move:
    wire = Wire(cluster.bootstrap)
    move = _Move(wire, group, topic, partitions)
    await move.run(cluster)
    wire.close()
    return move
