"""`python -m raftctl.cli.local.fork_server`: the process that a `NodeLauncher` has fork nodes.

Importing is most of what starting a node costs, so it is done once, before the first fork. What
only brokers need is imported with the first of them. So controllers, which start first, elect a
leader meanwhile, and they hold less memory.
"""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.cli import _node_process as node_process
from raftctl.cli import main as command_line
from raftctl.config import parse_properties
from raftctl.errors import ConfigError
from raftctl.localcluster.fork_server import serve_nodes
from raftctl.plugins import preload_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKER_PLUGIN = "kafka"


def main() -> None:
    """Imports what nodes need, then forks one for each request."""
    with _uncollected():
        node_process.preload()
    serve_nodes(sys.stdin, sys.stdout, _prepare, command_line.run)


def _prepare(properties: str) -> None:
    # The node itself says what is wrong with its file.
    with suppress(OSError, UnicodeDecodeError, ConfigError):
        values = parse_properties(Path(properties).read_text(encoding="utf-8"))
        if "broker" in values.get("process.roles", ""):
            _preload(values.get("broker.plugin", BROKER_PLUGIN))


@cache
def _preload(plugin: str) -> None:
    with _uncollected():
        preload_broker(plugin)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep what is imported meanwhile out of all collections of garbage, in the nodes too.

    They take an eighth of the time, for hardly a megabyte that is garbage. In a node they would
    write into the header of every object, which would no longer be shared then.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    main()
