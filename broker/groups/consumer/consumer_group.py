"""A consumer group of KIP-848 as its records say: members, their partitions and their targets.

Reconciliation stands here, too: the step of one member from its partitions towards its target. A
partition that moves is first revoked by the member that has it. When that member has reported that
it owns the partition no more, the next one gets it. So no member waits for all others, as it does
in a classic rebalance, and no partition is ever owned by two.

Source: KIP-848 ("Group Membership", "Member Assignment"), KIP-1101 (the hash of topics).
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from immutables import Map

from broker.groups._consumer_records import (
    ConsumerKey,
    Kind,
    Slot,
    record,
    slots_of,
    topic_partitions,
    value_of,
)
from raftctl.errors import invariant
from raftctl.metadata.image import TopicsImage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from broker.coordinator.core import KeyValue
    from broker.groups._consumer_records import (
        ClassicMemberValue,
        ClassicProtocolValue,
        CurrentValue,
        GroupEpochValue,
        MemberTargetValue,
        MemberValue,
        RegexValue,
        TargetEpochValue,
    )

LEFT = -1
"""The member epoch with which a member leaves."""
LEFT_FOR_A_WHILE = -2
"""The same of a static member that keeps its place, and its epoch until somebody takes that."""


class MemberState(enum.IntEnum):
    """State of a member on the way to its target; the values are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it comes to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that others have not revoked."""


class State(enum.Enum):
    """State of a group; the values are those that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ClassicMember(NamedTuple):
    """State of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, its metadata for it), those it likes best first."""

    @property
    def protocol(self) -> str:
        """The protocol of its assignments: the one it likes best."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One consumer."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[Slot] = frozenset()
    revoking: frozenset[Slot] = frozenset()
    """The partitions that it has yet to revoke."""
    classic: ClassicMember | None = None
    """The classic protocol's fields; None for a member of the consumer protocol."""

    @property
    def holds(self) -> frozenset[Slot]:
        """Partitions that no other member may be given."""
        return self.assigned | self.revoking

    @property
    def subscription(self) -> tuple[tuple[str, ...], str | None]:
        """Topics that the member reads."""
        return (self.topic_names, self.topic_regex)


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression stood for, and when."""

    topics: tuple[str, ...]
    version: int
    """Counts up."""
    timestamp_ms: int
    """Wall clock."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group; changed by the replay of its records only.

    Each kind of record may be the first one that is left of a group, and each may be missing:
    compaction keeps the newest of every key. So no replay may rely on another that was before.
    """

    group_id: str
    epoch: int = 0
    """Rises when members, what they read, or the topics change."""
    metadata_hash: int = 0
    assignment_epoch: int = 0
    """The group epoch for which the targets were made."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Slot]] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    owners: dict[Slot, str] = field(default_factory=dict)
    """The member that holds each partition."""
    known_topics: TopicsImage | None = None
    """The topics for which the hash was looked at last. This and what follows is not of the log."""
    known_names: Map[str, UUID] | None = None
    """The topics for which the regular expressions were looked at last."""
    resolve_again_ms: int = 0
    """The time from which they may be looked at again."""
    refresh_ms: int = 0
    """The time from which they must be, whether topics have changed or not."""

    # --- invariants -----------------------------------------------------------------------------

    def invariants(self) -> None:
        """Stop the program if the records say what the rules never write.

        Costs as much as the group has partitions. `check_member` looks at one member.
        """
        invariant(0 <= self.assignment_epoch <= self.epoch, "targets are of an epoch there was")
        held = [slot for one in self.members.values() for slot in one.holds]
        invariant(len(held) == len(set(held)), "a partition is held by one member")
        invariant(self.owners.keys() == set(held), "a partition that nobody holds is free")
        for name in self.members:
            self.check_member(name)
        invariant(self.targets.keys() <= self.members.keys(), "only members have targets")
        wanted = [slot for target in self.targets.values() for slot in target]
        invariant(len(wanted) == len(set(wanted)), "a partition is the target of one member")
        statics = {m.instance_id: name for name, m in self.members.items() if m.instance_id}
        invariant(self.statics == statics, "an instance id names its member, and only it")

    def check_member(self, member_id: str) -> None:
        """Stop the program if the records of one member contradict each other or the group's."""
        member = self.members.get(member_id)
        if member is None:
            return
        invariant(member.member_id == member_id, "a member is found by its id")
        invariant(member.epoch >= LEFT_FOR_A_WHILE, "a member has left at most for a while")
        invariant(member.epoch <= self.epoch, "a member is in an epoch that the group has seen")
        invariant(member.assigned.isdisjoint(member.revoking), "what is revoked is not assigned")
        revokes = member.state is MemberState.UNREVOKED_PARTITIONS
        invariant(revokes == bool(member.revoking), "a member waits for what it is to revoke")
        owned = all(self.owners.get(slot) == member_id for slot in member.holds)
        invariant(owned, "what a member holds is given to no other")

    # --- records --------------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: bytes | None) -> None:
        """Take a record of the log; ValueError if it cannot be understood."""
        fields = None if value is None else value_of(key.kind, value)
        match key.kind:
            case Kind.GROUP if fields is not None:
                self.epoch, self.metadata_hash = fields["epoch"], fields["metadata_hash"]
            case Kind.TARGET:
                self.assignment_epoch = 0 if fields is None else fields["assignment_epoch"]
            case Kind.MEMBER:
                self._replay_member(key.part, fields)
            case Kind.TARGET_OF_MEMBER:
                self._replay_target(key.part, fields)
            case Kind.CURRENT:
                self._replay_current(key.part, fields)
            case Kind.REGEX:
                self._replay_regex(key.part, fields)

    def _replay_member(self, member_id: str, fields: MemberValue | None) -> None:
        """Take what a member says of itself, and keep what other records say of it.

        A tombstone comes after those of its other records. It frees what the member holds, also
        when compaction has left only this one.
        """
        before = self.members.get(member_id)
        if fields is None:
            self._set_current(ConsumerMember(member_id))
            self.members.pop(member_id, None)
            instance_id = None if before is None else before.instance_id
            if instance_id is not None and self.statics.get(instance_id) == member_id:
                del self.statics[instance_id]
            return
        self.members[member_id] = replace(
            before or ConsumerMember(member_id),
            instance_id=fields["instance_id"],
            rack_id=fields["rack_id"],
            client_id=fields["client_id"],
            client_host=fields["client_host"],
            topic_names=tuple(fields["subscribed_topic_names"]),
            topic_regex=fields["subscribed_topic_regex"],
            rebalance_timeout_ms=fields["rebalance_timeout_ms"],
            server_assignor=fields["server_assignor"],
            classic=_classic_of(fields["classic_member_metadata"]),
        )
        if fields["instance_id"] is not None:
            self.statics[fields["instance_id"]] = member_id

    def _replay_target(self, member_id: str, fields: MemberTargetValue | None) -> None:
        self.targets.pop(member_id, None)
        if fields is not None:
            self.targets[member_id] = slots_of(fields["topic_partitions"])

    def _replay_current(self, member_id: str, fields: CurrentValue | None) -> None:
        """Take a member's epoch and partitions. The record may come before that of the member:
        compaction keeps the newest of each, in the order in which they were written.
        """
        member = self.members.get(member_id, ConsumerMember(member_id))
        if fields is None:
            if member_id in self.members:
                self._set_current(
                    replace(member, epoch=0, assigned=frozenset(), revoking=frozenset())
                )
            return
        self._set_current(
            replace(
                member,
                epoch=fields["member_epoch"],
                previous_epoch=fields["previous_member_epoch"],
                state=MemberState(fields["state"]),
                assigned=slots_of(fields["assigned_partitions"]),
                revoking=slots_of(fields["partitions_pending_revocation"]),
            )
        )

    def _set_current(self, member: ConsumerMember) -> None:
        """Replace a member, and keep `owners` true. An owner is removed only from partitions that
        are still its own: a later record may have given them to another already.
        """
        member_id = member.member_id
        before = self.members.get(member_id)
        for slot in sorted(before.holds - member.holds) if before is not None else ():
            if self.owners.get(slot) == member_id:
                del self.owners[slot]
        for slot in sorted(member.holds):
            self.owners[slot] = member_id
        self.members[member_id] = member

    def _replay_regex(self, regex: str, fields: RegexValue | None) -> None:
        self.regexes.pop(regex, None)
        if fields is not None:
            topics = tuple(fields["topics"])
            self.regexes[regex] = ResolvedRegex(topics, fields["version"], fields["timestamp"])

    # --- what follows ---------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """State of the group."""
        if not self.members:
            return State.EMPTY
        if self.epoch > self.assignment_epoch:
            return State.ASSIGNING
        if all(map(self._has_arrived, self.members.values())):
            return State.STABLE
        return State.RECONCILING

    def _has_arrived(self, member: ConsumerMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    def topics_of(self, member: ConsumerMember) -> Iterator[str]:
        """Return the names of the topics that a member reads; some may not exist."""
        yield from member.topic_names
        resolved = self.regexes.get(member.topic_regex or "")
        if resolved is not None:
            yield from resolved.topics

    def all_are_classic(self) -> bool:
        """Return whether the group has members, and none of the consumer protocol."""
        return bool(self.members) and all(one.classic for one in self.members.values())

    def subscribed_topics(self) -> set[str]:
        """Return the topics that members read."""
        return {name for one in self.members.values() for name in self.topics_of(one)}

    def offsets_kept(self) -> tuple[set[str] | None, int]:
        """Return the topics whose offsets are in use, and when the group became empty. That is not
        known: offsets are as old as their commits.
        """
        return self.subscribed_topics(), -1


def hash_of(names: Iterable[str], topics: TopicsImage) -> int:
    """Return a number that changes when these topics do; 0 if none of them exists."""
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(set(names)):
        topic = topics.by_name(name)
        if topic is not None:
            found = True
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def _classic_of(fields: ClassicMemberValue | None) -> ClassicMember | None:
    if fields is None:
        return None
    protocols = tuple(
        (one["name"], bytes(one["metadata"])) for one in fields["supported_protocols"]
    )
    return ClassicMember(fields["session_timeout_ms"], protocols)


def _classic_fields(member: ClassicMember | None) -> ClassicMemberValue | None:
    if member is None:
        return None
    protocols: list[ClassicProtocolValue] = [
        {"name": name, "metadata": metadata} for name, metadata in member.protocols
    ]
    return {"session_timeout_ms": member.session_timeout_ms, "supported_protocols": protocols}


# --- records of a group ---------------------------------------------------------------------------


def group_record(group: ConsumerGroup, epoch: int, metadata_hash: int) -> KeyValue:
    """Return the record of the group's epoch."""
    fields: GroupEpochValue = {"epoch": epoch, "metadata_hash": metadata_hash}
    return record(ConsumerKey(Kind.GROUP, group.group_id), fields)


def member_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """Return the record of a member's own statements."""
    fields: MemberValue = {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_member_metadata": _classic_fields(member.classic),
    }
    return record(ConsumerKey(Kind.MEMBER, group_id, member.member_id), fields)


def current_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """Return the record of a member's current assignment."""
    fields: CurrentValue = {
        "member_epoch": member.epoch,
        "previous_member_epoch": member.previous_epoch,
        "state": member.state,
        "assigned_partitions": topic_partitions(member.assigned),
        "partitions_pending_revocation": topic_partitions(member.revoking),
    }
    return record(ConsumerKey(Kind.CURRENT, group_id, member.member_id), fields)


def target_record(group_id: str, member_id: str, target: frozenset[Slot]) -> KeyValue:
    """Return the record of a member's target assignment."""
    fields: MemberTargetValue = {"topic_partitions": topic_partitions(target)}
    return record(ConsumerKey(Kind.TARGET_OF_MEMBER, group_id, member_id), fields)


def assignment_record(group_id: str, epoch: int) -> KeyValue:
    """Return the record that all targets of this group epoch are written."""
    fields: TargetEpochValue = {"assignment_epoch": epoch}
    return record(ConsumerKey(Kind.TARGET, group_id), fields)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> KeyValue:
    """Return the record of a regular expression's topics; a tombstone when it is no longer used."""
    fields: RegexValue | None = None
    if resolved is not None:
        fields = {
            "topics": resolved.topics,
            "version": resolved.version,
            "timestamp": resolved.timestamp_ms,
        }
    return record(ConsumerKey(Kind.REGEX, group_id, regex), fields)


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """Return the records that remove a member."""
    kinds = (Kind.CURRENT, Kind.TARGET_OF_MEMBER, Kind.MEMBER)
    return [record(ConsumerKey(kind, group_id, member_id), None) for kind in kinds]


def group_tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """Return the records that remove a group and its members."""
    members = [one for name in group.members for one in member_tombstones(group.group_id, name)]
    regexes = [regex_record(group.group_id, one, None) for one in sorted(group.regexes)]
    kinds = (Kind.TARGET, Kind.GROUP)
    return [
        *members,
        *regexes,
        *(record(ConsumerKey(kind, group.group_id), None) for kind in kinds),
    ]


def partitions_of(topic_ids: Iterable[UUID], topics: TopicsImage) -> dict[UUID, int]:
    """Return the numbers of partitions of these topics."""
    found = {one: topics.by_id(one) for one in topic_ids}
    return {one: len(topic.partitions) for one, topic in found.items() if topic is not None}


# --- reconciliation ------------------------------------------------------------------------------


def reconciled(
    member: ConsumerMember,
    target: frozenset[Slot],
    target_epoch: int,
    owners: Mapping[Slot, str],
    owned: frozenset[Slot] | None,
) -> ConsumerMember:
    """Return the member after it has reported `owned` (None: nothing said); the same object if
    nothing changes.

    `owners` has every partition that a member has or has yet to revoke.
    """
    match member.state:
        case MemberState.UNREVOKED_PARTITIONS:
            # Its epoch ends only now. Another target may have come meanwhile: `_next` may take
            # more from it at once, before it has been in the epoch of the target before.
            if _may_own(owned, member.revoking):
                return member
            return _next(member, member.epoch + 1, target, target_epoch, owners, owned)
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case _:
            return _next(member, member.epoch, target, target_epoch, owners, owned)


def _may_own(owned: frozenset[Slot] | None, slots: frozenset[Slot]) -> bool:
    """Whether the member may still own some of these partitions.

    A heartbeat that leaves its partitions out (None) says that nothing changed since the last one.
    To read it as "owns nothing" would give a partition to a second consumer.
    """
    return owned is None or not owned.isdisjoint(slots)


def _next(
    member: ConsumerMember,
    epoch: int,
    target: frozenset[Slot],
    target_epoch: int,
    owners: Mapping[Slot, str],
    owned: frozenset[Slot] | None,
) -> ConsumerMember:
    """Return the member one step further.

    First it gives up what is not in its target. Until it reports that it has, it keeps its epoch,
    and may commit offsets of all that it held. Then it enters the target's epoch with those
    partitions that no other member holds; the rest come with later heartbeats. Partitions are never
    given before they are free, or two consumers would read one at the same time.
    """
    kept, revoking = member.assigned & target, member.assigned - target
    if revoking and _may_own(owned, revoking):
        # It stays in its epoch until it has let go of them.
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    # Also in UNRELEASED_PARTITIONS it is in the epoch of its target: it has nothing to revoke, so
    # others do not wait for it, and it may commit what it reads already.
    wanted = target - kept
    free = frozenset(one for one in wanted if owners.get(one) in (None, member.member_id))
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    return _moved(member, target_epoch, state, kept | free, frozenset())


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: frozenset[Slot],
    revoking: frozenset[Slot],
) -> ConsumerMember:
    """Return the member with these fields; the same object if it has them, so that no record is
    written for a heartbeat that changes nothing.
    """
    now = (epoch, state, assigned, revoking)
    if now == (member.epoch, member.state, member.assigned, member.revoking):
        return member
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
