"""Brokers that answer as a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.plugins import ReadBatch
    from raftctl.security import Requester

    Body = Mapping[str, Any]
    Answer = Body | KafkaError | Callable[["Question"], Body]


class Question(NamedTuple):
    """What a broker was asked."""

    broker_id: int
    api: str
    body: Body
    requester: Requester


class FakeBrokers:
    """See `raftctl.plugins.BrokerClient`. What is not in `answers` is out of reach."""

    def __init__(self, answers: Mapping[str | tuple[str, int], Answer] | None = None) -> None:
        """`answers` has an api, or an api and a broker, to the answer or to what makes it."""
        self.answers = dict(answers or {})
        self.asked: list[Question] = []
        self.batches: list[ReadBatch] = []
        """What `read` returns."""
        self.reads: list[tuple[bytes, int, int, int]] = []

    async def ask(
        self, broker_id: int, api: str, body: Body, requester: Requester, timeout_ms: int
    ) -> Body:
        """See `BrokerClient.ask`."""
        del timeout_ms
        question = Question(broker_id, api, body, requester)
        self.asked.append(question)
        answer = self.answers.get((api, broker_id), self.answers.get(api))
        if answer is None:
            why = f"broker {broker_id} does not answer {api}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why)
        if isinstance(answer, KafkaError):
            raise answer
        return answer(question) if callable(answer) else answer

    async def read(
        self, records: bytes, from_offset: int, records_max: int, payload_bytes_max: int
    ) -> Sequence[ReadBatch]:
        """Return the batches that the test has made."""
        self.reads.append((records, from_offset, records_max, payload_bytes_max))
        return [one for one in self.batches if one.last_offset >= from_offset]

    async def close(self) -> None:
        """Nothing is open."""

    def questions(self, api: str) -> list[Question]:
        """What was asked of one kind."""
        return [one for one in self.asked if one.api == api]
