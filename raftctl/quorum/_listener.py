"""What the quorum's driver asks of those who apply what it commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage
    from raftctl.raft.messages import Offset


class RaftListener(Protocol):
    """Who applies what the quorum commits. Called in offset order, on the event loop."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Every record below `high_watermark` is committed."""

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """See `raftctl.raft.events.LeaderChanged`."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """The image takes the place of everything heard so far; it is committed and newer.

        Happens only while this node does not lead.
        """
