"""Brokers, as a requester asks them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import NO_LEADER
from raftctl.plugins import ANY_BROKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from raftctl.metadata.image import MetadataImage
    from raftctl.plugins import BrokerClient
    from raftctl.security import Requester

    Body = Mapping[str, Any]

TIMEOUT_MS = 10_000
LATEST = -1
EARLIEST = -2
CONSUMER = -1
ANY_REPLICA = -2
"""The replica id of ListOffsets by which each replica answers with the end of its own log."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""What a coordinator is looked for by."""
_COORDINATED = {GROUP_KEY: "__consumer_offsets", TRANSACTION_KEY: "__transaction_state"}


class Partition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Answers(NamedTuple):
    """The answers of several brokers."""

    answers: Mapping[int, Body]
    """By the id of the broker."""
    failures: Mapping[int, KafkaError]
    """Why others did not answer."""

    @property
    def unanswered(self) -> list[dict[str, Any]]:
        """The brokers whose part is missing, as documents name them."""
        return [
            {"broker": broker_id, "message": error.message}
            for broker_id, error in sorted(self.failures.items())
        ]


class Brokers:
    """Asks brokers as a requester."""

    def __init__(self, client: BrokerClient, image: Callable[[], MetadataImage]) -> None:
        self._client = client
        self._image = image

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        return self._image()

    @property
    def live(self) -> list[int]:
        """The brokers that are not fenced, in order."""
        brokers = self._image().brokers
        return sorted(one for one, broker in brokers.items() if not broker.fenced)

    async def ask(
        self, requester: Requester, api: str, body: Body, broker_id: int = ANY_BROKER
    ) -> Body:
        """Return a broker's answer; KafkaError as of `BrokerClient.ask`."""
        return await self._client.ask(broker_id, api, body, requester, TIMEOUT_MS)

    async def ask_each(self, requester: Requester, api: str, bodies: Mapping[int, Body]) -> Answers:
        """Ask several brokers at once."""
        asked = list(bodies.items())
        found = await asyncio.gather(
            *(self.ask(requester, api, body, broker_id) for broker_id, body in asked),
            return_exceptions=True,
        )
        answers, failures = {}, {}
        for (broker_id, _), one in zip(asked, found, strict=True):
            if isinstance(one, KafkaError):
                failures[broker_id] = one
            elif isinstance(one, BaseException):
                raise one
            else:
                answers[broker_id] = one
        return Answers(answers, failures)

    async def ask_all(self, requester: Requester, api: str, body: Body) -> Answers:
        """Ask all live brokers the same.

        KafkaError if none answers, or none is there.
        """
        live = self.live
        found = await self.ask_each(requester, api, dict.fromkeys(live, body))
        if not found.answers:
            raise next(iter(found.failures.values()), _no_broker())
        return found

    async def coordinator(self, requester: Requester, kind: int, key: str) -> int | None:
        """Return the broker that coordinates a group or a transactional id.

        None if the brokers' topic for it does not exist, and so nothing of the kind does: a broker
        that is asked would create it. KafkaError: the refusal, or that none is known.
        """
        if self._image().topics.by_name(_COORDINATED[kind]) is None:
            return None
        body = {"key_type": kind, "coordinator_keys": [key]}
        answer = await self.ask(requester, "FIND_COORDINATOR", body)
        [found] = answer["coordinators"]
        check(found["error_code"], found["error_message"])
        broker_id: int = found["node_id"]
        return broker_id

    def leaders(self, partitions: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Return the partitions that have a leader, by its broker."""
        image = self._image()
        led: dict[int, list[Partition]] = {}
        for one in partitions:
            topic = image.topics.by_name(one.topic)
            known = None if topic is None else topic.partitions.get(one.partition)
            if known is not None and known.leader != NO_LEADER:
                led.setdefault(known.leader, []).append(one)
        return led

    async def offsets(
        self,
        requester: Requester,
        partitions: Mapping[int, Iterable[Partition]],
        timestamp: int,
        *,
        replica_id: int = CONSUMER,
    ) -> dict[int, dict[Partition, int]]:
        """Return the offset of a time, of `LATEST` or of `EARLIEST`, by broker and partition.

        What is not answered, or not allowed, is left out.
        """
        bodies = {
            broker_id: {
                "replica_id": replica_id,
                "isolation_level": 0,
                "timeout_ms": TIMEOUT_MS,
                "topics": by_topic(
                    some,
                    lambda one: {"partition_index": one.partition, "timestamp": timestamp},
                ),
            }
            for broker_id, some in partitions.items()
        }
        found = await self.ask_each(requester, "LIST_OFFSETS", bodies)
        return {
            broker_id: {
                Partition(topic["name"], one["partition_index"]): one["offset"]
                for topic in answer["topics"]
                for one in topic["partitions"]
                if not one["error_code"]
            }
            for broker_id, answer in found.answers.items()
        }

    async def ends(
        self, requester: Requester, partitions: Iterable[Partition]
    ) -> dict[Partition, int]:
        """Return the high watermark of partitions, of those that are answered for."""
        found = await self.offsets(requester, self.leaders(partitions), LATEST)
        return {one: offset for some in found.values() for one, offset in some.items()}


def by_topic(
    partitions: Iterable[Partition], form: Callable[[Partition], Any], *, name: str = "name"
) -> list[dict[str, Any]]:
    """Return the partitions as most requests have them: topics with arrays of partitions."""
    topics: dict[str, list[Any]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(form(one))
    return [{name: topic, "partitions": some} for topic, some in topics.items()]


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError for an error of a response."""
    if code:
        raise KafkaError(error_code(code), message or "")


def error_code(number: int) -> ErrorCode:
    """Return the code of a number; UNKNOWN_SERVER_ERROR if this release does not know it."""
    known = number in ErrorCode._value2member_map_
    return ErrorCode(number) if known else ErrorCode.UNKNOWN_SERVER_ERROR


def _no_broker() -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is there: start one")
