"""Runs one node in this process: the plain form of `raftctl start`, with no more than it needs."""

from __future__ import annotations

import asyncio
import importlib
import signal
from typing import TYPE_CHECKING

from raftctl.cli.files import read_config_file
from raftctl.errors import DiskError

if TYPE_CHECKING:
    from collections.abc import Sequence


def preload() -> None:
    """Imports what `run_start` will, for a process that forks nodes."""
    for name in ("raftctl.runtime.real", "raftctl.node._node"):
        importlib.import_module(name)


def run_start(config_path: str, overrides: Sequence[str]) -> None:
    """Runs the node; ConfigError before anything is changed on disk."""
    config = read_config_file(config_path, overrides)
    from raftctl.node import run_node
    from raftctl.runtime.real import RealRuntime, make_collector

    async def until_stopped() -> None:
        node = asyncio.ensure_future(run_node(config, runtime, owns_loop=True))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.cancel)
        try:
            await node
        except asyncio.CancelledError:
            runtime.log.info("node_stopped", node_id=config.node_id)

    runtime = RealRuntime()
    collector = make_collector()
    collector.start()
    try:
        with asyncio.Runner(loop_factory=runtime.new_event_loop) as runner:
            runner.run(until_stopped())
    except OSError as error:
        if error.filename is None:
            raise
        why = f"{error.filename}: {error.strerror}; what was not on disk was not acknowledged"
        raise DiskError(
            f"{why}: make room or repair the disk, then start the node again"
        ) from error
    finally:
        collector.stop()
        runtime.close()
