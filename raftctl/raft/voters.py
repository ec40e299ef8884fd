"""Voter sets: their members, the progress of a majority, and changes by the log.

A static set comes from the configuration (`controller.quorum.voters`): directory ids are unknown,
and any directory of that node id is the voter. A dynamic set comes from a `VotersRecord`, a control
record that takes effect as soon as it is appended (KIP-853); what is truncated never was.
Raft §5.2, §5.4.2 and §4.1 of the thesis.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import lt
from typing import TYPE_CHECKING, ClassVar, TypeVar

from raftctl.codec import Codec, CodecError
from raftctl.errors import invariant
from raftctl.raft.messages import Offset, ReplicaKey, Voter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import NodeId, OffsetAndEpoch

Number = TypeVar("Number", bound=int)

NOT_IN_LOG = Offset(-1)
"""The offset of a set that no record of the log made."""


class VoterSet:
    """An immutable set of voters, in order of their node ids.

    Only a dynamic set may be empty: of a replica whose log does not name the voters yet.
    """

    __slots__ = ("_by_id", "dynamic", "ids")

    def __init__(self, voters: Iterable[ReplicaKey | Voter], *, dynamic: bool = False) -> None:
        """Voters given by key only have no address: only tests and simulations do without."""
        known = (v if isinstance(v, Voter) else Voter(v, "", 0) for v in voters)
        ordered = sorted(known, key=lambda voter: voter.replica.node_id)
        self._by_id = {voter.replica.node_id: voter for voter in ordered}
        self.ids: tuple[NodeId, ...] = tuple(self._by_id)
        self.dynamic = dynamic
        invariant(len(self.ids) == len(ordered), "voters have distinct node ids")
        invariant(dynamic or len(self.ids) > 0, "a static set has voters")

    def __contains__(self, replica: ReplicaKey) -> bool:
        """Whether this very replica votes: the same node with another directory does not."""
        voter = self._by_id.get(replica.node_id)
        if voter is None:
            return False
        directory_id = voter.replica.directory_id
        return directory_id is None or directory_id == replica.directory_id

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({self.voters}, dynamic={self.dynamic})"

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters in order."""
        return tuple(self._by_id.values())

    @property
    def majority(self) -> int:
        """Number of voters that decide; any two majorities share a voter."""
        return len(self.ids) // 2 + 1

    def key(self, node_id: NodeId) -> ReplicaKey:
        """Return the voter of this node id; KeyError if there is none."""
        return self._by_id[node_id].replica

    def voter(self, node_id: NodeId) -> Voter | None:
        """Return the voter of this node id with its address, if there is one."""
        return self._by_id.get(node_id)

    def others(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """Return the voters' node ids without this one, in order."""
        return tuple(voter for voter in self.ids if voter != node_id)

    def reached_by_majority(self, values: Iterable[Number]) -> Number:
        """Return the greatest value that a majority has reached, given the value of each voter."""
        ordered = sorted(values, reverse=True)
        invariant(len(ordered) == len(self.ids), "one value for each voter")
        return ordered[self.majority - 1]

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with this voter in place of the one with its node id, if any."""
        others = [v for v in self.voters if v.replica.node_id != voter.replica.node_id]
        return VoterSet([*others, voter], dynamic=True)

    def without(self, node_id: NodeId) -> VoterSet:
        """Without the voter of this node id."""
        others = [v for v in self.voters if v.replica.node_id != node_id]
        return VoterSet(others, dynamic=True)


@dataclass(frozen=True, slots=True)
class VotersRecord:
    """Control record: all voters from here on."""

    TYPE_ID: ClassVar[int] = 4
    voters: tuple[Voter, ...]


NOT_KNOWN = VoterSet((), dynamic=True)
"""The voters of a replica that has yet to find its quorum (`format --no-initial-controllers`)."""

_CODEC: Codec[VotersRecord] = Codec.tagged(VotersRecord)
_ARRAY = 0x90
"""MessagePack: the upper half of the first byte of a short array."""


def encode_voters(voters: VoterSet) -> bytes:
    """Return the payload of the control batch that makes this the voter set."""
    return _CODEC.pack(VotersRecord(voters.voters))


def decode_voters(payload: bytes) -> VoterSet | None:
    """Return the set that a control batch makes; None if it is another control record."""
    if len(payload) < 2 or payload[0] & 0xF0 != _ARRAY or payload[1] != VotersRecord.TYPE_ID:
        return None
    return VoterSet(_CODEC.unpack(payload).voters, dynamic=True)


def is_sound_control(payload: bytes) -> bool:
    """Return whether a control batch can be read; one of voters has some, each node once."""
    if len(payload) < 2 or payload[0] & 0xF0 != _ARRAY or payload[1] != VotersRecord.TYPE_ID:
        return True
    try:
        voters = _CODEC.unpack(payload).voters
    except CodecError:
        return False
    return 0 < len(voters) == len({voter.replica.node_id for voter in voters})


class VoterHistory:
    """The voter sets along the log; the newest counts, committed or not."""

    __slots__ = ("_entries",)

    def __init__(self, base: VoterSet) -> None:
        """`base` is the set at the start of the log."""
        self._entries: list[tuple[Offset, VoterSet]] = [(NOT_IN_LOG, base)]

    @property
    def base(self) -> VoterSet:
        """The set at the start of the log."""
        return self._entries[0][1]

    @property
    def newest(self) -> VoterSet:
        """The set in effect."""
        return self._entries[-1][1]

    @property
    def newest_offset(self) -> Offset:
        """Offset of its record; `NOT_IN_LOG` if it is older than the log."""
        return self._entries[-1][0]

    def invariants(self, end_offset: Offset) -> None:
        """Check that the sets stand in the order of a log that ends there."""
        offsets = [offset for offset, _ in self._entries]
        invariant(offsets[0] == NOT_IN_LOG, "the first set is that of the start of the log")
        invariant(all(map(lt, offsets, offsets[1:])), "voters' records stand one after the other")
        invariant(offsets[-1] < end_offset, "the record of the voters in effect is in the log")

    def at(self, end_offset: Offset) -> VoterSet:
        """Return the set that the records below `end_offset` make."""
        return next(v for offset, v in reversed(self._entries) if offset < end_offset)

    def since(self, end_offset: Offset) -> Iterator[VoterSet]:
        """Return the set that the records below `end_offset` make, and all after it."""
        yield self.at(end_offset)
        yield from (voters for offset, voters in self._entries if offset >= end_offset)

    def appended(self, batch: Batch) -> bool:
        """Take note of a batch; return whether it changes the voters."""
        voters = decode_voters(batch.payload) if batch.control else None
        if voters is not None:
            self._entries.append((batch.base_offset, voters))
        return voters is not None

    def truncated(self, end_offset: Offset) -> None:
        """Go back to the set before the records that are gone."""
        while self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def started(self, start: OffsetAndEpoch) -> None:
        """Note that the log starts here now: one set is enough for what is before."""
        base = self.at(start.offset)
        later = [entry for entry in self._entries if entry[0] >= start.offset]
        self._entries = [(NOT_IN_LOG, base), *later]
