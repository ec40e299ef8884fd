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
LATENCY_MAX = gauge(
    f"{_PREFIX}_commit_latency_max",
    "Milliseconds from append to commit, greatest of half a minute.",
)
ELECTION_AVERAGE = gauge(
    f"{_PREFIX}_election_latency_avg",
    "Milliseconds without a known leader until there is one, mean of half a minute.",
)
ELECTION_MAX = gauge(
    f"{_PREFIX}_election_latency_max",
    "Milliseconds without a known leader until there is one, greatest of half a minute.",
)
ELECTIONS = counter(
    "raftctl_raft_leader_changes_total", "How often a leader has come that this node knows."
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
_MS = 1_000
_MS_OF_US = 0.001
_RECENT_TICKS = 6
"""Half a minute, as Apache Kafka's means."""


class Recent:
    """Mean and maximum of what came in the last half minute."""

    def __init__(self) -> None:
        self._ticks = deque([(0, 0.0, 0.0)], _RECENT_TICKS)
        """Number, sum and maximum of the values in each tick, the present one last."""

    def add(self, value: float) -> None:
        """Take a value from 0."""
        number, total, greatest = self._ticks[-1]
        self._ticks[-1] = number + 1, total + value, max(greatest, value)

    def tick(self) -> None:
        """Begin a new tick and forget the oldest."""
        self._ticks.append((0, 0.0, 0.0))

    @property
    def mean(self) -> float:
        """Of none it is 0, as is the maximum."""
        number = sum(one[0] for one in self._ticks)
        return sum(one[1] for one in self._ticks) / number if number else 0.0

    @property
    def greatest(self) -> float:
        """The maximum."""
        return max(one[2] for one in self._ticks)


class RaftMetrics:
    """A listener of the driver that measures what it does."""

    def __init__(self, driver: RaftDriver, metrics: Metrics) -> None:
        """Measure from now on, before the driver starts."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._latency = Distribution()
        self._commits, self._elections = Recent(), Recent()
        """Their milliseconds."""
        self._leaderless_since: float | None = None
        self._leaders = 0
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
            took_s = self._loop.time() - self._probe[1]
            self._latency.add(int(took_s * _US))
            self._commits.add(took_s * _MS)
            self._probe = None

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Forget an append that may be lost; measure how long there was no leader."""
        self._probe = None
        now = self._loop.time()
        if leader_id < 0:
            if self._leaderless_since is None:
                self._leaderless_since = now
            return
        self._leaders += 1
        if self._leaderless_since is not None:
            self._elections.add((now - self._leaderless_since) * _MS)
            self._leaderless_since = None

    def on_snapshot(self, image: MetadataImage) -> None:
        """Nothing is measured of a snapshot."""

    def tick(self) -> None:
        """Count by how much the log has grown; what was truncated meanwhile is not counted."""
        end = self._driver.log.end_offset
        grown, self._end = max(0, end - self._end), end
        meter = self._appended if self._driver.is_leader else self._fetched
        meter.count += grown
        self._commits.tick()
        self._elections.tick()

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
        yield single(LATENCY_AVERAGE, self._commits.mean)
        yield single(LATENCY_MAX, self._commits.greatest)
        yield single(ELECTION_AVERAGE, self._elections.mean)
        yield single(ELECTION_MAX, self._elections.greatest)
        yield single(ELECTIONS, self._leaders)
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
