"""A consumer group of the classic protocol: its members and what follows from them.

Source: the group membership protocol of Apache Kafka ("Consumer Client Re-Design"), KIP-394 (member
ids), KIP-345 (static members), KIP-814 (static leaders without assignment).
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.groups.classic._embedded_protocol import subscription_of
from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.groups._records import GroupMemberValue, GroupValue
    from broker.protocol.messages import consumer as wire

NO_PROTOCOL = ""
CONSUMER_PROTOCOL = "consumer"


class State(enum.Enum):
    """Where a group stands; the values are those that clients see.

    A group without members stays EMPTY as long as it has offsets. DEAD is said of a group that does
    not exist.
    """

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are to join the next generation."""
    COMPLETING = "CompletingRebalance"
    """They have, and wait for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


_SUCCESSORS = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.PREPARING, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.STABLE, State.PREPARING},
    State.STABLE: {State.PREPARING},
    State.DEAD: set[State](),
}
"""The states that may follow each state. A rebalance follows itself where a broker loads a group
that was downgraded: its members have yet to join. Nobody is in a dead group, which has no record.
"""


@dataclass(slots=True)
class Member:
    """One consumer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: int | None = None
    """The request id of its JoinGroup that waits for the others."""
    syncing: int | None = None
    """The request id of its SyncGroup that waits for the leader."""
    is_new: bool = True
    """True until it has been in a generation."""
    epochs: range | None = None
    """The epochs that it may be in, in the group of KIP-848 that this was, until it is in a
    generation."""

    @property
    def is_static(self) -> bool:
        """True if the member keeps its place under an instance id (KIP-345)."""
        return self.instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata under this protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it likes best of those all members know. There is one: a member that
        shares no protocol with all others is refused when it joins.
        """
        return next(name for name, _ in self.protocols if name in candidates)


@dataclass(slots=True)
class Group:
    """A group; `rebalance.Rebalancer` moves it from state to state."""

    group_id: str
    state: State = State.EMPTY
    protocol_type: str | None = None
    """The type; None for a group that only commits offsets."""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    """The members in the order in which they came: the first leads."""
    statics: dict[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids given out that have not joined yet (KIP-394)."""
    unsynced: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment."""
    state_wall_ms: int = -1
    """The time at which it came into its state."""
    delaying: bool = False
    """True while the first member still waits for others."""
    delay_ends_ms: int = 0
    """The time at which that is over, however many still join."""
    begun: int = field(init=False, compare=False, default=0)
    """The newest generation that has begun."""

    def __post_init__(self) -> None:
        self.begun = self.generation

    def enter(self, state: State, wall_ms: int) -> None:
        """Change the state.

        A generation begins once, with COMPLETING. A member of an older one that found its number in
        use again would commit offsets of partitions that another member reads by now.
        """
        invariant(state in _SUCCESSORS[self.state], "a group takes a step there is")
        if state is State.COMPLETING:
            invariant(self.generation > self.begun, "a generation is newer than those before")
            self.begun = self.generation
        self.state, self.state_wall_ms = state, wall_ms

    def invariants(self) -> None:
        """Stop the program if the group is in a state that no sequence of requests leads to.

        Costs as much as the group has members, so it is called when a rebalance begins or ends.
        """
        members, empty = self.members, self.state is State.EMPTY
        invariant(self.generation >= 0, "generations count from 0")
        invariant(not empty or not members, "an empty group has no members")
        waits = members or self.is_in(State.PREPARING, State.EMPTY)
        invariant(bool(waits), "a generation has members")
        invariant((self.leader is None) or self.leader in members, "the leader is a member")
        invariant(not members or self.protocol_type is not None, "members are of one kind")
        agreed = self.protocol is not None or self.is_in(State.PREPARING, State.EMPTY)
        invariant(agreed, "a generation has a protocol")
        invariant(self.pending.keys().isdisjoint(members), "a member has joined")
        invariant(self.unsynced.keys() <= members.keys(), "only members are waited for")
        synced = not self.unsynced or self.is_in(State.COMPLETING, State.STABLE)
        invariant(synced, "members sync within a generation")
        statics = {m.instance_id: name for name, m in members.items() if m.is_static}
        invariant(self.statics == statics, "an instance id names its member, and only it")
        for name, member in members.items():
            invariant(member.member_id == name, "a member is found by its id")
            joins = member.joining is None or self.state is State.PREPARING
            invariant(joins, "a join is answered with the generation")
            syncs = member.syncing is None or self.state is State.COMPLETING
            invariant(syncs, "a sync is answered with the assignment")

    def is_in(self, *states: State) -> bool:
        """Return whether the group is in one of these states."""
        return self.state in states

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time within which members must join or sync."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """True if no member is waited for."""
        waiting = all(one.joining is not None for one in self.members.values())
        return waiting and not self.pending

    def is_current(self, member: Member, generation: int) -> bool:
        """Return whether the generation that a member names is the present one."""
        if member.epochs is not None:
            return generation in member.epochs
        return generation == self.generation

    def add(self, member: Member) -> None:
        """Take a member in."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member:
        """Remove a member; if it led, the oldest of the others leads."""
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.statics.pop(member.instance_id, None)
        self.unsynced.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def elect_joined(self) -> bool:
        """Make a member that has joined the leader, unless the present one has joined.

        Returns False if no member has: static members alone are left, and none of them is back. A
        leader that does not come would never send the assignment that the others wait for.
        """
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        joined = (one.member_id for one in self.members.values() if one.joining is not None)
        found = next(joined, None)
        if found is not None:
            self.leader = found
        return found is not None

    def candidates(self, *, without: str | None = None) -> set[str]:
        """Return the protocols that all members know, but for one."""
        known = [
            {name for name, _ in one.protocols}
            for one in self.members.values()
            if one.member_id != without
        ]
        return set.intersection(*known) if known else set()

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a caller with these protocols can be a member."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(self.candidates() & names)

    def selected_protocol(self) -> str:
        """Return the protocol with most votes; of several the one first voted for."""
        candidates = self.candidates()
        votes = Counter(one.vote(candidates) for one in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that members of a consumer group read; None if unknown."""
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = _topics_of(member.metadata(self.protocol))
            if found is None:
                return None
            topics |= found
        return topics

    def offsets_kept(self) -> tuple[set[str] | None, int]:
        """Return the topics whose offsets are in use (None: all), and since when the group is
        without members (-1: it never had any).
        """
        if self.is_in(State.PREPARING, State.COMPLETING):
            return None, -1
        if self.members:
            return self.subscribed_topics(), -1
        return set(), self.state_wall_ms if self.protocol_type else -1

    def members_for_leader(self) -> list[wire.JoinGroupResponseMember]:
        """Return the members as the leader's JoinGroup response lists them."""
        return [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "metadata": one.metadata(self.protocol),
            }
            for one in self.members.values()
        ]

    def record(self, wall_ms: int, assignments: dict[str, bytes]) -> GroupValue:
        """Return the fields of its record, with assignments by member id."""
        return {
            "protocol_type": self.protocol_type or "",
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "current_state_timestamp": wall_ms,
            "members": [
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.instance_id,
                    "client_id": one.client_id,
                    "client_host": one.client_host,
                    "rebalance_timeout": one.rebalance_timeout_ms,
                    "session_timeout": one.session_timeout_ms,
                    "subscription": one.metadata(self.protocol),
                    "assignment": assignments.get(one.member_id, b""),
                }
                for one in self.members.values()
            ],
        }

    @classmethod
    def of_record(cls, group_id: str, fields: GroupValue) -> Group:
        """Return the group as it was when the record was written: its generation goes on.
        ValueError if the record contradicts itself.

        Without a leader nobody has assigned its partitions: it was of KIP-848 a moment before, and
        its members are to join.
        """
        _check_record(fields)
        members = [_member_of(one, fields["protocol"] or NO_PROTOCOL) for one in fields["members"]]
        group = cls(
            group_id,
            _state_of_record(fields),
            fields["protocol_type"] or None,
            fields["generation"],
            fields["protocol"],
            fields["leader"],
            state_wall_ms=fields.get("current_state_timestamp", -1),
        )
        for member in members:
            group.add(member)
            if group.is_in(State.PREPARING):
                member.epochs = range(group.generation + 1)
        return group

    def message(self) -> wire.DescribeGroupsResponseDescribedGroup:
        """Return the group for DescribeGroups; during a rebalance with the last assignments."""
        stable = self.state is State.STABLE
        return {
            "error_code": 0,
            "group_id": self.group_id,
            "group_state": self.state.value,
            "protocol_type": self.protocol_type or "",
            "protocol_data": (self.protocol or "") if stable else "",
            "members": [
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.instance_id,
                    "client_id": one.client_id,
                    "client_host": one.client_host,
                    "member_metadata": one.metadata(self.protocol) if stable else b"",
                    "member_assignment": one.assignment,
                }
                for one in self.members.values()
            ],
        }


