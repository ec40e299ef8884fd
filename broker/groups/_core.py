"""The core of one partition of `__consumer_offsets`: consumer groups, their offsets.

A group is of the classic protocol or of KIP-848; one without members becomes of the other kind when
a member of that comes, and keeps its offsets; one with members as `migration.py` says. Of the
classic protocol written is what must survive the coordinator: the members of a generation with
their assignments, groups that have become empty, offsets. A rebalance under way is not: members
join again.

Two ways lead to the state. A classic group is changed in memory, and its record is written where a
generation is assigned or the group becomes empty. A KIP-848 group is changed by the replay of its
records alone. The first follows from its protocol: while members join there is nothing to record.
The second is what lets a heartbeat fail at any write and leave nothing half done.

Work on all groups goes in steps (`StepQueue`), and anything may happen between two of them. So a
group that is being deleted refuses what would write of it, and each step looks at the group again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from broker.coordinator import STEP_ITEMS, STEPS, Coordinator, StepQueue
from broker.coordinator.core import NOBODY, Answer, Core, Now
from broker.groups._classic_members import ClassicMembers
from broker.groups._consumer_records import ConsumerKey
from broker.groups._directory import CONSUMER, GroupDirectory, is_over
from broker.groups._migration import downgrade_records, downgraded, upgraded
from broker.groups._offsets import GroupOffsets
from broker.groups._records import (
    GROUP_VALUE,
    OFFSET_KEYS,
    UNSTABLE,
    GroupKey,
    group_record,
    key_of,
)
from broker.groups.classic import Group, GroupLimits, Rebalancer, State
from broker.groups.consumer import TIMERS, ConsumerGroups, ConsumerGroupSettings
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.requests import (
    Commit,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    FindGroups,
    ForgetTopics,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
)
from broker.log.batches.record_batch import NO_PRODUCER
from broker.types import CONSUMER_OFFSETS
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

    from broker.coordinator import Replicas
    from broker.coordinator.core import Effect, Journal, KeyValue, LogRecord
    from broker.groups.requests import GroupRequest
    from broker.protocol.codec import Message
    from broker.protocol.messages import consumer as wire
    from broker.types import TopicPartition
    from raftctl.metadata.image import TopicsImage
    from raftctl.plugins import BrokerContext

BIDIRECTIONAL = "bidirectional"
_MINUTE_MS = 60_000
_EXPIRY = ("expiry",)
_OF_A_GROUP = (Join, Sync, Heartbeat, Leave, ConsumerHeartbeat, DeleteOffsets, DeleteGroup)
"""Requests that may write something of a group; commits, which may come together, do too."""
_WATCHED_AT_ONCE = 100
"""Groups whose members are given the time of a session, in one turn."""


class GroupSettings(GroupLimits, ConsumerGroupSettings, Protocol):
    """Settings of groups and offsets."""

    @property
    def group_coordinator_rebalance_protocols(self) -> tuple[str, ...]:
        """The kinds of groups there may be."""

    @property
    def group_consumer_migration_policy(self) -> str:
        """disabled, upgrade, downgrade or bidirectional."""

    @property
    def offset_metadata_max_bytes(self) -> int:
        """The longest text with an offset."""

    @property
    def offsets_retention_minutes(self) -> int:
        """Time for which unused offsets are kept."""

    @property
    def offsets_retention_check_interval_ms(self) -> int:
        """Time between two searches for old offsets."""


class GroupCore(Core):
    """The groups and offsets of one partition; see `broker.coordinator.core.Core`.

    It finds the rules that a request is for, by the kind of the request and of its group. The rules
    are elsewhere: `Rebalancer`, `ConsumerGroups`, `ClassicMembers`, `GroupOffsets`.
    """

    def __init__(
        self, journal: Journal, settings: GroupSettings, new_uuid: Callable[[], str]
    ) -> None:
        """`new_uuid` makes member ids that nobody guesses."""
        self._settings = settings
        self._timers: Timers[Hashable] = Timers()
        self._is_loaded = False
        self._offsets = GroupOffsets(journal, settings.offset_metadata_max_bytes)
        self._journal = journal
        self._consumers = ConsumerGroups(journal, self._timers, settings, new_uuid)
        self._directory = GroupDirectory(self._consumers, self._offsets)
        self._groups = self._directory.classic
        self._members = Rebalancer(self._groups, journal, self._timers, settings, new_uuid)
        self._mixed = ClassicMembers(self._consumers, self._timers, new_uuid)
        self._steps = StepQueue(self._timers)
        self._upkeep = GroupUpkeep(self._directory, self._offsets)
        self._changed: dict[tuple[str, str], None] = {}
        """Group and member id of the records of KIP-848 groups that this event has written."""
        self._going: dict[str, int] = {}
        """Groups that are being deleted, each with the id of the request."""

    # --- records --------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Take a record of the log; records of kinds that are not known here stay in the log.

        Records of KIP-848 groups change the group also after an append: replay is the only way in
        which such a group changes. A classic group is changed by `Rebalancer`, which then writes
        its record, so its records count while loading only.
        """
        if key[:2] in OFFSET_KEYS:
            # Nearly all records are offsets, and a partition may have millions: look no further.
            self._offsets.replay(key, value, producer_id)
            return
        about = key_of(key)
        if isinstance(about, ConsumerKey):
            self._consumers.replay(about, value)
            if self._is_loaded:
                self._changed[about.group, about.part] = None
            if about.group in self._consumers.groups:
                self._groups.pop(about.group, None)
        elif isinstance(about, GroupKey) and not self._is_loaded:
            # Later it is this core that writes them, of groups that it has.
            self._groups.pop(about.group, None)
            if value is not None:
                group = Group.of_record(about.group, GROUP_VALUE.decode(value))
                self._groups[about.group] = group

    def replay_all(
        self, records: Iterable[LogRecord], producer_id: int = NO_PRODUCER
    ) -> list[ValueError]:
        """Take records of the log while loading; see `Core.replay_all`."""
        if producer_id != NO_PRODUCER:
            return super().replay_all(records, producer_id)
        skipped, left = [], iter(records)
        while (other := self._offsets.replay_plain(left)) is not None:
            skipped += super().replay_all([other])
        return skipped

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """Take the end of a producer's transaction: its offsets count now, or never."""
        self._offsets.ended(producer_id, commit=commit)

    def loaded(self, now: Now) -> list[Effect]:
        """Give all members the time of a session, since none has sent a heartbeat here yet.

        Classic groups whose last rebalance is unknown begin another one.
        """
        self._members.now = now
        self._is_loaded = True
        for group in self._groups.values():
            if group.is_in(State.PREPARING):
                self._members.take_over(group)
        self._steps.begin("watch", self._watch(), now.ms)
        self._timers.set(_EXPIRY, now.ms + self._settings.offsets_retention_check_interval_ms)
        return self._taken()

    def _watch(self) -> Iterator[None]:
        """Start the members' sessions, those of a few groups in each step.

        Clients send heartbeats before the last group has had its turn. Their sessions run by then,
        and are not begun again.
        """
        for count, group_id in enumerate([*self._groups, *self._consumers.groups]):
            if (group := self._groups.get(group_id)) is not None:
                self._members.watch(group)
            if (consumers := self._consumers.groups.get(group_id)) is not None:
                self._consumers.watch(consumers, self._members.now)
            if count % _WATCHED_AT_ONCE == _WATCHED_AT_ONCE - 1:
                yield

    # --- for metrics ------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""
        return list(self._directory.ids())

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed."""
        partitions = list(self._offsets.partitions(group_id))
        found = self._offsets.of(group_id, partitions).items()
        return {one: committed.offset for one, committed in found if committed is not None}

    def member_count(self, group_id: str) -> int:
        """Return how many members a group has; 0 if there is no such group."""
        group = self._directory.find(group_id)
        return 0 if group is None else len(group.members)

    # --- requests -------------------------------------------------------------------------------

    def handle(self, request_id: int, request: GroupRequest, now: Now) -> list[Effect]:
        """Begin a request."""
        self._members.now = now
        if isinstance(request, _OF_A_GROUP):
            self._check_stays(request.group_id)
        match request:
            case Join() | Sync() | Heartbeat() | Leave():
                self._handle_classic(request_id, request)
            case ConsumerHeartbeat():
                self._answer(request_id, self._consumer_heartbeat(request))
                self._downgrade(request.group_id, request.topics)
            case Commit():
                self._answer(request_id, self._commit(request))
            case FetchOffsets():
                self._answer(request_id, self._fetch(request))
            case DescribeGroup(group_id):
                self._answer(request_id, self._describe(group_id), needs_commit=False)
            case DescribeConsumerGroup(group_id, topics):
                described = self._consumers.describe(group_id, topics)
                self._answer(request_id, described, needs_commit=False)
            case FindGroups() | ListGroups():
                self._answer(request_id, self._handle_listing(request), needs_commit=False)
            case DeleteGroup(group_id):
                self._delete(request_id, group_id)
            case DeleteOffsets():
                self._answer(request_id, self._delete_offsets(request))
            case ForgetTopics():
                self._forget_topics(request)
                self._answer(request_id, None)
        return self._taken()

    def may_gather(self, request: GroupRequest) -> bool:
        """See `core.Core`: commits, since many consumers commit at the same time.

        Not those of a transaction: the batch bears the producer's id, so it can have one only.
        """
        return isinstance(request, Commit) and request.producer == NOBODY

    def handle_all(self, requests: Sequence[tuple[int, Commit]], now: Now) -> list[Effect]:
        """See `core.Core`. Each commit is checked by itself, and all that pass are one batch."""
        self._members.now = now
        allowed: list[tuple[int, Commit]] = []
        for request_id, request in requests:
            try:
                self._check_commit(request)
                self._check_committer(request)
                allowed.append((request_id, request))
            except KafkaError as error:
                self._answer(request_id, error, needs_commit=False)
        commits = [(request.group_id, request.offsets) for _, request in allowed]
        found = self._offsets.commit_together(commits)
        for (request_id, _), errors in zip(allowed, found, strict=True):
            self._answer(request_id, errors, needs_commit=not isinstance(errors, KafkaError))
        return self._taken()

    def _handle_classic(self, request_id: int, request: Join | Sync | Heartbeat | Leave) -> None:
        """Handle a request of the classic protocol, in a group of either protocol.

        A group that only classic members are left in is downgraded first, if the policy allows it.
        """
        if isinstance(request, Join | Sync):
            self._downgrade(request.group_id, request.topics)
        # A KIP-848 group without members is not asked: it becomes a classic one if a member joins.
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is not None and consumers.members:
            needs_commit = not isinstance(request, Heartbeat)
            self._answer(request_id, self._handle_mixed(request), needs_commit=needs_commit)
            if isinstance(request, Leave):
                self._downgrade(request.group_id, request.topics)
            return
        match request:
            case Join():
                self._make_classic(request.group_id)
                self._members.join(request_id, request)
            case Sync():
                self._members.sync(request_id, request)
            case Heartbeat():
                self._members.heartbeat(request_id, request)
            case Leave():
                self._members.leave(request_id, request)

    def _handle_mixed(self, request: Join | Sync | Heartbeat | Leave) -> Message:
        """Return the response to a member of the classic protocol in a group of KIP-848."""
        now = self._members.now
        match request:
            case Join():
                self._members.check(request)
                return self._mixed.join(request, now)
            case Sync():
                return self._mixed.sync(request, now)
            case Heartbeat():
                return self._mixed.heartbeat(request, now)
            case Leave():
                return self._mixed.leave(request)

    def _handle_listing(self, request: FindGroups | ListGroups) -> list[Any]:
        if isinstance(request, FindGroups):
            return list(self._directory.ids())
        return self._directory.listed(request)

    def _answer(self, request_id: int, response: Any, *, needs_commit: bool = True) -> None:
        self._members.effects.append(Answer(request_id, response, needs_commit))

    def _taken(self) -> list[Effect]:
        self._check_changed()
        effects, self._members.effects = self._members.effects, []
        return effects

    def _check_changed(self) -> None:
        """Check what the event has changed. It costs no more than the event: a classic group as it
        changes its state, or one member of a KIP-848 group.
        """
        entered, self._members.entered = self._members.entered, []
        for group in entered:
            group.invariants()
        changed, self._changed = self._changed, {}
        for group_id, member_id in changed:
            consumers = self._consumers.groups.get(group_id)
            if consumers is not None:
                invariant(group_id not in self._groups, "a group is of one protocol")
                consumers.check_member(member_id)

    def invariants(self) -> None:
        consumers = self._consumers.groups
        invariant(self._groups.keys().isdisjoint(consumers), "a group is of one protocol")
        for group_id, group in self._groups.items():
            invariant(group.group_id == group_id, "a group is found by its id")
            group.invariants()
        for group_id, consumer_group in consumers.items():
            invariant(consumer_group.group_id == group_id, "a group is found by its id")
            consumer_group.invariants()
        for group_id in self._going:
            found = self._directory.find(group_id)
            gone = found is None or not found.members
            invariant(gone, "a group that is being deleted takes no members")
        self._offsets.invariants()
        if self._is_loaded and "watch" not in self._steps:
            self._members.invariants()
            self._consumers.invariants()

    # --- of which kind a group is ---------------------------------------------------------------

    def _make_classic(self, group_id: str) -> None:
        """Make a group of KIP-848 without members a classic one, since a classic member joins.

        Its offsets stay: they are of the group id, whatever the protocol.
        """
        if group_id in self._consumers.groups:
            self._journal.append(self._consumers.tombstones(group_id))
            self._groups[group_id] = Group(group_id, state_wall_ms=self._members.now.wall_ms)

    def _consumer_heartbeat(
        self, request: ConsumerHeartbeat
    ) -> wire.ConsumerGroupHeartbeatResponse:
        if CONSUMER not in self._settings.group_coordinator_rebalance_protocols:
            text = "group.coordinator.rebalance.protocols does not have consumer"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        group = self._groups.get(request.group_id)
        now = self._members.now
        if group is None:
            return self._consumers.heartbeat(request, now)
        if group.members or group.pending:
            return self._upgrade(group, request, now)
        before = [group_record(request.group_id, None)]
        return self._consumers.heartbeat(request, now, before)

    def _upgrade(
        self, group: Group, request: ConsumerHeartbeat, now: Now
    ) -> wire.ConsumerGroupHeartbeatResponse:
        """The first member of KIP-848 joins a classic group: all its members are of one from now
        on. GROUP_ID_NOT_FOUND if they cannot be.
        """
        try:
            records = self._upgrade_records(group, request)
        except ValueError as error:
            text = f"group {group.group_id} has members of the classic protocol: {error}"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text) from error
        draft = ConsumerGroup(group.group_id)
        for key, value in records:
            about = key_of(key)
            if isinstance(about, ConsumerKey):
                draft.replay(about, value)
        try:
            return self._consumers.heartbeat(request, now, records, draft)
        finally:
            # What comes after the first write may have been refused.
            if group.group_id in self._consumers.groups:
                self._members.let_go(group)
                self._consumers.watch(self._consumers.groups[group.group_id], now)

    def _upgrade_records(self, group: Group, request: ConsumerHeartbeat) -> list[KeyValue]:
        """The records of an upgrade. Raises ValueError, which says why there can be none.

        Only a member that joins may cause it: a member with an epoch is of another group, one that
        was deleted or has expired, and must learn that.
        """
        policy = self._settings.group_consumer_migration_policy
        if policy not in ("upgrade", BIDIRECTIONAL):
            raise ValueError(f"group.consumer.migration.policy={policy} keeps them so")
        if request.epoch != 0:
            raise ValueError("this one has yet to join")
        return upgraded(group, request.topics)

    def _downgrade(self, group_id: str, topics: TopicsImage) -> None:
        """A group whose last member of KIP-848 has left is classic. If that cannot be written now,
        or he was silent, the next one does it who joins.
        """
        consumers = self._consumers.groups.get(group_id)
        policy = self._settings.group_consumer_migration_policy
        if consumers is None or policy not in ("downgrade", BIDIRECTIONAL):
            return
        too_many = len(consumers.members) > self._settings.group_max_size
        if too_many or not consumers.all_are_classic():
            return
        wall_ms = self._members.now.wall_ms
        group = downgraded(consumers, topics, wall_ms)
        if group is None:
            return
        try:
            self._journal.append(downgrade_records(consumers, group, wall_ms))
        except KafkaError:
            return
        gone = group_id not in self._consumers.groups
        invariant(gone, "a group that was downgraded is of the classic protocol only")
        self._consumers.let_go(group_id, group.members)
        self._members.take_over(group)

    # --- offsets --------------------------------------------------------------------------------

    def _commit(self, request: Commit) -> dict[Any, ErrorCode]:
        self._check_commit(request)
        self._check_committer(request)
        return self._offsets.commit(request.group_id, request.offsets, request.producer)

    def _check_commit(self, request: Commit) -> None:
        """Refuse a caller that is no member, or not of this generation or epoch.

        A consumer that was removed may still read. Were its commit taken, the next owner of the
        partition would begin at an offset that is not its own, and skip or repeat records.

        Raises the errors of the group's protocol. Without a group, UNKNOWN_MEMBER_ID if there are
        offsets of that id, else GROUP_ID_NOT_FOUND or, of older clients, ILLEGAL_GENERATION.
        """
        group_id, caller = request.group_id, request.caller
        self._check_stays(group_id)
        consumers = self._consumers.groups.get(group_id)
        if consumers is not None:
            transactional = request.producer != NOBODY
            self._consumers.check_commit(
                consumers,
                caller,
                transactional=transactional,
                knows_epochs=request.knows_epochs,
            )
            return
        group = self._groups.get(group_id)
        if group is not None:
            self._check_classic_commit(group, request)
        elif caller.generation >= 0:
            if self._offsets.partitions(group_id):
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            absent = ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(absent if request.knows_epochs else ErrorCode.ILLEGAL_GENERATION)

    def _check_committer(self, request: Commit) -> None:
        """Stop the program if a commit that was let through is of no member of the present.

        The rules of the two protocols differ in their errors and exceptions; this holds for both. A
        caller that names a generation is a member, and its generation is the one that the group is
        in, or the epoch that the member is in.
        """
        caller, group_id = request.caller, request.group_id
        if caller.generation < 0:
            return
        consumers = self._consumers.groups.get(group_id)
        if consumers is not None:
            member = consumers.members.get(caller.member_id)
            current = member is not None and member.epoch == caller.generation
        else:
            group = self._groups.get(group_id, Group(group_id))
            name = caller.member_id or group.statics.get(caller.instance_id or "", "")
            found = group.members.get(name)
            current = found is not None and group.is_current(found, caller.generation)
        invariant(current, "an offset is committed by a member of this generation")

    def _check_classic_commit(self, group: Group, request: Commit) -> None:
        """Raise UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS
        between JoinGroup and SyncGroup: the partition may be another's by now.
        """
        caller = request.caller
        if caller.generation < 0 and group.is_in(State.EMPTY):
            # Its consumers assign partitions to themselves.
            return
        if request.producer != NOBODY and caller.generation < 0 and not caller.member_id:
            # Producers of older versions do not say for which member they write.
            return
        member = self._members.member(group, caller)
        if not group.is_current(member, caller.generation):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if not group.is_in(State.COMPLETING):
            self._members.touch(group, member)
        elif request.producer == NOBODY:
            # In a transaction they count: what was read under the last assignment may not be
            # written again, and no producer knows this error.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _fetch(self, request: FetchOffsets) -> dict[Any, Any]:
        """Return the offsets by partition: None where there is none, UNSTABLE where a transaction
        is about to change it and the client asked for stable ones (KIP-447).
        """
        consumers = self._consumers.groups.get(request.group_id)
        if consumers is not None and request.caller is not None:
            self._consumers.check_caller(consumers, request.caller)
        group_id, partitions = request.group_id, request.partitions
        if partitions is None:
            return self._offsets.of(group_id, self._offsets.partitions(group_id))
        offsets = self._offsets.of(group_id, partitions)
        for partition in partitions if request.require_stable else ():
            if self._offsets.is_pending(group_id, partition):
                offsets[partition] = UNSTABLE
        return offsets

    # --- administration -------------------------------------------------------------------------

    def _delete_offsets(self, request: DeleteOffsets) -> dict[Any, ErrorCode]:
        """Delete offsets but for topics that members read; return each partition's error.

        Raises NON_EMPTY_GROUP if it cannot be said what the members read, during a rebalance say.
        """
        group = self._directory.known(request.group_id)
        subscribed = group.subscribed_topics() if group.members else set()
        if subscribed is None:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        read = {one for one in request.partitions if one.topic in (subscribed or ())}
        self._directory.keep(request.group_id, self._members.now.wall_ms)
        self._offsets.delete(request.group_id, [p for p in request.partitions if p not in read])
        return {
            one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if one in read else ErrorCode.NONE
            for one in request.partitions
        }

    def _forget_topics(self, request: ForgetTopics) -> None:
        now = self._members.now
        self._steps.begin("forget", self._upkeep.forget(request.topics, now.wall_ms), now.ms)

    def _delete(self, request_id: int, group_id: str) -> None:
        """Begin to delete a group without members. Its offsets may be many, so it takes several
        steps; the response comes with the last one, and until then nothing is written of it.
        """
        group = self._directory.known(group_id)
        if group.state.value != State.EMPTY.value:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members")
        self._going[group_id] = request_id
        steps = self._upkeep.delete(group_id, self._deleted)
        self._steps.begin(("delete", group_id), steps, self._members.now.ms)

    def _deleted(self, group_id: str, error: KafkaError | None) -> None:
        request_id = self._going.pop(group_id)
        self._answer(request_id, error, needs_commit=error is None)

    def _check_stays(self, group_id: str) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE while the group is being deleted: clients try again.

        A member that joined between two steps would lose its group with the last one.
        """
        if group_id in self._going:
            text = f"group {group_id} is just being deleted"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _describe(self, group_id: str) -> wire.DescribeGroupsResponseDescribedGroup | None:
        group = self._directory.find(group_id)
        return group.message() if isinstance(group, Group) else None

    # --- time -----------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """The time of the next session, rebalance, step or search for old offsets."""
        return self._timers.next_ms()

    def tick(self, now: Now) -> list[Effect]:
        """Do what is due. A key of the timers says what that is, and whose."""
        self._members.now = now
        for key in self._timers.due(now.ms):
            if key == _EXPIRY:
                self._expire(now)
            elif key == STEPS:
                self._steps.go_on(now.ms)
            elif isinstance(key, tuple) and key[0] in TIMERS:
                what, group_id, member_id = key
                self._consumers.due(what, group_id, member_id, now)
            elif isinstance(key, tuple):
                self._members.due(*key)
        return self._taken()

    def _expire(self, now: Now) -> None:
        self._timers.set(_EXPIRY, now.ms + self._settings.offsets_retention_check_interval_ms)
        retention_ms = self._settings.offsets_retention_minutes * _MINUTE_MS
        self._steps.begin("expire", self._upkeep.expire(now.wall_ms, retention_ms), now.ms)


