"""A core of groups without a shell: the journal is a list, the time is the test's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.core import NOBODY, Answer, Effect, KeyValue, Now
from broker.groups import UNSTABLE, CommittedOffset
from broker.groups._core import GroupCore
from broker.groups.classic._embedded_protocol import subscription
from broker.groups.requests import (
    Caller,
    Commit,
    DescribeGroup,
    FetchOffsets,
    FindGroups,
    Heartbeat,
    Join,
    ListGroups,
    Sync,
)
from broker.types import TopicPartition
from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from raftctl.metadata.image import TopicsImage

BYTES_MAX = 1_000_000
WALL_MS = 1_700_000_000_000
PROTOCOLS = (("range", subscription(["t"])), ("sticky", subscription(["t"])))
P0 = TopicPartition("t", 0)


class Bench:
    """Requests with names for request ids; `told` has what each was told."""

    def __init__(self, **keys: str) -> None:
        given = {key.replace("_", "."): value for key, value in keys.items()}
        self.config = make_config(
            {
                "process.roles": "broker",
                "node.id": "1",
                "log.dirs": "/nowhere",
                "controller.quorum.voters": "0@127.0.0.1:1",
                "group.initial.rebalance.delay.ms": "0",
                **given,
            }
        )
        self.log: list[KeyValue] = []
        self._happened: list[tuple[KeyValue | bool, int]] = []
        """Records and markers, each with its producer id."""
        self.refuse: ErrorCode | None = None
        self.records_max = 1_000
        """In one batch."""
        self.ms = 0
        self.told: dict[int, Any] = {}
        self._request_id = 0
        self._uuid = 0
        self.core = self.new_core()
        self.core.loaded(self.now)

    def new_core(self) -> GroupCore:
        """As it would be loaded elsewhere."""
        core = GroupCore(self, self.config, self._new_uuid)
        for what, producer_id in self._happened:
            if isinstance(what, bool):
                core.ended(producer_id, commit=what)
            else:
                core.replay(*what, producer_id)
        return core

    def fail_over(self) -> None:
        """Another broker takes the partition up."""
        self.core = self.new_core()
        self._take(self.core.loaded(self.now))

    @property
    def topics(self) -> TopicsImage:
        """Those of now."""
        return EMPTY_IMAGE.topics

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def append(self, records: Sequence[KeyValue], producer: tuple[int, int] = NOBODY) -> None:
        """Part of `Journal`."""
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        size = sum(len(one.key) + len(one.value or b"") for one in records)
        if len(records) > self.records_max or size > BYTES_MAX:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        self.log += records
        for record in records:
            self._happened.append((record, producer[0]))
            self.core.replay(*record, producer[0])

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer's transaction."""
        self._happened.append((commit, producer_id))
        self.core.ended(producer_id, commit=commit)

    def begin(self, request: Any) -> int:
        """Asks, and returns the request id; a refusal is told as its code."""
        self._request_id += 1
        try:
            self._take(self.core.handle(self._request_id, request, self.now))
        except KafkaError as error:
            self.told[self._request_id] = error.code
            self.core.invariants()
        return self._request_id

    def begin_all(self, requests: Sequence[Commit]) -> list[Any]:
        """What each is told of those that are handled together."""
        first = self._request_id + 1
        self._request_id += len(requests)
        request_ids = range(first, first + len(requests))
        self._take(self.core.handle_all(list(zip(request_ids, requests, strict=True)), self.now))
        return [self.told[request_id] for request_id in request_ids]

    def ask(self, request: Any) -> Any:
        """The answer, which must come at once; of a message that is an error the code."""
        answer = self.told[self.begin(request)]
        if isinstance(answer, dict) and answer.get("error_code"):
            return answer["error_code"]
        return answer

    def sleep(self, ms: int) -> None:
        """Lets time pass, deadline by deadline."""
        until = self.ms + ms
        while (due := self.core.deadline_ms()) is not None and due <= until:
            self.ms = max(self.ms, due)
            self._take(self.core.tick(self.now))
        self.ms = until

    def _take(self, effects: list[Effect]) -> None:
        self.core.invariants()
        for effect in effects:
            assert isinstance(effect, Answer)
            assert effect.request_id not in self.told
            refused = isinstance(effect.response, KafkaError)
            self.told[effect.request_id] = effect.response.code if refused else effect.response

    def _new_uuid(self) -> str:
        self._uuid += 1
        return str(self._uuid)

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[dict[str, Any]]:
        """The groups that pass the filters."""
        group_ids = self.ask(FindGroups())
        found: list[dict[str, Any]] = self.ask(
            ListGroups(group_ids, frozenset(states), frozenset(types))
        )
        return found

    # --- requests -------------------------------------------------------------------------------

    def join(self, member_id: str = "", **changes: Any) -> Join:
        fields: dict[str, Any] = {
            "group_id": "g",
            "caller": Caller(member_id, changes.pop("instance_id", None)),
            "client_id": "c",
            "client_host": "",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": PROTOCOLS,
            "needs_member_id": False,
            "may_skip_assignment": True,
            **changes,
        }
        return Join(**fields)

    def caller(self, member_id: str, generation: int = 1, instance_id: str | None = None) -> Caller:
        return Caller(member_id, instance_id, generation)

    def sync(
        self, member_id: str, generation: int = 1, assignments: dict[str, bytes] | None = None
    ) -> Sync:
        pairs = tuple((assignments or {}).items())
        return Sync("g", Caller(member_id, None, generation), "consumer", "range", pairs)

    def heartbeat(self, member_id: str, generation: int = 1) -> Any:
        """The error."""
        found = self.ask(Heartbeat("g", Caller(member_id, None, generation), self.topics))
        return found["error_code"] if isinstance(found, dict) else found

    def commit(
        self,
        member_id: str,
        generation: int,
        offset: int,
        metadata: str = "",
        group: str = "g",
        producer: tuple[int, int] = NOBODY,
    ) -> Any:
        """The error of partition 0 of topic t."""
        committed = CommittedOffset(offset, 3, metadata, self.now.wall_ms)
        caller = Caller(member_id, None, generation)
        found = self.ask(Commit(group, caller, ((P0, committed),), producer))
        return found[P0] if isinstance(found, dict) else found

    def committed(self, group: str = "g", *, stable: bool = False) -> int | str | None:
        """The offset of partition 0 of topic t, or that it is about to change."""
        found = self.ask(FetchOffsets(group, (P0,), stable))[P0]
        if found is UNSTABLE:
            return "unstable"
        return None if found is None else int(found.offset)

    def state(self) -> str | None:
        found = self.ask(DescribeGroup("g"))
        return None if found is None else str(found["group_state"])

    def two_members(self) -> tuple[str, str]:
        """A stable group of generation 2, whose first member leads."""
        first = self.ask(self.join())["member_id"]
        second_ticket = self.begin(self.join())
        again = self.ask(self.join(first))
        second = self.told[second_ticket]["member_id"]
        assert again["generation_id"] == 2
        assigned = self.begin(self.sync(second, 2))
        self.ask(self.sync(first, 2, {first: b"a", second: b"b"}))
        assert self.told[assigned]["assignment"] == b"b"
        return first, second
