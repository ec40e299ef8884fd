"""The quorum of the metadata log, as this node sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from raftctl.raft import QuorumStatus


class Quorum(Protocol):
    """This node's replica of the metadata log (`raftctl.quorum.RaftDriver`); for reading only."""

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch, or a number below 0."""

    @property
    def epoch(self) -> int:
        """The current epoch."""

    @property
    def is_leader(self) -> bool:
        """True if this node leads the current epoch, as far as it knows."""

    def status(self) -> QuorumStatus:
        """Return the quorum as this node sees it."""
