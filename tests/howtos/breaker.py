"""Breaks a cluster of `raftctl up` for `jepsen test --env external --control`, as a reader would.

`python -m tests.howtos.breaker DIR CALL [NAME]`; the calls are those of the page test-any-kafka.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from raftctl.localcluster.cluster import LocalCluster


def main(directory: str, call: str, *names: str) -> None:
    """Does what is asked of the node, or lists all."""
    cluster = LocalCluster.load(Path(directory))
    if call == "nodes":
        for node in cluster.layout.nodes:
            sys.stdout.write(f"{node.role} {node.name} {node.node_id}\n")
        return
    (name,) = names
    node = cluster.layout.node(name)
    process = cluster.process(node)
    if call == "start" and not cluster.is_running(node):
        cluster.start(node)
    elif call == "kill":
        cluster.kill(node)
    elif call == "stop":
        cluster.stop(node)
    elif call in ("pause", "resume") and process is not None:
        process.send(signal.SIGSTOP if call == "pause" else signal.SIGCONT)


if __name__ == "__main__":
    main(*sys.argv[1:])
