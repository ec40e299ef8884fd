"""Properties of the snapshots of metadata on any disk, one function each.

A snapshot takes the place of the log before it, so it has to equal a replay of that log: records,
keys, sessions and locks, and voters. The scheme is that of
`jepsen.simulator.properties._invariants`.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jepsen.simulator.disk import SimDisk
from jepsen.simulator.properties._invariants import VoterKey
from raftctl.loader import image_of
from raftctl.storage.snapshots import CorruptSnapshotError, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.properties._invariants import ImageHistory, QuorumHistory
    from raftctl.raft.messages import OffsetAndEpoch

SUFFIX = ".checkpoint"
_COPY = "/copy"


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """A whole snapshot on the disk of a node."""

    node_id: int
    end_offset: int
    image: object
    voters: tuple[VoterKey, ...]
    """The voters; None where they are those of the configuration."""


def snapshot_is_the_image_at_its_end(images: ImageHistory, view: SnapshotView) -> str | None:
    """A node that loads it has the image of replicas that applied each record."""
    known = images.images.get(view.end_offset - 1)
    if known is None or known == view.image:
        return None
    return f"{view.node_id}, offset {view.end_offset}: {view.image} instead of {known}"


def snapshot_names_the_voters_at_its_end(quorum: QuorumHistory, view: SnapshotView) -> str | None:
    """Neither older voters nor such as were appended later, which may yet be lost (KIP-853)."""
    ends = sorted(quorum.voter_sets)
    before = ends[: bisect_right(ends, view.end_offset)][-1:]
    after = ends[bisect_left(ends, view.end_offset) :][:1]
    possible = [set(quorum.voter_sets[end]) for end in (*before, *after)]
    if not (before and after and view.voters) or set(view.voters) in possible:
        return None
    return f"{view.node_id}, offset {view.end_offset}: {view.voters} instead of {possible}"


class SnapshotReader:
    """Reads each snapshot once that comes to the disk of one life of a node."""

    def __init__(self, node_id: int, disk: SimDisk, directory: str) -> None:
        self._node_id = node_id
        self._disk = disk
        self._directory = directory
        self._seen: set[str] = set()

    def new(self) -> Iterator[SnapshotView]:
        """Yield the whole snapshots that were written since the last call.

        Those that the disk has corrupted are left out: the node finds them by their checksums.
        """
        files = self._disk.durable(self._directory)
        names = [name for name in files if name.endswith(SUFFIX) and name not in self._seen]
        for name in names:
            self._seen.add(name)
            found = self._read(name, bytes(files[name].durable))
            if found is not None:
                yield found

    def _read(self, name: str, content: bytes) -> SnapshotView | None:
        copy = SimDisk(random.Random(0), _heard_by_nobody)
        copy.make_directories(_COPY)
        copy.open(f"{_COPY}/{name}", create=True).append([content])
        store = SnapshotStore(copy, _COPY)
        snapshot_id: OffsetAndEpoch | None = store.find(name)
        if snapshot_id is None or snapshot_id.offset == 0:
            return None  # What the formatting wrote is nobody's image.
        try:
            snapshot = store.read(snapshot_id)
        except CorruptSnapshotError:
            return None
        voters = snapshot.voters.voters if snapshot.voters is not None else ()
        keys = tuple((one.replica.node_id, one.replica.directory_id) for one in voters)
        return SnapshotView(self._node_id, snapshot_id.offset, image_of(snapshot), keys)


def _heard_by_nobody(_: str) -> None:
    pass
