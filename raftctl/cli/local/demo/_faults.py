"""What the demo breaks while lines are written: the active controller, then a partition leader.

Runs on a thread of its own. Times are seconds from the kill, as the controllers' HTTP API shows
them, asked every 20 ms.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from raftctl.localcluster.layout import ClusterLayout, LocalNode
    from raftctl.localcluster.status import ClusterStatus

_POLL_S = 0.02
_RECOVERY_TIMEOUT_S = 60.0
_STATUS_TIMEOUT_S = 0.5


@dataclass(slots=True)
class FaultTimes:
    """What was killed and how long the cluster took; None until it happened."""

    controller: str | None = None
    broker: str | None = None
    new_controller_s: float | None = None
    """From the kill to the first commit of the next controller."""
    new_leader_s: float | None = None
    """From the kill until every partition has a leader that lives."""
    healed_s: float | None = None
    """From the restart until every replica is in sync again."""


class BreakableCluster(Protocol):
    """What the faults need of a `LocalCluster`."""

    layout: ClusterLayout

    def status(self, timeout_s: float) -> ClusterStatus:
        """What the controllers say now."""

    def kill(self, node: LocalNode) -> None:
        """Kills the node and waits until it is gone."""

    def start(self, node: LocalNode) -> None:
        """Starts the node."""

    @property
    def log_hint(self) -> str:
        """Where the nodes write what they do."""


class FaultPlan:
    """Kills and restarts nodes of a local cluster."""

    def __init__(self, cluster: BreakableCluster, tell: Callable[[str], None]) -> None:
        self.times = FaultTimes()
        self._cluster = cluster
        self._tell = tell
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="faults")
        self._work: Future[None] | None = None

    def start(self) -> None:
        """Begins."""
        self._work = self._pool.submit(self._break_and_heal)

    @property
    def is_done(self) -> bool:
        """Whether all faults are over and healed, or went wrong."""
        return self._work is not None and self._work.done()

    def result(self) -> FaultTimes:
        """Waits until all that was started is over.

        KafkaError if the cluster did not recover in time.
        """
        if self._work is not None:
            self._work.result()
        return self.times

    def cancel(self) -> None:
        """Ends the work; nothing is killed or started any more when this returns."""
        self._stop.set()
        self._pool.shutdown()

    def _break_and_heal(self) -> None:
        times, cluster = self.times, self._cluster
        before = self._wait("a controller to lead", lambda status: status.leader is not None)
        controller = cluster.layout.node(_leader_of(before)["node_id"])
        times.controller = controller.name
        cluster.kill(controller)
        killed_s = time.monotonic()
        self._tell(f"killed {controller.name}, the active controller")
        self._wait("a new controller", _NewControllerCommitted(_leader_of(before)))
        times.new_controller_s = time.monotonic() - killed_s

        now = self._wait("every partition to have a leader", _no_partition_is_offline)
        broker = cluster.layout.node(_busiest_leader(_leader_of(now)))
        times.broker = broker.name
        cluster.kill(broker)
        killed_s = time.monotonic()
        self._tell(f"killed {broker.name}, a partition leader")
        self._wait("new partition leaders", lambda status: _is_replaced(status, broker.node_id))
        times.new_leader_s = time.monotonic() - killed_s

        restarted_s = time.monotonic()
        cluster.start(controller)
        cluster.start(broker)
        self._tell(f"started {controller.name} and {broker.name} again")
        self._wait("all replicas to be in sync", self._is_healed)
        times.healed_s = time.monotonic() - restarted_s

    def _is_healed(self, status: ClusterStatus) -> bool:
        leader = status.leader
        return (
            leader is not None
            and leader["under_replicated_partitions"] == 0
            and len(status.active_brokers) == len(self._cluster.layout.brokers)
        )

    def _wait(self, what: str, is_so: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        deadline_s = time.monotonic() + _RECOVERY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            status = self._cluster.status(_STATUS_TIMEOUT_S)
            if is_so(status):
                return status
            if self._stop.wait(_POLL_S):
                raise _Cancelled
        waited = f"waited {_RECOVERY_TIMEOUT_S:g} s for {what}: see {self._cluster.log_hint}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, waited)


class _Cancelled(Exception):
    """The demo ends early."""


class _NewControllerCommitted:
    """True once a controller of a later epoch has committed what its log held when first seen.

    Its log held the record that begins its epoch, so this is a commit of that epoch.
    """

    def __init__(self, before: dict[str, Any]) -> None:
        self._epoch = before["epoch"]
        self._first_seen: tuple[int, int] | None = None

    def __call__(self, status: ClusterStatus) -> bool:
        leader = status.leader
        if leader is None or leader["epoch"] <= self._epoch:
            return False
        if self._first_seen is None or self._first_seen[0] != leader["epoch"]:
            self._first_seen = leader["epoch"], leader["log_end_offset"]
        committed = leader["high_watermark"]
        return committed is not None and committed >= self._first_seen[1]


def _leader_of(status: ClusterStatus) -> dict[str, Any]:
    if status.leader is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller leads")
    return status.leader


def _no_partition_is_offline(status: ClusterStatus) -> bool:
    return status.leader is not None and status.leader["offline_partitions"] == 0


def _busiest_leader(leader: dict[str, Any]) -> int:
    """The broker that leads most partitions, the lowest id among equals."""
    brokers = [broker for broker in leader["brokers"] if not broker["fenced"]]
    busiest = max(brokers, key=lambda broker: (broker["leaders"], -broker["broker_id"]))
    broker_id: int = busiest["broker_id"]
    return broker_id


def _is_replaced(status: ClusterStatus, broker_id: int) -> bool:
    """Whether the broker leads nothing any more and every partition has a leader."""
    if not _no_partition_is_offline(status):
        return False
    return all(
        broker["leaders"] == 0
        for broker in _leader_of(status)["brokers"]
        if broker["broker_id"] == broker_id
    )
