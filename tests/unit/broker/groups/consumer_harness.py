"""Groups of KIP-848 without a shell: consumers that do as they are told, topics that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.coordinator.core import NOBODY, KeyValue
from broker.groups._consumer_records import Slot, slots_of
from broker.groups.requests import ConsumerHeartbeat, DescribeConsumerGroup
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import RemoveTopicRecord
from tests.unit.broker.groups.group_harness import Bench
from tests.unit.broker.server.fakes import topic_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.image import TopicsImage

SESSION_MS = 45_000
REBALANCE_MS = 20_000


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"."))


class ConsumerBench(Bench):
    """Topic `t` of six partitions to begin with."""

    def __init__(self, **keys: str) -> None:
        self.image = EMPTY_IMAGE
        self._refusals: dict[int, ErrorCode] = {}
        self._appended = 0
        super().__init__(**keys)
        self.add_topic("t", 6)

    @property
    def topics(self) -> TopicsImage:
        """Those of now."""
        return self.image.topics

    def refuse_after(self, count: int, error: ErrorCode) -> None:
        """After so many more batches one is refused."""
        self._refusals[self._appended + count] = error

    def append(self, records: Sequence[KeyValue], producer: tuple[int, int] = NOBODY) -> None:
        """Part of `Journal`."""
        number, self._appended = self._appended, self._appended + 1
        if number in self._refusals:
            raise KafkaError(self._refusals[number])
        super().append(records, producer)

    def add_topic(self, name: str, partitions: int) -> None:
        self._apply(topic_records(name, topic_id(name), partitions))

    def remove_topic(self, name: str) -> None:
        self._apply([RemoveTopicRecord(topic_id(name))])

    def _apply(self, records: Sequence[Any]) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record, self.image.offset + 1)
        self.image = delta.apply(self.image.offset + 1, 1, 0)

    def beat(self, member_id: str, epoch: int = 0, **changes: Any) -> Any:
        """The response to a heartbeat, or the error; with epoch 0 the member joins."""
        first: dict[str, Any] = {}
        if epoch == 0:
            first = {"rebalance_timeout_ms": REBALANCE_MS, "topic_names": ("t",), "owned": ()}
        fields: dict[str, Any] = {
            "group_id": "g",
            "member_id": member_id,
            "epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "client_id": "c",
            "client_host": "",
            "rebalance_timeout_ms": -1,
            "topic_names": None,
            "topic_regex": None,
            "server_assignor": None,
            "owned": None,
            "brings_member_id": True,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 5_000,
            "topics": self.image.topics,
            **first,
            **changes,
        }
        return self.ask(ConsumerHeartbeat(**fields))

    def described(self, group_id: str = "g") -> Any:
        return self.ask(DescribeConsumerGroup(group_id, self.image.topics))


@dataclass
class Consumer:
    """A consumer that does what it is told."""

    bench: ConsumerBench
    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    has: frozenset[Slot] = frozenset()
    told: frozenset[Slot] = frozenset()

    def beat(self, **changes: Any) -> Any:
        """A heartbeat that tells everything; what is to go goes after the next one."""
        owned = tuple(self.owned())
        if self.epoch == 0:
            self.has = self.told = frozenset()
            owned = ()
        response = self.bench.beat(
            self.member_id, self.epoch, instance_id=self.instance_id, owned=owned, **changes
        )
        if isinstance(response, dict):
            self.epoch = response["member_epoch"]
            if response["assignment"] is not None:
                self.told = slots_of(response["assignment"]["topic_partitions"])
        return response

    def owned(self) -> list[dict[str, Any]]:
        return [{"topic_id": one, "partitions": [number]} for one, number in sorted(self.has)]

    def obey(self) -> None:
        """Lets go of what it shall not have, and takes the rest."""
        self.has = self.told

    def settle(self) -> None:
        """Heartbeats until nothing changes for it."""
        for _ in range(5):
            self.beat()
            self.obey()


def settled(*members: Consumer) -> None:
    """All have what they shall have."""
    for _ in range(6):
        for one in members:
            one.beat()
            one.obey()


def numbers(member: Consumer, topic: str = "t") -> list[int]:
    """What a member has of a topic."""
    return sorted(number for one, number in member.has if one == topic_id(topic))
