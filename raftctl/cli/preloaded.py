"""`python -m raftctl.cli.preloaded`: the process that a `NodeLauncher` has fork nodes.

Importing is most of what starting a node costs, so it is done once, before the first fork.
"""

from __future__ import annotations

import gc
import sys

from raftctl.cli import main, node_process
from raftctl.localcluster.launcher import serve
from raftctl.plugins import load_broker

BROKER_PLUGIN = "kafka"

if __name__ == "__main__":
    node_process.preload()
    load_broker(BROKER_PLUGIN)
    # What is shared stays shared: the collector would write into every object's header.
    gc.freeze()
    serve(sys.stdin, sys.stdout, main.run)
