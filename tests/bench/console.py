"""`python -m tests.bench.console`: what the console costs a node of a large cluster (row A4).

One process serves a console over an image made by hand; viewers are another process. Writes JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from raftctl.metadata.records import PartitionChangeRecord
from tests.bench.figures import report
from tests.unit.raftctl.console.served import Served, broker, fence, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.metadata.records import Record

TOPICS = 10_000
PARTITIONS = 10
BROKERS = 30
VIEWERS = 50
VIEWED_S = 15.0
ROUNDS = range(10)
VIEWER = """
import asyncio, sys
async def view(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /console/api/events HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
    while await reader.read(1 << 16):
        pass
async def main(port, viewers):
    await asyncio.gather(*(view(port) for _ in range(viewers)))
asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""


def fill(served: Served, topics: int = TOPICS) -> None:
    """Make the image of a large cluster, all of it well, without the console following."""
    ids = range(1, BROKERS + 1)
    served.commit(*(record for broker_id in ids for record in broker(broker_id)))
    records: list[Record] = []
    for number in range(topics):
        replicas = tuple(1 + (number + step) % BROKERS for step in range(3))
        partitions = (partition(number + 1, one, replicas) for one in range(PARTITIONS))
        records += topic(f"topic-{number:06d}", *partitions)
    served.commit(*records)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """The milliseconds of one call."""
    began = time.perf_counter()
    await call()
    return 1000 * (time.perf_counter() - began)


def figures(times: list[float]) -> dict[str, float]:
    """Median and longest of some times."""
    return {"median_ms": round(statistics.median(times), 2), "max_ms": round(max(times), 2)}


async def windows(served: Served) -> dict[str, Any]:
    """The first window, then each kind of window some times."""
    first = await timed(lambda: served.get("topics"))
    queries: dict[str, tuple[str, dict[str, Any]]] = {
        "topics": ("topics", {}),
        "topics, 500 rows at the end": ("topics", {"offset": TOPICS - 500, "limit": 500}),
        "topics sorted": ("topics", {"sort": "-under_replicated"}),
        "topics filtered": ("topics", {"filter": "9-9"}),
        "topics filtered and sorted": ("topics", {"filter": "99", "sort": "-partitions"}),
        "topics with problems": ("topics", {"only": "problems"}),
        "problems": ("problems", {}),
        "overview": ("overview", {}),
    }
    found: dict[str, Any] = {"first window_ms": round(first, 2)}
    for name, (path, query) in queries.items():
        found[name] = figures([await timed(partial(served.get, path, **query)) for _ in ROUNDS])
    return found


async def updates(served: Served) -> dict[str, float]:
    """From a commit to the event at a viewer."""
    times = []
    async with served.events() as events:
        await events.next("overview")
        for number in (*ROUNDS, *ROUNDS):
            await asyncio.sleep(0.4)
            in_sync = (1, 2) if number % 2 == 0 else (1, 2, 3)
            served.commit(PartitionChangeRecord(UUID(int=1), 0, isr=in_sync))
            times.append(await timed(lambda: events.next("changed")))
    return figures(times)


async def viewers(served: Served) -> dict[str, float]:
    """The share of the loop that some viewers take while an ISR changes each second."""

    async def used() -> float:
        began, used_s = time.perf_counter(), time.process_time()
        number = 0
        while time.perf_counter() - began < VIEWED_S:
            number += 1
            in_sync = (1, 2) if number % 2 == 0 else (1, 2, 3)
            served.commit(PartitionChangeRecord(UUID(int=1), 0, isr=in_sync))
            await asyncio.sleep(1.0)
        return (time.process_time() - used_s) / (time.perf_counter() - began)

    before = await used()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VIEWER, str(served.port), str(VIEWERS)
    )
    await asyncio.sleep(2.0)
    during = await used()
    child.terminate()
    await child.wait()
    return {"percent of the loop": round(100 * (during - before), 2)}


async def measure() -> dict[str, Any]:
    """All figures."""
    async with serving() as served:
        fill(served)
        found: dict[str, Any] = {"all is well": await windows(served)}
        served.commit(fence(1))
        in_sync = [
            PartitionChangeRecord(UUID(int=number + 1), one, isr=(2, 3), leader=2)
            for number in range(0, TOPICS, BROKERS)
            for one in range(PARTITIONS)
        ]
        served.commit(*in_sync)
        found["a broker is gone"] = await windows(served)
        found["from a commit to the page"] = await updates(served)
        found[f"{VIEWERS} viewers"] = await viewers(served)
    async with serving() as served:
        fill(served)
        tracemalloc.start()
        await served.get("topics")
        found["memory_mb"] = round(tracemalloc.get_traced_memory()[0] / 1e6, 2)
        tracemalloc.stop()
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench-console.json"))
    output = parser.parse_args().output
    found = asyncio.run(measure())
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report(found), indent=2))


if __name__ == "__main__":
    main()