# --- time ---------------------------------------------------------------------------------------

_MEMBER = 10
"""To look at what a member reads takes as long as so many offsets."""


class GroupUpkeep:
    """Work that time brings to groups and offsets, in steps: a partition may have millions.

    Between two steps everything may have changed, so each step decides and writes by itself.
    """

    def __init__(self, directory: GroupDirectory, offsets: GroupOffsets) -> None:
        self._directory = directory
        self._offsets = offsets
        self._forgotten: dict[str, int] = {}
        """Topics whose offsets are yet to go, with when they were deleted."""

    def expire(self, wall_ms: int, retention_ms: int) -> Iterator[None]:
        """Delete old offsets (KIP-211), and groups of which nothing is left.

        A group goes in one batch with its last offsets. In two, a broker that crashes in between
        would leave a group without offsets that nothing looks for any more.
        """
        left = STEP_ITEMS
        for group_id in self._directory.ids():
            for part in _parts(self._offsets.partitions(group_id)):
                group = self._directory.find(group_id)
                if group is None:
                    break
                wrote = self._expire(group, part, wall_ms, retention_ms)
                left -= STEP_ITEMS if wrote else 1 + len(part) + _MEMBER * len(group.members)
                if left <= 0:
                    yield
                    left = STEP_ITEMS

    def _expire(
        self,
        group: Group | ConsumerGroup,
        part: list[TopicPartition],
        wall_ms: int,
        retention_ms: int,
    ) -> bool:
        """Delete the group's old offsets in this part; return whether there were any.

        If the log refuses that, the next round tries again: nobody waits for it.
        """
        kept = group.offsets_kept()
        expired = self._offsets.expired(group.group_id, part, kept, wall_ms, retention_ms)
        with_group = len(expired) == len(self._offsets.partitions(group.group_id))
        with_group = with_group and is_over(group)
        if not expired and not with_group:
            return False
        # Else the next time.
        with contextlib.suppress(KafkaError):
            self._directory.forget(group, expired, with_group=with_group)
        return True

    def delete(
        self, group_id: str, tell: Callable[[str, KafkaError | None], None]
    ) -> Iterator[None]:
        """Delete a group without members: its offsets, and with the last of them the group itself.

        `tell` hears when it is done, or what kept it; what is gone by then stays so.
        """
        parts = list(_parts(self._offsets.partitions(group_id)))
        try:
            for part in parts[:-1]:
                self._offsets.delete(group_id, part)
                yield
            if (group := self._directory.find(group_id)) is not None:
                self._directory.forget(group, parts[-1], with_group=True)
        except KafkaError as error:
            tell(group_id, error)
        else:
            tell(group_id, None)

    def forget(self, topics: Collection[str], wall_ms: int) -> Iterator[None]:
        """Delete offsets that were committed before their topics were deleted: one of that name may
        be there again before all have been looked at.
        """
        self._forgotten |= dict.fromkeys(topics, wall_ms)
        return self._forget_all(wall_ms)

    def _forget_all(self, wall_ms: int) -> Iterator[None]:
        while self._forgotten:
            topics, self._forgotten = self._forgotten, {}
            yield from self._forget(topics, wall_ms)

    def _forget(self, topics: dict[str, int], wall_ms: int) -> Iterator[None]:
        left = STEP_ITEMS
        for group_id in self._offsets.group_ids():
            for part in _parts(self._offsets.partitions(group_id)):
                gone = self._offsets.committed_before(group_id, part, topics)
                if gone:
                    self._directory.keep(group_id, wall_ms)
                    # Else expiry finds them.
                    with contextlib.suppress(KafkaError):
                        self._offsets.delete(group_id, gone)
                left -= STEP_ITEMS if gone else 1 + len(part)
                if left <= 0:
                    yield
                    left = STEP_ITEMS


def _parts(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """At least one, which may be empty."""
    known = list(partitions)
    for start in range(0, max(1, len(known)), STEP_ITEMS):
        yield known[start : start + STEP_ITEMS]


def loaded_groups(coordinator: Coordinator) -> Iterator[GroupCore]:
    """Return the groups of each partition that is led here and has been read."""
    for shard in coordinator.shards():
        if shard.is_loaded and isinstance(shard.core, GroupCore):
            yield shard.core


def group_coordinator(context: BrokerContext, replicas: Replicas) -> Coordinator:
    """Return the coordinator of consumer groups of one broker."""
    config, runtime = context.config, context.runtime
    return Coordinator(
        CONSUMER_OFFSETS,
        config.node_id,
        lambda journal, _epoch: GroupCore(journal, config, lambda: str(runtime.uuid())),
        replicas,
        config,
        runtime.wall_ms,
        context.fail,
        runtime.log.bind(logger="broker.groups", node_id=config.node_id),
    )
