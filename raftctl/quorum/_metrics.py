"""Metrics of a replica of the metadata log, under the names of Apache Kafka's raft-metrics."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from raftctl.metrics import Distribution, Family, Meter, Sample, counter, gauge, single, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataImage
    from raftctl.metrics import Metrics
    from raftctl.quorum._driver import RaftDriver
    from raftctl.raft.messages import Offset

_PREFIX = "kafka_server_raftmetrics"
STATE = gauge(
    f"{_PREFIX}_current_state",
    "1 for the role that this replica has in the quorum: leader, follower, observer and others.",
    "current_state",
)
LEADER = gauge(f"{_PREFIX}_current_leader", "Node id of the leader; -1 while none is known.")
VOTE = gauge(f"{_PREFIX}_current_vote", "Node id that got the vote in this epoch; -1 for none.")
EPOCH = gauge(f"{_PREFIX}_current_epoch", "Epoch of the quorum.")
END = gauge(f"{_PREFIX}_log_end_offset", "End of the metadata log on this node.")
HIGH_WATERMARK = gauge(f"{_PREFIX}_high_watermark", "Below it the log is known to be committed.")
VOTERS = gauge(f"{_PREFIX}_number_of_voters", "Voters that are in effect here.")
APPENDED = gauge(
    f"{_PREFIX}_append_records_rate", "Records a second that the leader appends, over a minute."
)
FETCHED = gauge(
    f"{_PREFIX}_fetch_records_rate",
    "Records a second that are fetched from the leader, over a minute.",
)
LATENCY_AVERAGE = gauge(
    f"{_PREFIX}_commit_latency_avg",
    "Milliseconds from append to commit, mean of half a minute.",
)
LATENCY = summary("raftctl_raft_commit_latency_ms", "Milliseconds from append to commit.")
FSYNCS = counter("raftctl_raft_fsyncs_total", "Syncs of the metadata log since the start.")
LAG = gauge(
    "raftctl_raft_replica_lag",
    "Records that a replica lacks of the leader's log; known by the leader alone.",
    "replica",
)
_OBSERVER = "observer"
_US = 1_000_000
_MS_OF_US = 0.001
_RECENT_TICKS = 6
"""Half a minute, as Apache Kafka's means."""


class RaftMetrics:
    """A listener of the driver that measures what it does."""

    def __init__(self, driver: RaftDriver, metrics: Metrics) -> None:
        """Measure from now on, before the driver starts."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._latency = Distribution()
        self._measured = deque([(0, 0)], _RECENT_TICKS)
        """Number and sum of all latencies at the newest ticks."""
        self._probe: tuple[Offset, float] | None = None
        """An append that is not committed, with its time: one at a time is measured."""
        self._appended, self._fetched = Meter(), Meter()
        self._end: Offset = driver.log.end_offset
        driver.on_append = self._on_append
        driver.add_listener(self)
        metrics.keep(self, self._appended, self._fetched, self._latency)
        metrics.add(self._collect)

    def on_committed(self, high_watermark: Offset) -> None:
        """End the measurement of an append that is committed."""
        if self._probe is not None and high_watermark > self._probe[0]:
            self._latency.add(int((self._loop.time() - self._probe[1]) * _US))
            self._probe = None

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Forget an append that may be lost."""
        self._probe = None

    def on_snapshot(self, image: MetadataImage) -> None:
        """Nothing is measured of a snapshot."""

    def tick(self) -> None:
        """Count by how much the log has grown; what was truncated meanwhile is not counted."""
        end = self._driver.log.end_offset
        grown, self._end = max(0, end - self._end), end
        meter = self._appended if self._driver.is_leader else self._fetched
        meter.count += grown
        self._measured.append((self._latency.count, self._latency.total))

    def _on_append(self, offset: Offset) -> None:
        if self._probe is None:
            self._probe = (offset, self._loop.time())

    def _collect(self) -> Iterator[Family]:
        status = self._driver.status()
        role = status.role if self._driver.core.is_voter else _OBSERVER
        yield Family(STATE, [Sample((role,), 1)])
        yield single(LEADER, status.leader_id)
        yield single(VOTE, self._driver.core.voted_id)
        yield single(EPOCH, status.epoch)
        yield single(END, status.log_end_offset)
        yield single(HIGH_WATERMARK, status.high_watermark)
        yield single(VOTERS, len(status.voter_set))
        yield single(APPENDED, self._appended.rates[1])
        yield single(FETCHED, self._fetched.rates[1])
        yield single(LATENCY_AVERAGE, self._mean_latency_ms())
        yield Family(LATENCY, [Sample((), self._latency.summary(_MS_OF_US))])
        yield single(FSYNCS, self._driver.log.fsyncs)
        # A node with a new directory may be there twice: as the voter that it was, and as it is.
        ends = {one.node_id: one.log_end_offset for one in (*status.voters, *status.observers)}
        yield Family(
            LAG,
            [
                Sample((str(node_id),), max(0, status.log_end_offset - end))
                for node_id, end in ends.items()
            ],
        )

    def _mean_latency_ms(self) -> float:
        """The mean of the recent ones; 0 if nothing was committed."""
        count, total = self._measured[0]
        measured = self._latency.count - count
        return (self._latency.total - total) / measured * _MS_OF_US if measured else 0.0
