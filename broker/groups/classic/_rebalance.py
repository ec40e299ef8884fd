"""The rebalance of the classic protocol: how a group's members agree on their partitions.

The first member of a group waits a while for others (`group.initial.rebalance.delay.ms`). Whenever
members come, go or change, all are to join again, at most for the longest of their rebalance
timeouts; a member that has not joined by then is removed. One of them, the leader, then assigns
partitions, which this broker does not look into. The assignment is written before any member gets
it.

Between JoinGroup and SyncGroup nobody may read: a partition may be another member's by now. That is
why one slow member stops its whole group, for as long as its rebalance timeout, and why a rebalance
is begun only where something has changed. KIP-848 does without this barrier.

Pure: the time is set before each call, answers are collected. Errors are Apache Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.coordinator.core import Answer, Now
from broker.groups._messages import join_error, left_message, sync_error
from broker.groups._records import group_record
from broker.groups.classic._group import Group, Member, State
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from broker.coordinator.core import Effect, Journal
    from broker.groups.requests import Caller, Heartbeat, Join, Leave, Sync
    from broker.protocol.codec import Message
    from broker.protocol.messages import consumer as wire
    from raftctl.timers import Timers

NEW_MEMBER_JOIN_MS = 300_000
"""The time for which a new member may wait for the others: it cannot send heartbeats meanwhile."""
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


class GroupLimits(Protocol):
    """Settings of classic groups."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int:
        """Time for which the first member waits for others."""

    @property
    def group_min_session_timeout_ms(self) -> int:
        """The shortest session."""

    @property
    def group_max_session_timeout_ms(self) -> int:
        """The longest session."""

    @property
    def group_max_size(self) -> int:
        """The members that a group may have."""


