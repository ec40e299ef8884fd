"""What a follower's Fetch costs by the partitions of its session: `python -m
tests.bench.fetch_sessions`.

Leader and follower are in one thread, with their real connections over loopback and logs in
memory; what is shown is the thread's processor time for a Fetch, both ends together, so that other
work on the machine matters little.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING

from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import Node, World, eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

BATCH = make_batch([b"v" * 100])
WAIT_MS = 10
"""How long an idle Fetch waits at the leader."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each number of partitions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 1_000, 3_333])
    parser.add_argument("--fetches", type=int, default=50)
    options = parser.parse_args(arguments)
    sys.stdout.write("partitions  idle, us/Fetch  one busy, us/Fetch\n")
    for partitions in options.partitions:
        idle, busy = asyncio.run(_costs(partitions, options.fetches))
        sys.stdout.write(f"{partitions:10}  {idle:14.0f}  {busy:18.0f}\n")


async def _costs(partitions: int, fetches: int) -> tuple[float, float]:
    wait_ms, long_ms = str(WAIT_MS), "600000"
    async with World(
        2, listen=True, replica_fetch_wait_max_ms=wait_ms, replica_lag_time_max_ms=long_ms
    ) as world:
        world.create_topic(partitions=partitions)
        leader, follower = world.nodes.values()
        await eventually(lambda: len(follower.replicas.partitions) == partitions, seconds=600)
        await eventually(lambda: _fetched(leader, partitions) > 5, seconds=600)
        for node in world.nodes.values():
            # What it does by itself, with its files in memory, is no part of a Fetch.
            await node.replicas._logs.housekeeping.stop()

        async def nothing() -> None:
            await asyncio.sleep(WAIT_MS / 1000)

        async def produce() -> None:
            appended = leader.append(BATCH, acks=-1)
            if isinstance(appended, asyncio.Future):
                await appended

        return (
            await _cost(leader, partitions, fetches, nothing),
            await _cost(leader, partitions, fetches, produce),
        )


def _fetched(leader: Node, partitions: int) -> int:
    """How many Fetches the session has seen that has all partitions; 0 if there is none."""
    sessions = leader.sessions._sessions.values()
    return max((s.epoch for s in sessions if len(s.partitions) == partitions), default=0)


async def _cost(
    leader: Node, partitions: int, fetches: int, work: Callable[[], Awaitable[None]]
) -> float:
    """Microseconds of processor time for a Fetch, while `work` is done over and over."""
    first, began = _fetched(leader, partitions), time.thread_time()
    while _fetched(leader, partitions) - first < fetches:
        await work()
    done = _fetched(leader, partitions) - first
    return (time.thread_time() - began) / done * 1_000_000


if __name__ == "__main__":
    main()
