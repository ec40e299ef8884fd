"""The core of one partition of `__consumer_offsets`: consumer groups, their offsets.

Written is what must survive the coordinator: the members of a generation with their assignments,
groups that have become empty, offsets. A rebalance under way is not: members join again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from broker.coordinator.core import NOBODY, Answer, Now
from broker.coordinator.group import CONSUMER_PROTOCOL, Group, State
from broker.coordinator.group_limits import GroupLimits
from broker.coordinator.group_offsets import GroupOffsets
from broker.coordinator.group_records import GROUP_VALUE, UNSTABLE, GroupKey, OffsetKey, key_of
from broker.coordinator.group_requests import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ForgetTopics,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
)
from broker.coordinator.rebalance import Rebalancer
from broker.coordinator.timers import Timers
from broker.log.record_batch import NO_PRODUCER
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.coordinator.core import Effect, Journal
    from broker.coordinator.group_requests import GroupRequest

CLASSIC = "classic"
_MINUTE_MS = 60_000
_EXPIRY = ("expiry",)


class GroupSettings(GroupLimits, Protocol):
    """What the configuration says of groups and offsets."""

    @property
    def offset_metadata_max_bytes(self) -> int:
        """The longest text with an offset."""

    @property
    def offsets_retention_minutes(self) -> int:
        """How long offsets are kept that nobody uses."""

    @property
    def offsets_retention_check_interval_ms(self) -> int:
        """How often old offsets are looked for."""


class GroupCore:
    """See `broker.coordinator.core.Core`."""

    def __init__(
        self, journal: Journal, settings: GroupSettings, new_uuid: Callable[[], str]
    ) -> None:
        """`new_uuid` makes member ids that nobody guesses."""
        self._settings = settings
        self._timers = Timers()
        self._groups: dict[str, Group] = {}
        self._is_loaded = False
        self._offsets = GroupOffsets(journal, settings.offset_metadata_max_bytes)
        self._members = Rebalancer(self._groups, journal, self._timers, settings, new_uuid)

    # --- records --------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Takes a record of the log; kinds that are not known here stay as they are."""
        about = key_of(key)
        if isinstance(about, OffsetKey):
            self._offsets.replay(about, value, producer_id)
        elif isinstance(about, GroupKey) and not self._is_loaded:
            # Later it is this core that writes them, of groups that it has.
            self._groups.pop(about.group, None)
            if value is not None:
                group = Group.of_record(about.group, GROUP_VALUE.decode(value))
                self._groups[about.group] = group

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """The offsets of a producer's transaction count now, or never."""
        for group_id in self._offsets.ended(producer_id, commit=commit):
            self._groups.setdefault(group_id, Group(group_id))

    def loaded(self, now: Now) -> list[Effect]:
        """Members are given the time of a session to be heard of again."""
        self._members.now = now
        self._is_loaded = True
        for group in self._groups.values():
            for member in group.members.values():
                self._members.touch(group, member)
        for group_id in self._offsets.group_ids():
            self._groups.setdefault(group_id, Group(group_id))
        self._timers.set(_EXPIRY, now.ms + self._settings.offsets_retention_check_interval_ms)
        return self._taken()

    # --- requests -------------------------------------------------------------------------------

    def handle(self, ticket: int, request: GroupRequest, now: Now) -> list[Effect]:
        """Begins a request."""
        self._members.now = now
        match request:
            case Join():
                self._members.join(ticket, request)
            case Sync():
                self._members.sync(ticket, request)
            case Heartbeat():
                self._members.heartbeat(ticket, request)
            case Leave():
                self._members.leave(ticket, request)
            case Commit():
                self._answer(ticket, self._commit(request))
            case FetchOffsets():
                self._answer(ticket, self._fetch(request))
            case DeleteOffsets():
                self._answer(ticket, self._delete_offsets(request))
            case ForgetTopics():
                self._forget_topics(request)
                self._answer(ticket, None)
            case DeleteGroup():
                self._delete(request.group_id)
                self._answer(ticket, None)
            case DescribeGroup():
                self._answer(ticket, self._describe(request.group_id), settled=False)
            case ListGroups():
                self._answer(ticket, self._list(request), settled=False)
        return self._taken()

    def _answer(self, ticket: int, response: Any, *, settled: bool = True) -> None:
        self._members.effects.append(Answer(ticket, response, settled))

    def _taken(self) -> list[Effect]:
        effects, self._members.effects = self._members.effects, []
        return effects

    def _commit(self, request: Commit) -> dict[Any, ErrorCode]:
        group_id, caller = request.group_id, request.caller
        group = self._groups.get(group_id)
        if group is None:
            if caller.generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = Group(group_id, state_wall_ms=self._members.now.wall_ms)
        self._check_commit(group, request)
        errors = self._offsets.commit(group_id, request.offsets, request.producer)
        if self._offsets.of(group_id):
            self._groups[group_id] = group
        return errors

    def _check_commit(self, group: Group, request: Commit) -> None:
        caller = request.caller
        if caller.generation < 0 and group.is_in(State.EMPTY):
            # Its consumers assign partitions to themselves.
            return
        if request.producer != NOBODY and caller.generation < 0 and not caller.member_id:
            # Producers of older versions do not say for which member they write.
            return
        member = self._members.member(group, caller)
        if caller.generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.is_in(State.COMPLETING):
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._members.touch(group, member)

    def _fetch(self, request: FetchOffsets) -> dict[Any, Any]:
        offsets = self._offsets.of(request.group_id)
        if request.partitions is None:
            return dict(offsets)
        return {
            partition: UNSTABLE
            if request.require_stable and self._offsets.is_pending(request.group_id, partition)
            else offsets.get(partition)
            for partition in request.partitions
        }

    # --- administration -------------------------------------------------------------------------

    def _known(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return group

    def _delete_offsets(self, request: DeleteOffsets) -> dict[Any, ErrorCode]:
        group = self._known(request.group_id)
        subscribed = group.subscribed_topics() if group.members else set()
        if group.members and (group.protocol_type != CONSUMER_PROTOCOL or subscribed is None):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        read = {one for one in request.partitions if one.topic in (subscribed or ())}
        self._offsets.delete(request.group_id, [p for p in request.partitions if p not in read])
        return {
            one: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if one in read else ErrorCode.NONE
            for one in request.partitions
        }

    def _forget_topics(self, request: ForgetTopics) -> None:
        for group_id in self._offsets.group_ids():
            gone = [one for one in self._offsets.of(group_id) if one.topic in request.topics]
            self._offsets.delete(group_id, gone)

    def _delete(self, group_id: str) -> None:
        group = self._known(group_id)
        if not group.is_in(State.EMPTY):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members")
        self._offsets.delete(group_id, list(self._offsets.of(group_id)), with_group=True)
        del self._groups[group_id]

    def _describe(self, group_id: str) -> dict[str, Any] | None:
        group = self._groups.get(group_id)
        return None if group is None else group.message()

    def _list(self, request: ListGroups) -> list[dict[str, Any]]:
        if request.types and CLASSIC not in request.types:
            return []
        return [
            {
                "group_id": group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": CLASSIC,
            }
            for group_id, group in self._groups.items()
            if not request.states or group.state.value.lower() in request.states
        ]

    # --- time -----------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """The next timeout."""
        return self._timers.next_ms()

    def tick(self, now: Now) -> list[Effect]:
        """Does what is due."""
        self._members.now = now
        for key in self._timers.due(now.ms):
            if key == _EXPIRY:
                self._expire(now)
            elif isinstance(key, tuple):
                self._members.due(*key)
        return self._taken()

    def _expire(self, now: Now) -> None:
        self._timers.set(_EXPIRY, now.ms + self._settings.offsets_retention_check_interval_ms)
        retention_ms = self._settings.offsets_retention_minutes * _MINUTE_MS
        for group in list(self._groups.values()):
            expired = self._offsets.expired(group, now.wall_ms, retention_ms)
            left = len(self._offsets.of(group.group_id)) - len(expired)
            over = group.is_in(State.EMPTY) and not left and not group.pending
            try:
                if expired or over:
                    self._offsets.delete(group.group_id, expired, with_group=over)
            except KafkaError:
                # The next time.
                return
            if over:
                del self._groups[group.group_id]