class Rebalancer:
    """Rebalances of one partition of `__consumer_offsets`. `groups` is shared with the core."""

    def __init__(
        self,
        groups: dict[str, Group],
        journal: Journal,
        timers: Timers[Hashable],
        limits: GroupLimits,
        new_uuid: Callable[[], str],
    ) -> None:
        self.now = Now(0, 0)
        """The time, to be set before each call."""
        self.effects: list[Effect] = []
        """The effects for the caller to take."""
        self.entered: list[Group] = []
        """Groups that have changed their state in this event."""
        self._groups = groups
        self._journal = journal
        self._timers = timers
        self._limits = limits
        self._new_uuid = new_uuid

    def invariants(self) -> None:
        """Stop the program unless each member is waited for.

        A member without a timer would keep its partitions for ever once its consumer is gone. A
        JoinGroup or SyncGroup of its own that waits has the rebalance's timer instead.
        """
        for group_id, group in self._groups.items():
            for name, member in group.members.items():
                waits = member.joining is not None or member.syncing is not None
                timed = waits or _session(group, name) in self._timers
                invariant(timed, "a member has a session, or a request that waits")
            if group.is_in(State.PREPARING):
                invariant(("join", group_id) in self._timers, "a rebalance comes to an end")
            for name in group.pending:
                timed = ("pending", group_id, name) in self._timers
                invariant(timed, "a member id that was given out is awaited for a while")

    # --- JoinGroup ------------------------------------------------------------------------------

    def join(self, request_id: int, request: Join) -> None:
        """Respond when all members have joined, or at once if nothing is to change.

        Raises GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL if no protocol is left that all
        members know, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID.
        """
        self.check(request)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.caller.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = Group(request.group_id, state_wall_ms=self.now.wall_ms)
            self._groups[request.group_id] = group
        if not self._has_room(group, request.caller.member_id):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.caller.member_id:
            self._rejoin(group, request_id, request)
        else:
            self._join_new(group, request_id, request)

    def check(self, request: Join) -> None:
        """Check the fields of a JoinGroup alone, before anything is known of its group.

        Raises INVALID_SESSION_TIMEOUT outside of `group.min.session.timeout.ms` and
        `group.max.session.timeout.ms`, and INCONSISTENT_GROUP_PROTOCOL without a protocol.
        """
        shortest = self._limits.group_min_session_timeout_ms
        longest = self._limits.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            text = f"session.timeout.ms must be {shortest} to {longest}"
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, text)
        if not request.protocol_type or not request.protocols:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _has_room(self, group: Group, member_id: str) -> bool:
        """Whether the member may join without making the group too large.

        While a rebalance is prepared only joined members count: those that have not come back may
        be gone, and a group at its limit could otherwise never replace one.
        """
        known = group.members.get(member_id)
        if group.is_in(State.PREPARING):
            joined = sum(one.joining is not None for one in group.members.values())
            again = known is not None and known.joining is not None
            return again or joined < self._limits.group_max_size
        return known is not None or len(group.members) < self._limits.group_max_size

    def _join_new(self, group: Group, request_id: int, request: Join) -> None:
        """Take in a member without an id.

        A client that can do so joins twice: with the id that the first response gives it. A client
        whose first response is lost would otherwise leave a member behind that nobody is (KIP-394).
        A static member is known by its instance id and needs no second join.
        """
        instance_id = request.caller.instance_id
        member_id = f"{instance_id or request.client_id}-{self._new_uuid()}"
        if instance_id is not None and instance_id in group.statics:
            self._replace(group, group.statics[instance_id], member_id, request_id, request)
        elif instance_id is None and request.needs_member_id:
            group.pending[member_id] = None
            due = self.now.ms + request.session_timeout_ms
            self._timers.set(("pending", group.group_id, member_id), due)
            self._answer(request_id, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(group, member_id, request_id, request)

    def _rejoin(self, group: Group, request_id: int, request: Join) -> None:
        """Take in a member that brings its id. A rebalance begins only if something changes."""
        member_id = request.caller.member_id
        if member_id in group.pending and request.caller.instance_id is None:
            self._timers.cancel(("pending", group.group_id, member_id))
            self._add(group, member_id, request_id, request)
            return
        # A leader that joins a stable group wants to assign again: the topics that it reads have
        # grown, which only it looks at. A follower has lost its response, or was restarted fast.
        member = self.member(group, request.caller)
        unchanged = member.protocols == request.protocols
        if group.is_in(State.COMPLETING) and unchanged:
            # It has not got the answer.
            self._answer(request_id, self._joined(group, member))
        elif group.is_in(State.STABLE) and unchanged and group.leader != member_id:
            self._answer(request_id, self._joined(group, member))
        else:
            self._update(group, member, request_id, request)

    def _add(self, group: Group, member_id: str, request_id: int, request: Join) -> None:
        """Add a member, which begins a rebalance.

        Until it has its response it sends no heartbeats, so it has `NEW_MEMBER_JOIN_MS` instead of
        a session: a client that vanishes while it waits does not stay for ever.
        """
        member = Member(
            member_id,
            request.caller.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            joining=request_id,
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.is_in(State.PREPARING) and group.delaying and group.generation == 0:
            self._delay(group)
        self._timers.set(_session(group, member_id), self.now.ms + NEW_MEMBER_JOIN_MS)
        self._prepare_or_complete(group)

    def _update(self, group: Group, member: Member, request_id: int, request: Join) -> None:
        """Take the member's new subscription. Only its newest JoinGroup is awaited: the client
        sends another when it has given up the one before.
        """
        if member.joining is not None:
            self._answer(member.joining, join_error(member.member_id, _REBALANCING))
        member.joining = request_id
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        # While it waits for the others it is not to be heard of.
        self._timers.cancel(_session(group, member.member_id))
        self._prepare_or_complete(group)

    def _replace(
        self, group: Group, old_id: str, member_id: str, request_id: int, request: Join
    ) -> None:
        """Give a static member that is back under its instance id a new member id (KIP-345).

        In a stable group that is no rebalance, if its metadata is the same: it keeps its
        assignment. The record with the new id must be written first. If the log refuses it,
        everything is put back, since the next coordinator would know the old id only.
        """
        old = group.members[old_id]
        was_leader = group.leader == old_id
        before = (dict(group.members), group.leader, old.protocols)
        self._fence(group, old)
        changed = old.metadata(group.protocol) != dict(request.protocols).get(group.protocol or "")
        old.member_id = member_id
        group.members = {one.member_id: one for one in group.members.values()}
        group.statics[old.instance_id or ""] = member_id
        group.leader = member_id if was_leader else group.leader
        old.protocols = request.protocols
        if not group.is_in(State.STABLE) or changed:
            self._update(group, old, request_id, request)
            return
        try:
            self._write(group, {one.member_id: one.assignment for one in group.members.values()})
        except KafkaError:
            group.members, group.leader, old.protocols = before
            old.member_id = old_id
            group.statics[old.instance_id or ""] = old_id
            self.touch(group, old)
            raise
        self.touch(group, old)
        message = self._joined(group, old)
        if was_leader:
            # It has nothing to assign: an older client must not take itself for the leader.
            skip = request.may_skip_assignment
            if skip:
                message["skip_assignment"] = True
            else:
                message["leader"], message["members"] = old_id, []
        self._answer(request_id, message, needs_commit=True)

    def _fence(self, group: Group, member: Member) -> None:
        """End what the former holder of an instance id waits for, with FENCED_INSTANCE_ID."""
        self._timers.cancel(_session(group, member.member_id))
        fenced = ErrorCode.FENCED_INSTANCE_ID
        if member.joining is not None:
            self._answer(member.joining, join_error(member.member_id, fenced))
        if member.syncing is not None:
            self._answer(member.syncing, sync_error(fenced))
        group.unsynced.pop(member.member_id, None)
        member.joining = member.syncing = None

    def _joined(self, group: Group, member: Member) -> wire.JoinGroupResponse:
        """The response to a JoinGroup. The leader alone gets all members and their subscriptions:
        a large group would otherwise send each of them to each.
        """
        leads = group.leader == member.member_id
        return {
            "error_code": ErrorCode.NONE,
            "generation_id": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "leader": group.leader or "",
            "member_id": member.member_id,
            "members": group.members_for_leader() if leads else [],
        }

    # --- a rebalance ----------------------------------------------------------------------------

    def _prepare_or_complete(self, group: Group) -> None:
        """Begin a rebalance after a change of members, or go on with the one that is prepared."""
        if group.is_in(State.STABLE, State.COMPLETING, State.EMPTY):
            self._prepare(group)
        elif group.is_in(State.PREPARING):
            self._complete_if_all_joined(group)

    def _prepare(self, group: Group) -> None:
        """Begin a rebalance: all members are to join again.

        Members learn of it from their next heartbeat, or from the SyncGroup that they wait for. An
        empty group first waits `group.initial.rebalance.delay.ms`: consumers are often started
        together, and each one that came a moment later would cause another rebalance (KIP-134).
        """
        for member in group.members.values():
            if member.syncing is not None:
                self._answer(member.syncing, sync_error(_REBALANCING))
                member.syncing = None
                self.touch(group, member)
        self._timers.cancel(("sync", group.group_id))
        group.unsynced.clear()
        delay = self._limits.group_initial_rebalance_delay_ms
        group.delaying = group.is_in(State.EMPTY) and delay > 0
        self._enter(group, State.PREPARING)
        if group.delaying:
            group.delay_ends_ms = self.now.ms + max(group.rebalance_timeout_ms, delay)
            self._delay(group)
        else:
            self._wait_for_joins(group)
            self._complete_if_all_joined(group)

    def _delay(self, group: Group) -> None:
        """Wait for others from now on, since a member has come, but not longer than the first one
        waits for a rebalance.

        Apache Kafka looks at the end of each delay whether somebody came in it. So members that
        come together there wait for two delays, and here for one.
        """
        due_ms = self.now.ms + self._limits.group_initial_rebalance_delay_ms
        self._timers.set(("join", group.group_id), min(due_ms, group.delay_ends_ms))

    def _wait_for_joins(self, group: Group) -> None:
        """Wait for the longest of the members' rebalance timeouts; 1 ms at least."""
        timeout_ms = max(group.rebalance_timeout_ms, 1)
        self._timers.set(("join", group.group_id), self.now.ms + timeout_ms)

    def _complete_if_all_joined(self, group: Group) -> None:
        """Complete the join before its time if nobody is missing, but not during the initial delay:
        the first member of a group is always complete by itself.
        """
        if not group.delaying and group.all_joined:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Make the next generation of the members that have joined, and of static members.

        A static member that has not joined keeps its place until its session is over: it may be
        restarting. A dynamic one is removed. The leader must have joined, for it is to assign.
        """
        invariant(group.is_in(State.PREPARING), "a generation follows a rebalance")
        group.delaying = False
        for member in list(group.members.values()):
            if member.joining is None and not member.is_static:
                self._drop(group, member)
        if group.members and not group.elect_joined():
            # Static members alone, none of whom is back: their sessions decide.
            self._wait_for_joins(group)
            return
        self._timers.cancel(("join", group.group_id))
        group.generation += 1
        if not group.members:
            self._become_empty(group)
            return
        group.protocol = group.selected_protocol()
        self._enter(group, State.COMPLETING)
        for member in group.members.values():
            self._begin_generation(group, member)
        self._timers.set(("sync", group.group_id), self.now.ms + group.rebalance_timeout_ms)

    def _begin_generation(self, group: Group, member: Member) -> None:
        """Respond to the member's JoinGroup, and expect its SyncGroup from now on."""
        invariant(member.joining is not None or member.is_static, "a generation has joined")
        if member.joining is not None:
            self._answer(member.joining, self._joined(group, member))
        member.joining = None
        member.is_new = False
        member.epochs = None
        group.unsynced[member.member_id] = None
        self.touch(group, member)

    def _become_empty(self, group: Group) -> None:
        """Write that the group has no members, so that its offsets may expire."""
        group.protocol = group.leader = None
        self._enter(group, State.EMPTY)
        try:
            self._write(group, {})
        except KafkaError:
            # Nobody waits for it. The next coordinator finds the members' sessions run out.
            return

    def _write(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Write the group's record. Raises KafkaError; MESSAGE_TOO_LARGE is not a code that clients
        of groups know.
        """
        fields = group.record(self.now.wall_ms, assignments)
        try:
            self._journal.append([group_record(group.group_id, fields)])
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error
            raise

    def _enter(self, group: Group, state: State) -> None:
        self.entered.append(group)
        group.enter(state, self.now.wall_ms)

    # --- SyncGroup ------------------------------------------------------------------------------

    def sync(self, request_id: int, request: Sync) -> None:
        """Respond with the assignment, once the leader has sent it.

        Raises INCONSISTENT_GROUP_PROTOCOL if the client names another protocol (KIP-559), and
        REBALANCE_IN_PROGRESS if the next rebalance has begun.
        """
        group, member = self._member_of_generation(request.group_id, request.caller)
        asked = (request.protocol_type, request.protocol_name)
        known = (group.protocol_type, group.protocol)
        if any(one is not None and one != ours for one, ours in zip(asked, known, strict=True)):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A SyncGroup of a generation that ends: its assignment will never come.
        if group.is_in(State.PREPARING):
            raise KafkaError(_REBALANCING)
        self._synced(group, member)
        if group.is_in(State.STABLE):
            self.touch(group, member)
            self._answer(request_id, self._assigned(group, member), needs_commit=True)
            return
        if member.syncing is not None:
            self._answer(member.syncing, sync_error(_REBALANCING))
        member.syncing = request_id
        self._timers.cancel(_session(group, member.member_id))
        if group.leader == member.member_id:
            self._assign(group, dict(request.assignments))

    def _synced(self, group: Group, member: Member) -> None:
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._timers.cancel(("sync", group.group_id))

    def _assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignment and respond to all that wait for theirs.

        If the log refuses the record no member may work by it: the next coordinator would not know
        of the generation. So all members get the error, and another rebalance begins.
        """
        invariant(group.is_in(State.COMPLETING), "a generation is assigned once")
        try:
            self._write(group, assignments)
        except KafkaError as error:
            for member in group.members.values():
                if member.syncing is not None:
                    self._answer(member.syncing, sync_error(error.code))
                    member.syncing = None
                    self.touch(group, member)
            self._prepare_or_complete(group)
            return
        self._enter(group, State.STABLE)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                self._answer(member.syncing, self._assigned(group, member), needs_commit=True)
                member.syncing = None
                self.touch(group, member)

    def _assigned(self, group: Group, member: Member) -> wire.SyncGroupResponse:
        return {
            "error_code": ErrorCode.NONE,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "assignment": member.assignment,
        }

    # --- Heartbeat, LeaveGroup ------------------------------------------------------------------

    def heartbeat(self, request_id: int, request: Heartbeat) -> None:
        """Respond whether the member is to join again."""
        group, member = self._member_of_generation(request.group_id, request.caller)
        self.touch(group, member)
        error = _REBALANCING if group.is_in(State.PREPARING) else ErrorCode.NONE
        self._answer(request_id, {"error_code": error})

    def leave(self, request_id: int, request: Leave) -> None:
        """Remove members, each on its own: one that is unknown does not keep the others."""
        group = self._groups.get(request.group_id)
        members = [left_message(one, self._leave(group, one)) for one in request.callers]
        self._answer(request_id, {"error_code": ErrorCode.NONE, "members": members})

    def _leave(self, group: Group | None, caller: Caller) -> ErrorCode:
        """Remove one member, or give up an id that was handed out; return the member's error."""
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if caller.member_id in group.pending:
            self._forget_pending(group, caller.member_id)
            return ErrorCode.NONE
        try:
            member = self.member(group, caller)
        except KafkaError as error:
            return error.code
        self._remove(group, member)
        return ErrorCode.NONE

    def _remove(self, group: Group, member: Member) -> None:
        self._drop(group, member)
        self._prepare_or_complete(group)

    def _drop(self, group: Group, member: Member) -> None:
        """Remove a member and end its waits, without a rebalance; that is up to the caller."""
        group.remove(member.member_id)
        self._timers.cancel(_session(group, member.member_id))
        gone = ErrorCode.UNKNOWN_MEMBER_ID
        if member.joining is not None:
            self._answer(member.joining, join_error(member.member_id, gone))
        if member.syncing is not None:
            self._answer(member.syncing, sync_error(gone))

    def _forget_pending(self, group: Group, member_id: str) -> None:
        """Give up a member id that was handed out. A prepared rebalance waits for it no more."""
        group.pending.pop(member_id, None)
        self._timers.cancel(("pending", group.group_id, member_id))
        if group.is_in(State.PREPARING):
            self._complete_if_all_joined(group)

    # --- groups that change their protocol --------------------------------------------------------

    def take_over(self, group: Group) -> None:
        """Take a group whose members must all join: it was of KIP-848 before, or its record has no
        leader, so that its last rebalance is unknown.
        """
        self._groups[group.group_id] = group
        self.watch(group)
        self._prepare(group)

    def watch(self, group: Group) -> None:
        """Give each member the time of a session, unless its session runs already.

        Sessions are not in the log, so a coordinator that takes over starts them all. A heartbeat
        may have come before this group's turn.
        """
        for member in group.members.values():
            if _session(group, member.member_id) not in self._timers:
                self.touch(group, member)

    def let_go(self, group: Group) -> None:
        """End all waits: the group is of KIP-848 now, and its members join that."""
        for what in ("join", "sync"):
            self._timers.cancel((what, group.group_id))
        for member_id in group.pending:
            self._timers.cancel(("pending", group.group_id, member_id))
        for member in group.members.values():
            self._timers.cancel(_session(group, member.member_id))
            if member.joining is not None:
                self._answer(member.joining, join_error(member.member_id, _REBALANCING))
            if member.syncing is not None:
                self._answer(member.syncing, sync_error(_REBALANCING))

    # --- time -----------------------------------------------------------------------------------

    def due(self, what: str, group_id: str, member_id: str = "") -> None:
        """Do what is due at a timer: its kind, group and, of a session, member.

        A timer of a group that is gone, or of a member that has left in this tick, does nothing.
        """
        group = self._groups.get(group_id)
        if group is None:
            return
        if what == "join":
            # The delay or the rebalance timeout is over.
            if group.is_in(State.PREPARING):
                self._complete_join(group)
        elif what == "sync":
            self._sync_is_due(group)
        elif what == "pending":
            self._forget_pending(group, member_id)
        elif member_id in group.members:
            self._remove(group, group.members[member_id])

    def _sync_is_due(self, group: Group) -> None:
        """Remove the members that joined and then did not ask for their assignment."""
        for member_id in list(group.unsynced):
            self._drop(group, group.members[member_id])
        group.unsynced.clear()
        self._prepare_or_complete(group)

    def touch(self, group: Group, member: Member) -> None:
        """Start the member's session again. One that waits for a JoinGroup response sends no
        heartbeats, so its session is not running.
        """
        if member.joining is None:
            due = self.now.ms + member.session_timeout_ms
            self._timers.set(_session(group, member.member_id), due)

    # --- who it is ------------------------------------------------------------------------------

    def member(self, group: Group, caller: Caller) -> Member:
        """Return the member that the caller is.

        Raises UNKNOWN_MEMBER_ID, and FENCED_INSTANCE_ID if another member id holds the instance id.
        An instance id alone names the member: administrators remove static members so (KIP-345).
        """
        member_id = caller.member_id
        if caller.instance_id is not None:
            known = group.statics.get(caller.instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if member_id and member_id != known:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            member_id = known
        if member_id not in group.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.members[member_id]

    def _member_of_generation(self, group_id: str, caller: Caller) -> tuple[Group, Member]:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.member(group, caller)
        if not group.is_current(member, caller.generation):
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return group, member

    def _answer(self, request_id: int, message: Message, *, needs_commit: bool = False) -> None:
        self.effects.append(Answer(request_id, message, needs_commit))


def _session(group: Group, member_id: str) -> tuple[str, str, str]:
    return ("session", group.group_id, member_id)
