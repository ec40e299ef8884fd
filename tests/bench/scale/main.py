"""`python -m tests.bench.scale.main`: one quorum that grows to millions of partitions (row C13).

Three controllers with their disks, and brokers that are only heard of (`fleet.py`). Prints a line
for each size and a table at the end, and writes JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.errors import ErrorCode
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.metadata.requests.admin import DescribeQuorumRequest
from raftctl.metadata.requests.cluster import CreateTopicsRequest, NewTopic
from tests.bench.figures import report
from tests.bench.kafka.session import end_with_clusters
from tests.bench.scale.fleet import SESSION_MS, Controllers, Pings, SilentBroker
from tests.bench.scale.leaving import Leaving
from tests.bench.scale.observers import Observers
from tests.bench.scale.records import NOTED_S, WatchedNode, launch
from tests.bench.scale.snapshots import measure_snapshot
from tests.bench.scale.table import table

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZES = (1_000, 10_000, 100_000, 500_000, 1_000_000, 2_000_000)
BROKERS = 30
PARTITIONS = 100
REQUEST_TOPICS = 10
REQUESTS_UNDER_WAY = 2
CREATED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
"""The second of a request that was made again: on a busy machine the first answer came too late."""
SINGLE_TOPICS = 500
SINGLE_UNDER_WAY = 16
OVERRIDES = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "metadata.max.retention.bytes": "0",
}
"""Nothing before the newest snapshot is kept, so that whoever joins is sent that."""


class Options(NamedTuple):
    """What to measure."""

    sizes: list[int]
    brokers: int
    observers: int
    output: Path


class Scale:
    """One quorum and what was measured of it."""

    def __init__(self, cluster: LocalCluster, controllers: Controllers, options: Options) -> None:
        layout = cluster.layout
        self._controllers = controllers
        self._nodes = [WatchedNode(cluster, node) for node in layout.controllers]
        self._brokers = [
            SilentBroker(controllers, number) for number in range(1, options.brokers + 1)
        ]
        self._observers = Observers(
            controllers, [WatchedNode(cluster, node) for node in layout.brokers]
        )
        self._follow = options.observers > 0
        self._pings = Pings(controllers)
        self._leaving = Leaving(self._brokers, self._nodes, self._active, self._pings)
        self._topics = 0
        self._empty_mib = self._resident_mib()[0]
        self.rows: list[dict[str, Any]] = []

    async def run(self, sizes: list[int]) -> None:
        """Grows to each size in turn and measures there."""
        if self._follow:
            await self._observers.start()
        await asyncio.gather(*(broker.start() for broker in self._brokers))
        for size in sizes:
            row = {"partitions": size, "topics": size // PARTITIONS, **await self._grow(size)}
            row |= await self._measure(size)
            row["live_brokers_fenced"] = sum(len(one.fenced_s) for one in self._brokers)
            self.rows.append(row)
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
        await self._pings.stop()

    async def _grow(self, size: int) -> dict[str, Any]:
        before, began = self._topics, perf_counter()
        self._pings.longest_ms()
        wanted = size // PARTITIONS

        async def create() -> None:
            while self._topics < wanted:
                first = self._topics
                self._topics = min(wanted, first + REQUEST_TOPICS)
                names = [f"topic-{number:05}" for number in range(first, self._topics)]
                topics = tuple(NewTopic(name, PARTITIONS, 3) for name in names)
                answer = await self._controllers.call(CreateTopicsRequest(topics))
                failed = [one for one in answer.topics if one.error not in CREATED]
                if failed:
                    raise RuntimeError(f"{failed[0]}")

        await asyncio.gather(*(create() for _ in range(REQUESTS_UNDER_WAY)))
        ended = perf_counter()
        found = {
            "created_per_s": round((self._topics - before) * PARTITIONS / (ended - began)),
            "create_longest_wait_ms": round(self._pings.longest_ms(), 1),
        }
        if self._follow:
            found |= await self._observers.measure_following(began, ended)
        return found

    async def _measure(self, size: int) -> dict[str, Any]:
        await self._controllers.find_active()  # it may have moved on a busy machine
        rss_mib = self._resident_mib()
        grown_bytes = (rss_mib[0] - self._empty_mib) * 2**20
        found: dict[str, Any] = {
            "rss_mib": rss_mib,
            "rss_bytes_per_partition": round(grown_bytes / size),
        }
        found |= await self._leaving.measure()
        found["one_topic_ms"] = round(await self._one_topic_ms(), 1)
        found["topics_per_s"] = round(await self._topics_per_s())
        found |= await measure_snapshot(self._controllers, self._nodes)
        if not self._follow:
            found |= await self._observers.measure_joining()
        found |= await self._fail_over()
        found["rss_at_the_end_mib"] = self._resident_mib()
        return found

    def _active(self) -> WatchedNode:
        return next(one for one in self._nodes if one.node_id == self._controllers.active)

    def _resident_mib(self) -> list[float]:
        """Of each controller, the active one first."""
        nodes = sorted(self._nodes, key=lambda one: one.node_id != self._controllers.active)
        return [node.resident_mib() for node in nodes]

    async def _one_topic_ms(self) -> float:
        taken = []
        for number in range(5):
            topic = NewTopic(f"one-{self._topics}-{number}", 1, 3)
            began = perf_counter()
            await self._controllers.call(CreateTopicsRequest((topic,)))
            taken.append((perf_counter() - began) * 1000)
        return sorted(taken)[2]

    async def _topics_per_s(self) -> float:
        """Topics of one partition and three replicas, a request for each."""
        numbers = iter(range(SINGLE_TOPICS))

        async def create() -> None:
            for number in numbers:
                topic = NewTopic(f"single-{self._topics}-{number}", 1, 3)
                await self._controllers.call(CreateTopicsRequest((topic,)))

        began = perf_counter()
        await asyncio.gather(*(create() for _ in range(SINGLE_UNDER_WAY)))
        return SINGLE_TOPICS / (perf_counter() - began)

    async def _fail_over(self) -> dict[str, Any]:
        """Kills the active controller; then starts it again."""
        await self._controllers.find_active()
        killed = self._active()
        led_before = {node.node_id: len(node.notes("leads")) for node in self._nodes}
        began = perf_counter()
        killed.kill()
        await self._controllers.find_active()
        elected_s = perf_counter() - began
        await self._controllers.call(CreateTopicsRequest((NewTopic(f"after-{began}", 1, 3),)))
        served = perf_counter()
        led = await self._led_since(led_before)
        restarted = perf_counter()
        killed.start()
        await self._caught_up()
        return {
            "kill_to_active_s": round(elected_s, 2),
            "kill_to_commit_s": round(served - began, 2),
            "takeover_ms": round((served - led) * 1000, 1),
            "restart_s": round(perf_counter() - restarted, 2),
        }

    async def _led_since(self, led_before: Mapping[int, int]) -> float:
        """When the newest leader won its election; given how many each node had won before."""
        while True:
            await asyncio.sleep(NOTED_S)
            # By number: a look that came late has a time before the election.
            led = [
                note["at"]
                for n in self._nodes
                for note in n.notes("leads")[led_before[n.node_id] :]
            ]
            if led:
                return float(max(led))

    async def _caught_up(self) -> None:
        """Waits until the leader counts all controllers at its own end of the log."""
        while True:
            answer = await self._controllers.call(DescribeQuorumRequest())
            ends = sorted(one.log_end_offset for one in answer.voters)
            if ends[0] >= answer.high_watermark:
                return
            await asyncio.sleep(0.05)


async def _run(options: Options, directory: Path) -> list[dict[str, Any]]:
    cluster = LocalCluster.open(
        directory / "cluster",
        ClusterSpec(3, max(1, options.observers), overrides=OVERRIDES),
        random_uuid_text,
        format_storage,
        launch,
    )
    layout = cluster.layout
    try:
        for node in layout.controllers:
            cluster.start(node)
        addresses = {node.node_id: node.address for node in layout.controllers}
        controllers = Controllers(addresses, layout.cluster_id)
        await controllers.find_active()
        scale = Scale(cluster, controllers, options)
        try:
            await scale.run(options.sizes)
        finally:
            await controllers.close()
        return scale.rows
    finally:
        cluster.kill_all()


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="tests.bench.scale", description=__doc__)
    parser.add_argument("--up-to", type=int, default=SIZES[-1], metavar="PARTITIONS")
    parser.add_argument("--from", type=int, default=0, metavar="PARTITIONS", dest="first")
    parser.add_argument("--partitions", type=int, help="measure at this one size instead")
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument(
        "--observers", type=int, default=0, help="so many replay the log while it grows"
    )
    parser.add_argument("--output", type=Path, default=Path("out/bench-scale.json"))
    given = parser.parse_args()
    sizes = [size for size in SIZES if given.first <= size <= given.up_to]
    if given.partitions is not None:
        sizes = [given.partitions]
    return Options(sizes, given.brokers, given.observers, given.output)


def main() -> None:
    """Measures at growing sizes."""
    options = _options()
    end_with_clusters()
    with tempfile.TemporaryDirectory(prefix="raftctl-scale-") as directory:
        rows = asyncio.run(_run(options, Path(directory)))
    setup = {"brokers": options.brokers, "observers": options.observers}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({**report({}), **setup, "rows": rows}, indent=2))
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()
