"""The quorum's settings: times in milliseconds, Apache Kafka's names and defaults.

Sources: KIP-595 and Kafka's `controller.quorum.*` keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftctl.errors import invariant
from raftctl.raft.messages import NodeId


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Settings of the quorum that an operator may tune."""

    election_timeout_ms: int = 1000
    """A campaign lasts, and a voter without a leader waits, a random time in [this, 2 x this)."""
    fetch_timeout_ms: int = 2000
    """A follower that got no answer from its leader for so long looks for a new one."""
    election_backoff_max_ms: int = 1000
    """The longest pause before a retry, or before a successor that is not the first campaigns."""
    request_timeout_ms: int = 2000
    """The driver reports `RequestFailed` for a request not answered in this time."""
    retry_backoff_ms: int = 20
    """The pause before the first retry; it doubles with every further failure."""
    fetch_max_wait_ms: int = 500
    """The time for which the leader may hold a Fetch that it has nothing to answer with."""
    commit_delay_ms: int = 5
    """The time a commit may wait for more records until the leader answers the voters with it."""
    fetch_max_bytes: int = 8 * 1024 * 1024
    """The largest answer to a Fetch, unless its first batch alone is larger."""

    snapshot_max_bytes: int = 1024 * 1024
    """The largest piece of a snapshot that one request asks for."""
    bootstrap_ids: tuple[NodeId, ...] = ()
    """Stand-ins, below -1, for `controller.quorum.bootstrap.servers`, whose ids are not known: an
    observer asks them for the leader as it asks voters (KIP-853)."""

    def __post_init__(self) -> None:
        least = min(self.election_timeout_ms, self.fetch_timeout_ms, self.retry_backoff_ms)
        invariant(least > 0, "the quorum's timeouts and back-off are positive")

    @property
    def check_quorum_ms(self) -> int:
        """A leader that no majority fetched from for so long resigns (KIP-595, KAFKA-15489)."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def disk_hangs_ms(self) -> int:
        """A leader resigns whose disk has lacked for so long what others have committed."""
        return self.fetch_timeout_ms

    @property
    def rivalry_ms(self) -> int:
        """Time for which two candidates of one epoch wait for the others' votes."""
        return max(1, self.election_timeout_ms // 10)

    @property
    def fetch_wait_ms(self) -> int:
        """Time for which the own Fetch may wait: a quiet leader must not look like a dead one."""
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 4)

    def backoff_ms(self, failures: int) -> int:
        """Return the pause after this many failures in a row (at least one)."""
        doublings = min(failures - 1, self.election_backoff_max_ms.bit_length())
        return min(self.retry_backoff_ms << doublings, self.election_backoff_max_ms)

    def succession_ms(self, position: int, successors: int) -> int:
        """Return how long the successor at this position leaves the field to those before it.

        Nothing for the first, then strictly exponential, so that at most one campaigns at a time.
        """
        return 0 if position == 0 else self.election_backoff_max_ms >> (successors - position)
