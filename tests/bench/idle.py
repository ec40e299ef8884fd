"""What six nodes without work use: processor time, wakes, memory.

A wake is a thread that gave up the processor by itself and got it again, as the system counts them
(`voluntary_ctxt_switches`), over all threads of a node.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from tests.bench.cluster import local_cluster, wait_in_sync
from tests.bench.figures import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

SETTLE_S = 5.0
TURN_S = 10.0
MEBIBYTE = 1 << 20
_WAKES = "voluntary_ctxt_switches:"


class _Used(NamedTuple):
    """By all nodes since they were started; wakes by node."""

    cpu_s: float
    wakes: Sequence[int]


def run(turns: int) -> dict[str, Any]:
    """Figures of three controllers and three brokers that nobody asks for anything."""
    cpu, wakes, memory = [], [], []
    with local_cluster() as cluster:
        wait_in_sync(cluster)
        found = [cluster.process(node) for node in cluster.layout.nodes]
        nodes = [psutil.Process(one.pid) for one in found if one is not None]
        time.sleep(SETTLE_S)
        for _ in range(turns):
            began, before = time.perf_counter(), _used(nodes)
            time.sleep(TURN_S)
            after, elapsed = _used(nodes), time.perf_counter() - began
            cpu.append((after.cpu_s - before.cpu_s) / elapsed * 100)
            woken = [b - a for a, b in zip(before.wakes, after.wakes, strict=True)]
            wakes.append(max(woken) / elapsed)
            memory.append(max(node.memory_info().rss for node in nodes) / MEBIBYTE)
    return {
        "idle_cpu": figure(cpu, "% of a core", "3+3 nodes together; goal: at most 1.5", 2),
        "idle_wakes": figure(wakes, "1/s", "of the busiest node; goal: at most 20", 1),
        "idle_memory": figure(memory, "MiB", "of the largest node; goal: at most 60", 1),
    }


def _used(nodes: Sequence[psutil.Process]) -> _Used:
    times = [node.cpu_times() for node in nodes]
    return _Used(sum(one.user + one.system for one in times), [wakes_of(one.pid) for one in nodes])


def wakes_of(pid: int) -> int:
    """Of all threads of a process since it was started."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        count += sum(int(one.split()[1]) for one in lines if one.startswith(_WAKES))
    return count
