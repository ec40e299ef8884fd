"""`python -m tests.bench.metrics.node PROPERTIES RECORD`: a node that counts or does not count.

The node runs as ever. SIGUSR1 takes the bodies of the functions in `COUNTING` away, SIGUSR2 gives
them back: the calls remain, all that they do is gone. A broker serves its metrics over HTTP.

A line of JSON each tenth of a second goes to RECORD: the time (`perf_counter`, which all processes
of a machine share), the longest turn of the event loop's thread since the line before, in
milliseconds of processor time and of the clock, and the thread's processor time so far.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, cast

from broker.metrics import RequestTimes, TopicCounts
from raftctl.cli.files import read_config_file
from raftctl.config.addresses import Listener
from raftctl.localcluster.ports import free_ports
from raftctl.metrics import Distribution, Metrics
from raftctl.node import Node
from raftctl.quorum import RaftMetrics
from tests.bench.measured_node import run_noting, run_until_killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from raftctl.config import NodeConfig
    from raftctl.runtime.real import RealRuntime

COUNTING: tuple[Callable[..., object], ...] = (
    RequestTimes.sent,
    TopicCounts.appended,
    TopicCounts.refused,
    TopicCounts.checked,
    TopicCounts.read,
    RaftMetrics.on_committed,
    RaftMetrics._on_append,
    Distribution.add,
    Metrics.tick,
)
LOOK_S = 0.002
"""A turn of the loop that is longer than this is seen whole."""
LINE_S = 0.1


def nothing(*_: object, **__: object) -> None:
    """In the place of each of `COUNTING`."""


class Switch:
    """Takes the bodies of `COUNTING` away, and gives them back."""

    def __init__(self) -> None:
        self._functions = [cast("FunctionType", one) for one in COUNTING]
        self._bodies = [one.__code__ for one in self._functions]

    def off(self) -> None:
        """Count nothing from now on."""
        for function in self._functions:
            function.__code__ = nothing.__code__

    def on(self) -> None:
        """Count again."""
        for function, body in zip(self._functions, self._bodies, strict=True):
            function.__code__ = body


async def note_turns(path: str) -> None:
    """Append a line each tenth of a second, for ever."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    now, own = perf_counter(), thread_time()
    line_at, longest, longest_own = now + LINE_S, 0.0, 0.0
    while True:
        await asyncio.sleep(LOOK_S)
        before, own_before, now, own = now, own, perf_counter(), thread_time()
        longest = max(longest, now - before - LOOK_S)
        longest_own = max(longest_own, own - own_before)
        if now >= line_at:
            line = {"at": now, "ms": longest * 1e3, "own_ms": longest_own * 1e3, "thread_s": own}
            os.write(file, json.dumps(line).encode() + b"\n")
            line_at, longest, longest_own = now + LINE_S, 0.0, 0.0


def with_http(config: NodeConfig, record: str) -> NodeConfig:
    """The configuration with a listener for HTTP; its port is in a file beside the record."""
    if not config.is_broker:
        return config
    (port,) = free_ports(1)
    with open(f"{record}.port", "w", encoding="ascii") as file:
        file.write(str(port))
    return config.model_copy(update={"http_listener": Listener("HTTP", "127.0.0.1", port)})


async def _run(properties: str, record: str, runtime: RealRuntime) -> None:
    node = Node(with_http(read_config_file(properties), record), runtime)
    loop, switch = asyncio.get_running_loop(), Switch()
    loop.add_signal_handler(signal.SIGUSR1, switch.off)
    loop.add_signal_handler(signal.SIGUSR2, switch.on)
    await run_noting(node, note_turns(record))


def main() -> None:
    """Runs the node that the command line names, until it is killed."""
    run_until_killed(_run)


if __name__ == "__main__":
    main()