def _check_record(fields: GroupValue) -> None:
    ids = [one["member_id"] for one in fields["members"]]
    instances = [i for one in fields["members"] if (i := one.get("group_instance_id")) is not None]
    named_once = len(set(ids)) == len(ids) and len(set(instances)) == len(instances)
    led = fields["leader"] in (None, *ids)
    typed = not ids or bool(fields["protocol_type"])
    agreed = not ids or fields["leader"] is None or fields["protocol"] is not None
    if not (named_once and led and typed and agreed and fields["generation"] >= 0):
        raise ValueError("GroupMetadataValue: the members contradict the rest")


def _state_of_record(fields: GroupValue) -> State:
    if not fields["members"]:
        return State.EMPTY
    return State.PREPARING if fields["leader"] is None else State.STABLE


def _member_of(fields: GroupMemberValue, protocol: str) -> Member:
    session = fields["session_timeout"]
    return Member(
        fields["member_id"],
        fields.get("group_instance_id"),
        fields["client_id"],
        fields["client_host"],
        session,
        fields.get("rebalance_timeout", session),
        ((protocol, bytes(fields["subscription"])),),
        bytes(fields["assignment"]),
        is_new=False,
    )


def _topics_of(metadata: bytes) -> set[str] | None:
    """The topics of a consumer's subscription."""
    try:
        return set(subscription_of(metadata).topics)
    except ValueError:
        return None
