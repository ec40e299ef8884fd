"""`Coordinator`: the shards of one internal topic that this broker leads.

Follows the images: a partition whose leadership comes gets a shard, which loads; one whose
leadership goes loses it. Requests that wait there end with NOT_COORDINATOR, so that their clients
look for the next one. A
new leader epoch is a new shard, also on the same broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.background import Background
from broker.coordinator._cooperative import TurnQueue
from broker.coordinator._linger import Linger
from broker.coordinator._shard import Shard
from broker.coordinator.internal_topics import partition_of
from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger

    from broker.coordinator._shard import Replicas, Settings
    from broker.coordinator.core import Core, Journal
    from raftctl.metadata.image import MetadataImage, TopicImage


class Coordinator:
    """One a broker and internal topic. Images and requests, then `stop`."""

    def __init__(
        self,
        topic: str,
        broker_id: int,
        make_core: Callable[[Journal, int], Core],
        replicas: Replicas,
        settings: Settings,
        wall_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        log: FilteringBoundLogger,
    ) -> None:
        """`make_core` is given the journal of the partition and the leader epoch."""
        self.topic = topic
        self.on_command: Callable[[Shard, Any], None] = lambda _shard, _what: None
        """Does what cores ask for."""
        self._broker_id = broker_id
        self._make_core = make_core
        self._replicas = replicas
        self._settings = settings
        self._linger = Linger(settings.group_coordinator_append_linger_ms)
        self._wall_ms = wall_ms
        self._log = log
        self._background = Background(fail)
        self.turns = TurnQueue()
        """Whatever has to look at many groups or transactional ids does it in these."""
        self._image: TopicImage | None = None
        self._shards: dict[int, Shard] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}

    def publish(self, image: MetadataImage) -> None:
        """Take up the partitions that this broker leads now, after the ReplicaManager has."""
        topic = image.topics.by_name(self.topic)
        if topic is self._image:
            return
        before, self._image = self._image, topic
        led = {} if topic is None else self._led(topic)
        recreated = before is not None and topic is not None and before.topic_id != topic.topic_id
        for number, shard in list(self._shards.items()):
            if recreated or led.get(number) != shard.leader_epoch:
                self._close(number)
        for number, leader_epoch in led.items():
            if number not in self._shards:
                self._open(number, leader_epoch)
        epochs = {number: shard.leader_epoch for number, shard in self._shards.items()}
        invariant(epochs == led, "a shard serves the leader epoch that this broker has")
        invariant(self._loads.keys() == led.keys(), "a shard is loaded while it is led")

    async def stop(self) -> None:
        """Release every partition."""
        for number in list(self._shards):
            self._close(number)
        await self._background.stop()

    def ask(self, key: str, request: Any) -> asyncio.Future[Any]:
        """Return the answer of the core that holds a group or transactional id; see `Shard.ask`."""
        return self.shard_of(key).ask(request)

    def shard_of(self, key: str) -> Shard:
        """Return the shard that holds the id; KafkaError(NOT_COORDINATOR) if it is another
        broker's.
        """
        shard = None if self._image is None else self._shards.get(self.partition_of(key))
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return shard

    def has(self, key: str) -> bool:
        """Return whether this broker coordinates the id."""
        image = self._image
        return image is not None and partition_of(key, len(image.partitions)) in self._shards

    def partition_of(self, key: str) -> int:
        """Return the partition that holds the id; KafkaError while the topic does not exist."""
        if self._image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition_of(key, len(self._image.partitions))

    def ended(self, number: int, producer_id: int, *, commit: bool) -> None:
        """Pass on that a producer's transaction has ended in a partition of the topic."""
        shard = self._shards.get(number)
        if shard is not None:
            shard.ended(producer_id, commit=commit)

    def shards(self) -> Iterator[Shard]:
        """Return the shards led here, in order of their partitions."""
        for number in sorted(self._shards):
            yield self._shards[number]

    def notify_all(self, request: Any) -> None:
        """Hand a request to every loaded core; its answers are dropped."""
        for shard in self.shards():
            if shard.is_loaded:
                # What is refused is made good by the next occasion, or by expiry.
                shard.ask(request)

    def _led(self, topic: TopicImage) -> dict[int, int]:
        """Partitions that this broker leads, with their leader epochs."""
        return {
            number: partition.leader_epoch
            for number, partition in topic.items()
            if partition.leader == self._broker_id
        }

    def _open(self, number: int, leader_epoch: int) -> None:
        shard = self._shards[number] = Shard(
            TopicPartition(self.topic, number),
            leader_epoch,
            self._make_core,
            self._replicas,
            self._settings,
            self._linger,
            self._wall_ms,
            self.turns,
            self._log,
        )
        shard.on_command = self.on_command
        self._loads[number] = self._background.start(shard.run())

    def _close(self, number: int) -> None:
        self._loads.pop(number).cancel()
        self._shards.pop(number).close(KafkaError(ErrorCode.NOT_COORDINATOR))
