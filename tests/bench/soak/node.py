"""`python -m tests.bench.soak.node PROPERTIES RECORD`: a node that notes what it holds.

The node runs as ever. Every few seconds a line of JSON goes to RECORD, a `verdict.Sample` without
the name of the node.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING

import psutil

from raftctl.cli.files import read_config_file
from raftctl.node import Node
from tests.bench.measured_node import run_noting, run_until_killed

if TYPE_CHECKING:
    from raftctl.runtime.real import RealRuntime

EVERY_S = 5.0


async def _note(record: str) -> None:
    process = psutil.Process()
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        line = {
            "at_s": time.time(),
            "pid": process.pid,
            "memory_bytes": process.memory_info().rss,
            "files": process.num_fds(),
            "threads": process.num_threads(),
            "tasks": len(asyncio.all_tasks()),
        }
        os.write(file, json.dumps(line).encode() + b"\n")
        await asyncio.sleep(EVERY_S)


async def _run(properties: str, record: str, runtime: RealRuntime) -> None:
    await run_noting(Node(read_config_file(properties), runtime), _note(record))


def main() -> None:
    """Runs the node that the command line names, until it is killed."""
    run_until_killed(_run)


if __name__ == "__main__":
    main()
