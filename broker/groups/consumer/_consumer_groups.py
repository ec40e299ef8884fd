"""Consumer groups of KIP-848: their members, and which partitions each has, in which epoch.

A member is known by its heartbeats alone. Each of them (a) updates what the member says of itself,
which raises the group's epoch if it matters, (b) makes the targets of that epoch if nobody has, and
(c) brings this member a step nearer to its target. Each step writes its records as one batch, and
the group changes by their replay only; so a refused write leaves a group from which the next
heartbeat goes on.

There are three epochs, which follow each other. The group's epoch grows with each change; the
assignment epoch is the one for which targets were made; a member's epoch is that of the targets it
has reached. No member waits for another, but for partitions that the other has yet to revoke.

Pure: the time and the topics are arguments. Source: KIP-848; errors are Apache Kafka's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from broker.coordinator.topic_patterns import check_pattern, matching
from broker.groups._consumer_records import Kind, Slot, topic_partitions
from broker.groups.consumer._assignors import ASSIGNORS, Subscription
from broker.groups.consumer._members import (
    check,
    check_epoch,
    is_full,
    member_of,
    no_group,
    owned_slots,
    taken_over,
    unknown_member,
    updated,
)
from broker.groups.consumer.consumer_group import (
    LEFT_FOR_A_WHILE,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    assignment_record,
    current_record,
    group_record,
    group_tombstones,
    hash_of,
    member_record,
    member_tombstones,
    partitions_of,
    reconciled,
    regex_record,
    target_record,
)
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from uuid import UUID

    from broker.coordinator.core import Journal, KeyValue, Now
    from broker.groups._consumer_records import ConsumerKey
    from broker.groups.requests import Caller, ConsumerHeartbeat, Heartbeat, Join
    from broker.protocol.messages import consumer as wire
    from raftctl.metadata.image import TopicsImage
    from raftctl.timers import Timers

    _Looks = Join | Heartbeat | ConsumerHeartbeat
    """A member's request at which the group looks at the present topics."""

SESSION = "consumer session"
REVOCATION = "consumer revocation"
TURN = "consumer turn"
"""The timer of classic members: until it ends they must join, or ask for their assignment."""
TIMERS = (SESSION, REVOCATION, TURN)
REGEX_REFRESH_MIN_MS = 10_000
"""Topics come and go: expressions are not looked at again before this time has passed."""
_RETRY_MS = 1_000


class ConsumerGroupSettings(Protocol):
    """Settings of groups of KIP-848."""

    @property
    def group_consumer_session_timeout_ms(self) -> int:
        """Time for which a member may be silent, unless its group sets another."""

    @property
    def group_consumer_max_size(self) -> int:
        """The members that a group may have."""

    @property
    def group_consumer_regex_refresh_interval_ms(self) -> int:
        """Time after which regular expressions are matched again, although no topic changed."""

    @property
    def group_consumer_assignors(self) -> tuple[str, ...]:
        """The assignors that members may ask for; the first is taken if none does."""


@dataclass(frozen=True, slots=True)
class Step:
    """Findings of a heartbeat before anything is written."""

    before: ConsumerMember | None
    """The member, or the one whose place it takes."""
    member: ConsumerMember
    owned: frozenset[Slot] | None

    @property
    def takes_place(self) -> bool:
        """True if a static member is back under another member id."""
        return self.before is not None and self.before.member_id != self.member.member_id


