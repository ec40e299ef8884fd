"""A consumer of the classic protocol, for benches whose groups have both kinds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from broker.groups._migration import slots_in
from broker.groups.classic import assignment, assignment_of, subscription_of
from broker.groups.classic._embedded_protocol import subscription
from broker.groups.requests import Caller, Heartbeat, Leave, Sync
from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from tests.unit.broker.groups.consumer_harness import ConsumerBench

if TYPE_CHECKING:
    from broker.groups._consumer_records import Slot

RESETS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class ClassicConsumer:
    """Makes one step of its protocol at a time. A cooperative one goes on reading meanwhile and
    lets go of what it is not assigned again; another lets go of everything before it joins.
    """

    bench: ConsumerBench
    cooperative: bool = False
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: frozenset[TopicPartition] = frozenset()
    told_in: int = -1
    """The generation in which it was told of them: not yet the one that it has merely joined."""
    must_join: bool = True
    joining: int | None = None
    """The request id that it waits for."""
    syncing: int | None = None
    errors: list[ErrorCode] = field(default_factory=list)

    @property
    def has(self) -> frozenset[Slot]:
        """What it reads."""
        return slots_in(self.owned, self.bench.image.topics)

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def step(self) -> None:
        """One request, or what an answer leads to."""
        if self.joining is not None:
            self._joined()
        elif self.syncing is not None:
            self._synced()
        elif self.must_join:
            self._join()
        else:
            self._heartbeat()

    def forget(self) -> None:
        """It is no member any more, as it knows."""
        self.generation, self.owned, self.must_join = -1, frozenset(), True
        self.joining = self.syncing = None
        self.member_id = ""

    def leave(self) -> None:
        caller = Caller(self.member_id, self.instance_id)
        if self.joining is None and self.syncing is None and self.member_id:
            self.bench.ask(Leave("g", (caller,)))
            self.forget()

    @property
    def caller(self) -> Caller:
        return Caller(self.member_id, self.instance_id, self.generation)

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = frozenset()
        request = self.bench.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=((self.protocol, subscription(["t"], self.owned)),),
            needs_member_id=self.instance_id is None,
        )
        request = replace(request, topics=self.bench.image.topics)
        self.joining = self.bench.begin(request)

    def _answer(self, request_id: int) -> dict[str, Any] | ErrorCode | None:
        answer: dict[str, Any] | ErrorCode | None = self.bench.told.get(request_id)
        if isinstance(answer, dict) and answer["error_code"]:
            if answer["error_code"] is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer["member_id"]
            return ErrorCode(answer["error_code"])
        return answer

    def _refused(self, error: ErrorCode) -> None:
        self.errors.append(error)
        self.joining = self.syncing = None
        self.must_join = True
        if error in RESETS:
            self.forget()

    def _joined(self) -> None:
        assert self.joining is not None
        answer = self._answer(self.joining)
        if answer is None:
            return
        if isinstance(answer, ErrorCode):
            self._refused(answer)
            return
        self.joining, self.must_join = None, False
        self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        given: dict[str, bytes] = {}
        if answer["leader"] == self.member_id:
            given = self._assigned(answer["members"])
        sync = Sync("g", self.caller, "consumer", answer["protocol_name"], tuple(given.items()))
        self.syncing = self.bench.begin(replace(sync, topics=self.bench.image.topics))

    def _assigned(self, members: list[dict[str, Any]]) -> dict[str, bytes]:
        """As a leader does: each partition to one, once nobody else owns it."""
        topic = self.bench.image.topics.by_name("t")
        everything = [] if topic is None else [TopicPartition("t", n) for n in topic.partitions]
        owners = {
            one: member["member_id"]
            for member in members
            for one in subscription_of(member["metadata"]).owned
        }
        names = sorted(member["member_id"] for member in members)
        given: dict[str, list[TopicPartition]] = {name: [] for name in names}
        for place, one in enumerate(everything):
            name = names[place % len(names)]
            if owners.get(one, name) == name:
                given[name].append(one)
        return {name: assignment(partitions) for name, partitions in given.items()}

    def _synced(self) -> None:
        assert self.syncing is not None
        answer = self._answer(self.syncing)
        if answer is None:
            return
        if isinstance(answer, ErrorCode):
            self._refused(answer)
            return
        self.syncing = None
        now = assignment_of(answer["assignment"])
        # What it has let go of others may have: it joins again so that they are told.
        self.must_join = bool(self.owned - now)
        self.owned, self.told_in = now, self.generation

    def _heartbeat(self) -> None:
        answer = self.bench.ask(Heartbeat("g", self.caller, self.bench.image.topics))
        if isinstance(answer, ErrorCode):
            self._refused(answer)
