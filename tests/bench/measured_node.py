"""Runs a node whose process notes what is measured, else as `raftctl node start` would."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from raftctl.runtime.real import RealRuntime, make_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from raftctl.node import Node


def run_until_killed(run: Callable[[str, str, RealRuntime], Coroutine[None, None, None]]) -> None:
    """`run` gets the two arguments of the command line, a file of properties and one to note in."""
    properties, record = sys.argv[1:]
    runtime = RealRuntime()
    collector = make_collector()
    collector.start()
    try:
        asyncio.run(run(properties, record, runtime))
    finally:
        collector.stop()
        runtime.close()


async def run_noting(node: Node, noting: Coroutine[None, None, None]) -> None:
    """Runs the node until it ends, with what notes something of it beside."""
    asyncio.get_running_loop().set_exception_handler(node.on_unhandled)
    task = asyncio.create_task(noting)
    try:
        await node.run()
    finally:
        task.cancel()
