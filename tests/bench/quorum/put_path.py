"""`python -m tests.bench.quorum.put_path`: processor time of a put, by leader, followers, client.

Three voters and their client share one process, one thread and one event loop, so that the time is
the thread's own (`thread_time`) and what else the machine does hardly shows. What a callback of the
loop costs is counted for the part in whose context it runs. Files are in memory, where there is
such a file system: a sync is a call that ends at once. With `--calls` strace(1) counts the system
calls of one more turn, of all parts together.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from asyncio import events
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.config import make_config
from raftctl.controller_channel import CLIENT_ID
from raftctl.localcluster.layout import (
    FIRST_CONTROLLER_ID,
    ClusterLayout,
    LocalNode,
    initial_controllers,
    node_values,
)
from raftctl.localcluster.ports import free_ports
from raftctl.node import Node
from raftctl.rpc import open_channel
from raftctl.rpc.codec import PROTOCOL_VERSION, Hello
from raftctl.runtime.connector import LoopConnector
from raftctl.runtime.real import RealRuntime, make_collector
from tests.bench.quorum.load import Load
from tests.bench.quorum.voters import POLL_S, VOTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""
MICROSECONDS = 1e6
PATIENCE_MS = "60000"
"""Of followers with the leader, however busy the machine is."""
CALLS_SHOWN = 8
LOOP = "loop"
"""What belongs to no part: the event loop's own turns."""
_part: contextvars.ContextVar[str] = contextvars.ContextVar("part", default=LOOP)


class Meter:
    """Seconds of processor time and callbacks of the loop, by part."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.callbacks: defaultdict[str, float] = defaultdict(float)

    def attached(self) -> AbstractContextManager[object]:
        """Measure while the context lasts."""
        run = events.Handle._run

        def measured(handle: Any) -> None:
            part = handle._context.get(_part, LOOP)
            began = time.thread_time()
            run(handle)
            self.seconds[part] += time.thread_time() - began
            self.callbacks[part] += 1

        return mock.patch.object(events.Handle, "_run", measured)

    def clear(self) -> None:
        """Begin again."""
        self.seconds.clear()
        self.callbacks.clear()


def _layout() -> ClusterLayout:
    ids = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + VOTERS)
    nodes = [
        LocalNode(f"controller-{node_id}", node_id, "controller", port)
        for node_id, port in zip(ids, free_ports(VOTERS), strict=True)
    ]
    configs = (
        ("controller.quorum.election.timeout.ms", "500"),
        ("controller.quorum.fetch.timeout.ms", PATIENCE_MS),
    )
    return ClusterLayout(random_uuid_text(), tuple(nodes), configs)


def _in_part(part: str) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(_part.set, part)
    return context


async def _start(layout: ClusterLayout, directory: Path) -> dict[str, Node]:
    loop = asyncio.get_running_loop()
    first = initial_controllers(layout, random_uuid_text)
    nodes: dict[str, Node] = {}
    for local in layout.nodes:
        values = node_values(layout, local, str(directory / local.name / "data"))
        (directory / local.name).mkdir()
        config = make_config(values, lambda _: None)
        format_storage(config, layout.cluster_id, first)
        context = _in_part(local.name)
        node = context.run(Node, config, RealRuntime(log_level="error"))
        nodes[local.name] = node
        await loop.create_task(node.start(), context=context)
    return nodes


def _is_active(node: Node) -> bool:
    """Whether it has committed the first records of its epoch, and takes puts."""
    leads = node.driver is not None and node.driver.is_leader
    return leads and node.loader is not None and node.loader.image.offset >= 0


@contextmanager
def _calls_counted(calls: Counter[str], path: Path) -> Iterator[None]:
    """Count the process's system calls by name while the context lasts."""
    command = ["strace", "-c", "-f", "-U", "calls,name", "-o", str(path), "-p", str(os.getpid())]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        if strace.stderr is None or "attached" not in strace.stderr.readline():
            raise RuntimeError("strace cannot trace this process")
        yield
        strace.send_signal(signal.SIGINT)
    rows = [line.split() for line in path.read_text().splitlines()]
    calls.update({row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()})


async def measure(
    directory: Path, outstanding: int, value_bytes: int, seconds: float, turns: int, *, calls: bool
) -> dict[str, float]:
    """Microseconds and callbacks of a put by part: the medians of some turns."""
    layout = _layout()
    nodes = await _start(layout, directory)
    leader = ""
    while not leader:
        await asyncio.sleep(POLL_S)
        leader = next((name for name, node in nodes.items() if _is_active(node)), "")
    address = next(local.address for local in layout.nodes if local.name == leader)
    arguments = argparse.Namespace(
        outstanding=outstanding, value_bytes=value_bytes, warmup=0.0, seconds=seconds
    )
    meter = Meter()
    rows = []
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()

    async def load() -> int:
        put = _load(address, layout.cluster_id, arguments)
        return await loop.create_task(put, context=_in_part("client"))

    with meter.attached():
        for _ in range(turns):
            meter.clear()
            began = time.thread_time()
            puts = await load()
            rows.append(_row(meter, leader, puts, time.thread_time() - began))
    if calls:
        with _calls_counted(counts, directory / "calls"):
            puts = await load()
    for node in nodes.values():
        await node.stop()
    figures = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    figures |= {f"calls of {name}": count / puts for name, count in counts.most_common(CALLS_SHOWN)}
    return {name: round(value, 3) for name, value in figures.items()}


def _row(meter: Meter, leader: str, puts: int, spent: float) -> dict[str, float]:
    followers = [part for part in meter.seconds if part not in (leader, "client", LOOP)]
    of = {"leader": [leader], "followers": followers, "client": ["client"]}
    row = {name: _sum(meter.seconds, parts) / puts * MICROSECONDS for name, parts in of.items()}
    row["loop and rest"] = spent / puts * MICROSECONDS - sum(row.values())
    row["all"] = spent / puts * MICROSECONDS
    for name, parts in of.items():
        row[f"{name}: callbacks"] = _sum(meter.callbacks, parts) / puts
    return row


def _sum(counts: Mapping[str, float], parts: Sequence[str]) -> float:
    return sum(counts.get(part, 0.0) for part in parts)


async def _load(address: str, cluster_id: str, arguments: argparse.Namespace) -> int:
    async with aiohttp.ClientSession(connector=LoopConnector()) as session:
        hello = Hello(PROTOCOL_VERSION, cluster_id, CLIENT_ID)
        channel = await open_channel(session, address, hello)
        load = Load(channel, arguments)
        try:
            await load.run()
        finally:
            await channel.close()
    return load.sent


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.quorum.put_path", description=__doc__)
    parser.add_argument("--outstanding", type=int, default=256)
    parser.add_argument("--value-bytes", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--calls", action="store_true", help="count system calls; needs strace")
    arguments = vars(parser.parse_args())
    collector = make_collector()
    collector.start()
    where = MEMORY if MEMORY.is_dir() else None
    runtime = RealRuntime(log_level="error")
    with (
        tempfile.TemporaryDirectory(prefix="raftctl-bench-", dir=where) as directory,
        asyncio.Runner(loop_factory=runtime.new_event_loop) as runner,
    ):
        figures = runner.run(measure(Path(directory), **arguments))
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    collector.stop()


if __name__ == "__main__":
    main()