class ConsumerGroups:
    """The groups of KIP-848 of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        journal: Journal,
        timers: Timers[Hashable],
        settings: ConsumerGroupSettings,
        new_uuid: Callable[[], str],
    ) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        """The groups, for others to read only."""
        self._journal = journal
        self._timers = timers
        self._settings = settings
        self._new_uuid = new_uuid

    # --- records --------------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: bytes | None) -> None:
        """Take a record of the log, or one that was just appended to it.

        A group is made by its first record, whichever compaction has left, and goes with the
        tombstone of its epoch, the last one that is written of it.
        """
        # Earlier releases of Kafka wrote how many partitions each topic had.
        if key.kind is Kind.PARTITIONS:
            return
        group = self.groups.get(key.group)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group] = ConsumerGroup(key.group)
        if value is None and key.kind is Kind.GROUP:
            del self.groups[key.group]
        else:
            group.replay(key, value)

    def watch(self, group: ConsumerGroup, now: Now) -> None:
        """Give each member the time of a session, unless its session runs already.

        The coordinator has moved here. Sessions are not in the log, so that all begin again: a
        member that was about to be removed has a little longer, and none is removed for the time
        that the log took to load.
        """
        for member in group.members.values():
            self._watch_revocation(group, member, now)
            if (SESSION, group.group_id, member.member_id) in self._timers:
                continue
            session_timeout_ms = self._settings.group_consumer_session_timeout_ms
            if member.classic is not None:
                session_timeout_ms = member.classic.session_timeout_ms
            self.touch(group, member, session_timeout_ms, now)

    def invariants(self) -> None:
        """Stop the program unless each member is waited for, also while it revokes partitions.

        Others wait for these: without the timer they would wait for ever for a consumer that hangs.
        """
        for group_id, group in self.groups.items():
            for name, member in group.members.items():
                invariant((SESSION, group_id, name) in self._timers, "a member has a session")
                revokes = member.state is MemberState.UNREVOKED_PARTITIONS
                timed = not revokes or (REVOCATION, group_id, name) in self._timers
                invariant(timed, "a member has bounded time to revoke partitions")

    def let_go(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Stop the timers of members that have left, or whose group is of the classic protocol."""
        for member_id in member_ids:
            for what in TIMERS:
                self._timers.cancel((what, group_id, member_id))

    def _write(self, records: Sequence[KeyValue]) -> None:
        """Append records as one batch; the groups have changed when this returns.

        Raises the KafkaError of the log. MESSAGE_TOO_LARGE is not a code that consumers know.
        """
        try:
            self._journal.append(records)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            raise

    # --- ConsumerGroupHeartbeat -----------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        now: Now,
        before: Sequence[KeyValue] = (),
        draft: ConsumerGroup | None = None,
    ) -> wire.ConsumerGroupHeartbeatResponse:
        """Return the response to a heartbeat.

        `before` are records that are written in front of those of a group that is made, and `draft`
        is the group that they make: the tombstone of a classic group, and its upgrade.

        Raises INVALID_REQUEST, the errors of `_check_subscription`, and GROUP_ID_NOT_FOUND. Of a
        member that joins UNRELEASED_INSTANCE_ID and GROUP_MAX_SIZE_REACHED. Of one that has joined
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH. Then nothing has changed.
        """
        check(request)
        self._check_subscription(request)
        joins = request.epoch == 0
        group = self.groups.get(request.group_id)
        if group is None:
            if not joins:
                raise no_group(request.group_id)
            group = draft or ConsumerGroup(request.group_id)
        if request.epoch < 0:
            return self._leave(group, request, now)
        step = self._joined(group, request) if joins else self._known(group, request)
        member = self.advance(group, step, request, now, before)
        full = joins or is_full(request)
        had = frozenset() if step.before is None else step.before.assigned
        # A member that reports other partitions may have missed a response. Without this it would
        # never get the assignment again: nothing changes any more.
        differs = step.owned is not None and step.owned != member.assigned
        shown = member.assigned if full or differs or member.assigned != had else None
        return response(member.member_id, member.epoch, request.heartbeat_interval_ms, shown)

    def advance(
        self,
        group: ConsumerGroup,
        step: Step,
        request: Join | ConsumerHeartbeat,
        now: Now,
        before: Sequence[KeyValue] = (),
    ) -> ConsumerMember:
        """Apply a heartbeat in the three steps of KIP-848 and return the member after them.

        (a) Write what the member says of itself, and the group's next epoch if that changes the
        group. (b) Compute the targets of that epoch. (c) Move this member one step to its target.
        Each step is written by itself: if the log refuses one, the next heartbeat of any member
        makes it good. `before` are records of a group that is made by this heartbeat.
        """
        epochs = (group.epoch, group.assignment_epoch)
        self._update(group, step, request, now, before)
        group = self.groups[group.group_id]
        # Before the next write, which may be refused. It is a member from here on: without a
        # session one that never gets its response would stay, and hold its partitions, for ever.
        self.touch(group, step.member, request.session_timeout_ms, now)
        self._assign(group, request.topics)
        grown = epochs[0] <= group.epoch and epochs[1] <= group.assignment_epoch
        invariant(grown, "the epochs of a group only grow")
        return self._reconcile(group, step, now)

    def _check_subscription(self, request: ConsumerHeartbeat) -> None:
        """Raise UNSUPPORTED_ASSIGNOR, or INVALID_REGULAR_EXPRESSION for a pattern RE2 refuses."""
        known = self._settings.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in known:
            text = f"ServerAssignor {request.server_assignor:.100} is not supported"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"{text}. Supported assignors: {', '.join(known)}."
            )
        if request.topic_regex:
            check_pattern(request.topic_regex)

    def _joined(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> Step:
        """Return the step of a member that joins: it holds no partition, whatever the log says.

        A static member that left for a while, or speaks the classic protocol, gives its place to
        the new one. One that is still there keeps it: UNRELEASED_INSTANCE_ID, since two consumers
        with one instance id would take it from each other for ever.
        """
        member_id = request.member_id or self._new_uuid()
        nothing: frozenset[Slot] = frozenset()
        known = group.members.get(member_id)
        if request.instance_id is not None and request.instance_id in group.statics:
            held = group.members[group.statics[request.instance_id]]
            if held.member_id != member_id:
                if held.epoch != LEFT_FOR_A_WHILE and held.classic is None:
                    text = f"Static member with instance id {request.instance_id:.100} is in use"
                    raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
                return Step(held, updated(taken_over(held, member_id), request), nothing)
            known = held
        if known is None:
            self.check_room(group)
            return Step(None, updated(ConsumerMember(member_id), request), nothing)
        return Step(known, updated(known, request), nothing)

    def check_room(self, group: ConsumerGroup) -> None:
        """Raise GROUP_MAX_SIZE_REACHED unless there is room for one more member."""
        if len(group.members) >= self._settings.group_consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _known(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> Step:
        """Return the step of a member that has joined before; raises as `check_epoch` does."""
        member = member_of(group, request.member_id, request.instance_id)
        owned = owned_slots(request)
        check_epoch(member, request.epoch, owned)
        return Step(member, updated(member, request), owned)

    # --- (a) what members say -------------------------------------------------------------------

    def _update(
        self,
        group: ConsumerGroup,
        step: Step,
        request: Join | ConsumerHeartbeat,
        now: Now,
        before: Sequence[KeyValue],
    ) -> None:
        """Step (a): write the member, and the group's epoch if its subscriptions have changed.

        All of it is one batch. A member whose record is written without the group's epoch would
        never get a target: no later heartbeat shows a change.
        """
        # A static member that is back under another id takes the place of its former self in one
        # batch: with the target, so that nothing moves because a consumer was restarted. Were the
        # two written apart, a broker that takes over in between would free its partitions.
        member, group_id = step.member, group.group_id
        is_new = step.before is None
        changed = step.before is None or step.before.subscription != member.subscription
        records: list[KeyValue] = list(before)
        if step.before is not None and step.takes_place:
            target = group.targets.get(step.before.member_id, frozenset())
            records += member_tombstones(group_id, step.before.member_id)
            records += [
                member_record(group_id, member),
                target_record(group_id, member.member_id, target),
                current_record(group_id, member),
            ]
        elif member != step.before:
            records.append(member_record(group_id, member))
        if changed or self._is_to_be_looked_at(group, request, now):
            rest = [one for one in group.members.values() if one is not step.before]
            records += self._of_topics(group, [*rest, member], request, now, changed=changed)
        if is_new:
            records.append(current_record(group_id, member))
        if records:
            self._write(records)
        invariant(member.member_id in self.groups[group_id].members, "a heartbeat makes a member")
        self._looked_at(self.groups[group_id], request, now)

    def look_at(self, group: ConsumerGroup, request: Heartbeat, now: Now) -> None:
        """Raise the group's epoch if topics that it reads have come, gone or grown.

        Images are compared by identity: an image that has changed nothing of topics has the same
        topics, so that a heartbeat costs nothing as long as none changes.
        """
        if self._is_to_be_looked_at(group, request, now):
            members = list(group.members.values())
            records = self._of_topics(group, members, request, now, changed=False)
            if records:
                self._write(records)
            self._looked_at(group, request, now)

    def _is_to_be_looked_at(self, group: ConsumerGroup, request: _Looks, now: Now) -> bool:
        return group.known_topics is not request.topics or self._is_stale(group, now)

    def _is_stale(self, group: ConsumerGroup, now: Now) -> bool:
        """Return True if what expressions stand for may have changed without a change of topics.

        So it does when rules of access change.
        """
        return bool(group.regexes) and now.ms >= group.refresh_ms

    def _of_topics(
        self,
        group: ConsumerGroup,
        members: list[ConsumerMember],
        request: _Looks,
        now: Now,
        *,
        changed: bool,
    ) -> list[KeyValue]:
        """Records of what changed with the topics, or with what members read (`changed`).

        The hash of the topics is part of the group's record (KIP-1101). A coordinator that takes
        over compares it with that of its own image, and so finds a change that came while nobody
        led.
        """
        regexes = self._resolved(group, members, request, now)
        draft = ConsumerGroup(group.group_id, regexes=regexes)
        names = {name for one in members for name in draft.topics_of(one)}
        metadata_hash = hash_of(names, request.topics)
        records = [
            regex_record(group.group_id, one, regexes.get(one))
            for one in sorted({**group.regexes, **regexes})
            if group.regexes.get(one) is not regexes.get(one)
        ]
        if changed or metadata_hash != group.metadata_hash:
            # An epoch for which nothing was assigned yet takes up whatever else changes.
            epoch = max(group.epoch, group.assignment_epoch + 1)
            records.append(group_record(group, epoch, metadata_hash))
        return records

    def _looked_at(self, group: ConsumerGroup, request: _Looks, now: Now) -> None:
        """Note that the group agrees with these topics, as far as that is known.

        Not with those that its regular expressions match, if it is too early to match them again.
        Then the next heartbeat looks again.
        """
        topics = request.topics
        if self._is_to_be_resolved(group, topics, now):
            group.known_names = topics.ids
            group.resolve_again_ms = now.ms + REGEX_REFRESH_MIN_MS
            group.refresh_ms = now.ms + self._settings.group_consumer_regex_refresh_interval_ms
        # Else there is something left to look at.
        all_seen = not group.regexes or group.known_names is topics.ids
        group.known_topics = topics if all_seen else None

    def _resolved(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], request: _Looks, now: Now
    ) -> dict[str, ResolvedRegex]:
        """The topics that each expression of a member matches; the same object if none changed.

        To match one costs as much as there are topics, and a cluster may create many topics in a
        row. So known expressions are matched again only every `REGEX_REFRESH_MIN_MS`, new ones at
        once. Of the topics, those count that the member may describe that happens to ask: members
        of a group share its expressions, as in Apache Kafka.
        """
        topics = request.topics
        again = self._is_to_be_resolved(group, topics, now)
        found: dict[str, ResolvedRegex] = {}
        for pattern in sorted({one.topic_regex for one in members if one.topic_regex}):
            known = group.regexes.get(pattern)
            if known is None:
                found[pattern] = ResolvedRegex(_matching(pattern, request), 0, now.wall_ms)
            elif again and (names := _matching(pattern, request)) != known.topics:
                found[pattern] = ResolvedRegex(names, known.version + 1, now.wall_ms)
            else:
                found[pattern] = known
        return found

    def _is_to_be_resolved(self, group: ConsumerGroup, topics: TopicsImage, now: Now) -> bool:
        new_topics = group.known_names is not topics.ids and now.ms >= group.resolve_again_ms
        return new_topics or self._is_stale(group, now)

    # --- (b) the targets of an epoch ------------------------------------------------------------

    def _assign(self, group: ConsumerGroup, topics: TopicsImage) -> None:
        """Step (b): compute and write the targets of the newest epoch, if they are not there yet.

        Only targets that differ are written. The record of the assignment epoch comes last: it
        says that all targets of the epoch are in the log.
        """
        # Members that join in a row each raise the epoch; the first heartbeat after them makes the
        # targets of all these epochs at once.
        if group.epoch <= group.assignment_epoch:
            return
        subscriptions = [
            Subscription(
                one.member_id,
                one.instance_id,
                frozenset(
                    topic.topic_id
                    for name in group.topics_of(one)
                    if (topic := topics.by_name(name)) is not None
                ),
            )
            for one in group.members.values()
        ]
        wanted = {topic_id for one in subscriptions for topic_id in one.topics}
        counts = partitions_of(wanted, topics)
        targets = ASSIGNORS[self._assignor(group)](subscriptions, counts, group.targets)
        _check_targets(group, targets, counts)
        records = [
            target_record(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if group.targets.get(member_id) != target
        ]
        self._write([*records, assignment_record(group.group_id, group.epoch)])
        invariant(group.assignment_epoch == group.epoch, "the targets are of the newest epoch")

    def _assignor(self, group: ConsumerGroup) -> str:
        """Return the assignor that most members ask for; of several the first of the config."""
        known = self._settings.group_consumer_assignors
        votes = Counter(one.server_assignor for one in group.members.values())
        return max(known, key=lambda name: votes[name])

    # --- (c) a step towards the target ----------------------------------------------------------

    def _reconcile(self, group: ConsumerGroup, step: Step, now: Now) -> ConsumerMember:
        """Step (c): move the member towards its target as far as others have let go; write it."""
        before = group.members[step.member.member_id]
        target = group.targets.get(before.member_id, frozenset())
        after = reconciled(before, target, group.assignment_epoch, group.owners, step.owned)
        if after is not before:
            _check_step(before, after, target, step.owned)
            self._write([current_record(group.group_id, after)])
            self._watch_revocation(group, after, now)
        return after

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Give a member that is to revoke partitions its rebalance timeout to do so.

        The others wait for these partitions: a member that never gives them up must leave.
        """
        key = (REVOCATION, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.set(key, now.ms + max(member.rebalance_timeout_ms, 0))
        else:
            self._timers.cancel(key)

    # --- leaving --------------------------------------------------------------------------------

    def _leave(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, now: Now
    ) -> wire.ConsumerGroupHeartbeatResponse:
        """Remove the member, or with LEFT_FOR_A_WHILE keep the place of a static one.

        A static member that is away keeps its partitions, so that a restart moves nothing. Those
        that it was revoking are free at once: it has stopped reading.
        """
        member = member_of(group, request.member_id, request.instance_id)
        if request.epoch == LEFT_FOR_A_WHILE:
            left = replace(
                member,
                epoch=LEFT_FOR_A_WHILE,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                revoking=frozenset(),
            )
            self._write([current_record(group.group_id, left)])
            self._timers.cancel((REVOCATION, group.group_id, member.member_id))
            self.touch(group, left, request.session_timeout_ms, now)
        else:
            self.remove(group, member)
        return response(member.member_id, request.epoch, 0, None)

    def remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member: its partitions are free, and the next heartbeat makes new targets.

        The epoch grows, unless it is ahead of the assignment already. `known_topics` is reset, so
        that the next heartbeat looks at subscriptions again.
        """
        # Its partitions are free with the same batch. A consumer that was only slow still reads
        # them, but its commits are refused from here on: UNKNOWN_MEMBER_ID.
        records = member_tombstones(group.group_id, member.member_id)
        epoch = max(group.epoch, group.assignment_epoch + 1)
        records.append(group_record(group, epoch, group.metadata_hash))
        self._write(records)
        gone = member.member_id not in group.members and member.member_id not in group.targets
        invariant(gone, "a member that leaves takes its target along")
        group.known_topics = None
        self.let_go(group.group_id, [member.member_id])

    def due(self, what: str, group_id: str, member_id: str, now: Now) -> None:
        """Act on a member's timer: its session, its revocation, or its turn to join again.

        The member is removed. If the log refuses that, it is tried again a moment later.
        """
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        # A timer may come due in the same tick in which the member did what it waited for.
        if what == REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        if what == TURN and member.classic is None:
            return
        try:
            self.remove(group, member)
        except KafkaError:
            self._timers.set((what, group_id, member_id), now.ms + _RETRY_MS)

    def touch(
        self, group: ConsumerGroup, member: ConsumerMember, session_timeout_ms: int, now: Now
    ) -> None:
        """Start the member's session again: it has sent a heartbeat, or what counts as one."""
        self._timers.set((SESSION, group.group_id, member.member_id), now.ms + session_timeout_ms)

    # --- offsets --------------------------------------------------------------------------------

    def check_commit(
        self, group: ConsumerGroup, caller: Caller, *, transactional: bool, knows_epochs: bool
    ) -> None:
        """Raise UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH unless the caller may commit.

        In a transaction the latter is ILLEGAL_GENERATION, which its clients know. Raises
        UNSUPPORTED_VERSION if a member of KIP-848 uses a version that knows no epochs: it would
        take the error of an old epoch for a fatal one.

        The epoch is the member's, not the group's. A member that has yet to revoke partitions is in
        an older epoch and still owns them, so its commits count (KIP-848, "Offset Commits").
        """
        if caller.generation < 0 and not group.members:
            # Its consumers assign partitions to themselves.
            return
        if transactional and caller.generation < 0 and not caller.member_id:
            # Producers of older versions do not say for which member they write.
            return
        member = group.members.get(caller.member_id)
        if member is not None and not (transactional or knows_epochs or member.classic):
            text = "members of this group commit with version 9 of OffsetCommit or a later one"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        try:
            self.check_caller(group, caller)
        except KafkaError as error:
            if transactional and error.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def check_caller(self, group: ConsumerGroup, caller: Caller) -> None:
        """Check that the caller is a member in its present epoch.

        Raises UNKNOWN_MEMBER_ID, and STALE_MEMBER_EPOCH or, of a member of the classic protocol,
        ILLEGAL_GENERATION.
        """
        member = group.members.get(caller.member_id)
        if member is None:
            raise unknown_member(caller.member_id, group.group_id)
        if caller.generation != member.epoch:
            text = f"The member epoch is {member.epoch}, not {caller.generation}"
            code = ErrorCode.ILLEGAL_GENERATION if member.classic else ErrorCode.STALE_MEMBER_EPOCH
            raise KafkaError(code, text)

    # --- administration -------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """The records that delete a group, its members' before its own."""
        return group_tombstones(self.groups[group_id])

    def describe(
        self, group_id: str, topics: TopicsImage
    ) -> wire.ConsumerGroupDescribeResponseDescribedGroup:
        """Return the group for ConsumerGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise no_group(group_id)
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "group_id": group_id,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": self._assignor(group),
            "members": [
                member_message(one, group.targets.get(one.member_id, frozenset()), topics)
                for one in group.members.values()
            ],
        }


def _check_targets(
    group: ConsumerGroup, targets: Mapping[str, frozenset[Slot]], counts: Mapping[UUID, int]
) -> None:
    """Stop the program unless an assignor has given each partition to one member at most.

    Costs as much as the assignor. It is done before the targets are written: members that follow
    wrong ones read a partition twice, or one that is not there.
    """
    invariant(targets.keys() == group.members.keys(), "every member has a target, and no other")
    given = [slot for target in targets.values() for slot in target]
    invariant(len(given) == len(set(given)), "a partition is the target of one member")
    exist = all(0 <= number < counts.get(topic_id, 0) for topic_id, number in given)
    invariant(exist, "a target is of partitions that exist")


def _check_step(
    before: ConsumerMember,
    after: ConsumerMember,
    target: frozenset[Slot],
    owned: frozenset[Slot] | None,
) -> None:
    """Stop the program unless a member may take this step. Costs as much as it has partitions.

    What is taken from a member is free for others at once. So it must have reported that it owns
    none of it: a report that says nothing (`owned` None) is of a member that may still read.
    """
    gone = before.holds - after.holds
    revoked = not gone or (owned is not None and owned.isdisjoint(gone))
    invariant(revoked, "a partition is taken from a member that has revoked it")
    added = after.holds - before.holds
    invariant(added <= target, "a member is given what is in its target")
    invariant(not added or not after.revoking, "a member revokes before it is given more")
    reached = after.state is not MemberState.STABLE or after.assigned == target
    invariant(reached, "a stable member has its target")
    invariant(before.epoch <= after.epoch, "the epoch of a member only grows")


def _matching(pattern: str, request: _Looks) -> tuple[str, ...]:
    """Return the topics that an expression matches, of those that the member may describe."""
    names = matching(pattern, request.topics.ids)
    may_describe = request.may_describe
    return names if may_describe is None else tuple(filter(may_describe, names))


# --- responses ----------------------------------------------------------------------

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
"""Of which protocol a member is."""


def response(
    member_id: str, epoch: int, heartbeat_interval_ms: int, assigned: frozenset[Slot] | None
) -> wire.ConsumerGroupHeartbeatResponse:
    """Return the response to a heartbeat. `assigned` None: the last assignment still holds."""
    assignment: wire.ConsumerGroupHeartbeatResponseAssignment | None = None
    if assigned is not None:
        assignment = {"topic_partitions": [{**one} for one in topic_partitions(assigned)]}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": member_id,
        "member_epoch": epoch,
        "heartbeat_interval_ms": heartbeat_interval_ms,
        "assignment": assignment,
    }


def member_message(
    member: ConsumerMember, target: frozenset[Slot], topics: TopicsImage
) -> wire.Member:
    """Return a member for ConsumerGroupDescribe."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_regex or "",
        # Also what it has yet to let go of: nobody else has that.
        "assignment": _named(member.holds, topics),
        "target_assignment": _named(target, topics),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _named(
    slots: frozenset[Slot], topics: TopicsImage
) -> wire.ConsumerGroupDescribeResponseAssignment:
    """With the names of the topics, but for topics that are gone."""
    return {
        "topic_partitions": [
            {**one, "topic_name": topic.name}
            for one in topic_partitions(slots)
            if (topic := topics.by_id(one["topic_id"])) is not None
        ]
    }
