"""Starts the nodes of a local cluster from one process that has imported them once.

Importing is most of what starting a node costs, so `up` and `demo` import and then fork.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import Launcher, LocalCluster
    from raftctl.localcluster.layout import LocalNode

BROKER_PLUGIN = "kafka"


def start_all(cluster: LocalCluster) -> list[LocalNode]:
    """See `LocalCluster.start_all`."""
    return cluster.start_all(launcher())


def launcher() -> Launcher:
    """Starts nodes by forking this process, which has imported what they need."""
    from raftctl.cli import main, node_process
    from raftctl.localcluster.processes import fork_node
    from raftctl.plugins import load_broker

    node_process.preload()
    load_broker(BROKER_PLUGIN)
    # What is shared stays shared: the collector would write into every object's header.
    gc.freeze()
    return partial(fork_node, run=main.run)
