"""Restarts the nodes of a running cluster one after the other, so that clients can go on (row A5).

A node goes down only while everything that it does can be done by others: a controller leads and
the other voters have all that it has committed, every broker is active, every replica is in sync.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.layout import LocalNode
from raftctl.localcluster.ports import serves
from raftctl.localcluster.processes import postponed_signals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from raftctl.localcluster.layout import ClusterLayout
    from raftctl.localcluster.status import ClusterStatus

_POLL_S = 0.05
_PROBE_S = 1.0
_TELL_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Restarted:
    """One node that went down and is in full service again."""

    node: LocalNode
    seconds: float
    """From the signal to the moment when the next node may go."""
    killed: bool
    """Whether it did not stop by itself in time."""


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """How to restart the nodes of a cluster one by one."""

    cluster: LocalCluster
    grace_s: float
    """How long a node may take to stop before it is killed."""
    timeout_s: float
    """How long to wait before each node, and after the last, until all is in sync."""
    progress: Callable[[str], None]

    def run(self, nodes: Sequence[LocalNode]) -> list[Restarted]:
        """Restarts the nodes: controllers, the active one last, then brokers.

        KafkaError if the cluster is not in sync before a node's turn, or does not come back: the
        nodes not yet restarted then go on as they are.
        """
        done = []
        self._check_all_run()
        status = self._wait_in_sync("the first node")
        waiting = list(nodes)
        while waiting:
            node = next_node(waiting, status)
            waiting.remove(node)
            began_s = time.monotonic()
            killed = self._restart(node)
            status = self._wait_in_sync(node.name)
            done.append(Restarted(node, time.monotonic() - began_s, killed))
            late = f", killed after {self.grace_s:g} s" if killed else ""
            self.progress(f"{node.name} restarted in {done[-1].seconds:.1f} s{late}")
        return done

    def _restart(self, node: LocalNode) -> bool:
        # Interrupted in between, the cluster would be left without the node.
        with postponed_signals():
            killed = self.cluster.stop(node, self.grace_s)
            self.cluster.start(node)
        return killed

    def _wait_in_sync(self, what: str) -> ClusterStatus:
        deadline_s = time.monotonic() + self.timeout_s
        tell_at_s = time.monotonic() + _TELL_EVERY_S
        while True:
            status = self.cluster.status()
            lacking = what_lacks(self.cluster.layout, status, self._lives_ms())
            lacking = lacking or self._silent_broker()
            if not lacking:
                return status
            self._check_all_run()
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{what}: not in sync after {self.timeout_s:g} s: {lacking}; no further node "
                    f"was restarted: see {self.cluster.log_hint}, or give a longer --timeout",
                )
            if now_s >= tell_at_s:
                self.progress(f"{what}: waiting: {lacking}")
                tell_at_s = now_s + _TELL_EVERY_S
            time.sleep(_POLL_S)

    def _check_all_run(self) -> None:
        for name, why in self.cluster.stopped().items():
            of_broker = self.cluster.layout.node(name).role == "broker"
            code = ErrorCode.BROKER_NOT_AVAILABLE if of_broker else ErrorCode.REPLICA_NOT_AVAILABLE
            remedy = f"raftctl up --dir {self.cluster.directory} starts it"
            raise KafkaError(code, f"{name} does not run: {why}: {remedy}")

    def _lives_ms(self) -> dict[int, float]:
        now_s = time.time()
        processes = {one.node_id: self.cluster.process(one) for one in self.cluster.layout.nodes}
        return {
            node_id: (now_s - process.started) * 1000
            for node_id, process in processes.items()
            if process is not None
        }

    def _silent_broker(self) -> str:
        """Controllers take a broker that was killed for active until its session ends."""
        for broker in self.cluster.layout.brokers:
            if not serves(broker.host, broker.port, _PROBE_S):
                return f"{broker.name} does not serve"
        return ""


def next_node(waiting: Iterable[LocalNode], status: ClusterStatus) -> LocalNode:
    """Of those that wait: controllers first, and of these the active one last.

    So the leader of the quorum moves once, not again with each controller that is restarted.
    """
    leader_id = status.leader["node_id"] if status.leader else None
    return min(
        waiting,
        key=lambda one: (one.role != "controller", one.node_id == leader_id, one.node_id),
    )


def what_lacks(layout: ClusterLayout, status: ClusterStatus, lives_ms: Mapping[int, float]) -> str:
    """Why no node may go down now; empty if one may. `lives_ms`: how long each node has run."""
    leader = status.leader
    if leader is None:
        return "no controller leads"
    fetched_ms = {one["node_id"]: one["last_fetch_age_ms"] for one in leader["voters"]}
    for controller in layout.controllers:
        answer = status.answers.get(controller.address)
        if answer is None:
            return f"{controller.name} does not answer"
        behind = leader["high_watermark"] - answer["log_end_offset"]
        if behind > 0:
            return f"{controller.name} is {behind} records behind"
        # What its disk and the leader remember of its former life says nothing of this one.
        age_ms = 0 if answer is leader else fetched_ms.get(controller.node_id)
        if age_ms is None or age_ms >= lives_ms.get(controller.node_id, 0):
            return f"{controller.name} does not follow yet"
    return _unserved(layout, leader)


def _unserved(layout: ClusterLayout, leader: dict[str, Any]) -> str:
    serving = {
        one["broker_id"]
        for one in leader["brokers"]
        if not one["fenced"] and not one["in_controlled_shutdown"]
    }
    for broker in layout.brokers:
        if broker.node_id not in serving:
            return f"{broker.name} is not active yet"
    for what in ("offline", "under-replicated"):
        count = leader[f"{what.replace('-', '_')}_partitions"]
        if count:
            return f"{count} {what} partitions"
    return ""
