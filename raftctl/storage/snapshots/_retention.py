"""Which snapshots, and with them which prefix of the log, are kept no longer (row Q6).

Kafka's rules (KIP-630): only what a newer snapshot holds may go, so the newest always stays; the
oldest goes first, while log and snapshots are larger than `metadata.max.retention.bytes` or while
it is older than `metadata.max.retention.ms`. -1 stands for no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.raft.messages import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.storage.snapshots._store import SnapshotFile


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much to keep."""

    max_bytes: int
    max_ms: int

    def expired(
        self,
        snapshots: Sequence[SnapshotFile],
        log_bytes_from: Callable[[Offset], int],
        wall_ms: int,
    ) -> list[SnapshotFile]:
        """The snapshots to delete; `snapshots` are in order, the oldest first.

        The log then starts at the end of the first one that is left, if any is expired.
        """
        gone = 0
        while gone < len(snapshots) - 1:
            size = sum(snapshot.size for snapshot in snapshots[gone:])
            size += log_bytes_from(snapshots[gone].snapshot_id.offset if gone else Offset(0))
            too_large = 0 <= self.max_bytes < size
            too_old = 0 <= self.max_ms < wall_ms - snapshots[gone].timestamp_ms
            if not (too_large or too_old):
                break
            gone += 1
        return list(snapshots[:gone])
