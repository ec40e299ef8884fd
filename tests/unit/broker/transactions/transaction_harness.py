"""A transaction coordinator's core on a journal in memory, which can crash at any step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from broker.coordinator.core import NOBODY, Answer, Command, Now
from broker.transactions import AddPartitions, EndTransaction, InitProducer, ProducerGoesOn
from broker.transactions._core import (
    MarkersWritten,
    Request,
    Settings,
    TransactionCore,
    WriteMarkers,
)
from broker.types import TopicPartition
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.coordinator.core import Effect, KeyValue

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COORDINATOR_EPOCH = 6
_Asks = TypeVar("_Asks", InitProducer, EndTransaction)
_REQUEST_ID = 1
"""Of requests that are answered at once."""


class Rig:
    """The log, the core that reads it, and the markers it asked for."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.log: list[KeyValue] = []
        self.commands: list[WriteMarkers] = []
        self.now = Now(1_000, 1_000)
        self.next_id = 100
        self.later: dict[int, Any] = {}
        """The responses to patient requests, by their request ids."""
        self._next_request_id = _REQUEST_ID
        self.core = self._new_core()
        self.take(self.core.loaded(self.now))

    def append(self, records: Sequence[KeyValue], producer: tuple[int, int] = NOBODY) -> None:
        assert producer == NOBODY
        self.log += records
        for record in records:
            self.core.replay(*record)

    def _new_core(self) -> TransactionCore:
        return TransactionCore(self, COORDINATOR_EPOCH, self.settings)

    def fail_over(self, keep: int | None = None) -> None:
        """Another broker takes over, with the first records of the log."""
        self.log = self.log[:keep]
        self.commands = []
        self.core = self._new_core()
        for record in self.log:
            self.core.replay(*record)
        self.take(self.core.loaded(self.now))

    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.ms + ms, self.now.wall_ms + ms)
        due = self.core.deadline_ms()
        if due is not None and due <= self.now.ms:
            self.take(self.core.tick(self.now))

    def take(self, effects: Sequence[Effect]) -> Any:
        """What was asked just before is told."""
        answers = {one.request_id: one.response for one in effects if isinstance(one, Answer)}
        self.commands += [one.what for one in effects if isinstance(one, Command)]
        self.core.invariants()
        response = answers.pop(_REQUEST_ID, None)
        self.later |= answers
        return response

    def ask(self, request: Request) -> Any:
        """The response; KafkaError as the client is told."""
        response = self.take(self.core.handle(_REQUEST_ID, request, self.now))
        if isinstance(response, KafkaError):
            raise response
        return response

    def _with_id(self, request: _Asks) -> _Asks:
        """With an id that nobody has if the core asks for one, as the coordinator does it."""
        if not self.core.needs_id(request):
            return request
        self.next_id += 1
        return request.with_id(self.next_id)

    def init(
        self, name: str = "x", before: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
    ) -> ProducerGoesOn:
        found = self.ask(self._with_id(InitProducer(name, timeout_ms, *before)))
        assert isinstance(found, ProducerGoesOn)
        return found

    def add(self, producer: ProducerGoesOn, *partitions: TopicPartition, name: str = "x") -> None:
        self.ask(AddPartitions(name, *producer, frozenset(partitions or (P0,))))

    def add_patiently(self, producer: ProducerGoesOn, *partitions: TopicPartition) -> int:
        """The request id; its response is in `later` when it has come."""
        self._next_request_id += 1
        asked = AddPartitions("x", *producer, frozenset(partitions or (P0,)), patient=True)
        self.take(self.core.handle(self._next_request_id, asked, self.now))
        return self._next_request_id

    def end(
        self, producer: ProducerGoesOn, *, commit: bool, version: int = 0, name: str = "x"
    ) -> ProducerGoesOn:
        found = self.ask(self._with_id(EndTransaction(name, *producer, commit, version)))
        assert isinstance(found, ProducerGoesOn)
        return found

    def write_markers(self) -> list[WriteMarkers]:
        """Does what the core asked for, and tells it."""
        done, self.commands = self.commands, []
        for one in done:
            self.ask(MarkersWritten(one.transactional_id, one.producer_id, one.producer_epoch))
        return done
