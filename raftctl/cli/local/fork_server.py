"""`python -m raftctl.cli.local.fork_server`: the process that a `NodeLauncher` has fork nodes.

Importing is most of what starting a node costs, so it is done once, before the first fork.
"""

from __future__ import annotations

import gc
import sys

from raftctl.cli import _node_process as node_process
from raftctl.cli import main as command_line
from raftctl.localcluster.fork_server import serve_nodes
from raftctl.plugins import load_broker

BROKER_PLUGIN = "kafka"


def main() -> None:
    """Imports what nodes need, then forks one for each request."""
    node_process.preload()
    load_broker(BROKER_PLUGIN)
    # What is shared stays shared: the collector would write into every object's header.
    gc.freeze()
    serve_nodes(sys.stdin, sys.stdout, command_line.run)


if __name__ == "__main__":
    main()
