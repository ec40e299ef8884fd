"""Turns committed batches into images and publishes them, in offset order (rows Q5, C1).

Every node has one. On the active controller the images come from the controller itself, which has
replayed its records when it appended them; everywhere else they are replayed here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raftctl.codec import NotKnownError
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.failures import HandingTo
from raftctl.metadata.codec import pack_payload, replay_payload
from raftctl.metadata.features import unsupported
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, lead
from raftctl.metadata.records import BeginTransactionRecord
from raftctl.raft.messages import Offset
from raftctl.runtime import Slices, look_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.metadata.records import FeatureRange
    from raftctl.raft.batch import Batch

TURN_BYTES_MAX = 128 * 1024
"""Replayed in one turn of the event loop, or one batch: some 3,000 partitions, 20 ms."""
CHANGES_MAX = 1_000
"""Partitions that may change until garbage is looked for: it takes some milliseconds. Their new
images take the places of the old ones, which Python does not count as new.
"""
_BEGINNING = pack_payload([BeginTransactionRecord()])
"""Of a batch with which a transaction begins."""


def _raise(error: BaseException) -> None:
    raise error


class CommittedLog(Protocol):
    """The committed part of the metadata log, for reading (`raftctl.quorum.RaftDriver`)."""

    @property
    def high_watermark(self) -> Offset:
        """Every record below is committed, as far as this replica knows."""

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Return committed batches from the one that contains `offset`."""


class MetadataPublisher(Protocol):
    """A part that follows the metadata."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take a newer committed image; see `raftctl.plugins.Broker.publish`."""


class _Coming(NamedTuple):
    """A snapshot's image that is not published yet: what leads to it is being found."""

    image: MetadataImage
    delta: MetadataDelta
    pieces: Iterator[None]


class MetadataLoader:
    """Keeps the newest committed image."""

    def __init__(
        self,
        log: CommittedLog,
        image: MetadataImage = EMPTY_IMAGE,
        fail: Callable[[BaseException], None] = _raise,
        features: tuple[FeatureRange, ...] = (),
    ) -> None:
        """`image` is what the newest snapshot on disk holds; `fail` ends the node.

        `features` is what this node can work with; empty: nothing is checked. Raises KafkaError:
        UNSUPPORTED_VERSION if that is not what the image says.
        """
        self._features = features
        self._check_levels(image)
        self._log = log
        self._fail = fail
        self._publishers: list[MetadataPublisher] = []
        self._caught_up = asyncio.Event()
        self._heard_commits = False
        self._whole: MetadataDelta | None = None
        """The delta from nothing to the image, for publishers that are added one by one."""
        self.image: MetadataImage = image
        self._transaction: MetadataDelta | None = None
        """The part read so far of a transaction that has not ended, on top of the image."""
        self._next_offset = image.offset + 1
        self._committed = 0
        """The newest high watermark reported to this loader."""
        self._coming: _Coming | None = None
        """Comes before what the log says after it."""
        self._next_turn: asyncio.Handle | None = None
        self._changes = 0
        """The number of changed partitions since the last garbage collection."""
        self._when_replayed: list[Callable[[], None]] = []

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """Add a publisher, and publish to it everything known so far as one delta."""
        self._publishers.append(publisher)
        self._publish_whole(publisher)

    def replace_publisher(self, publisher: MetadataPublisher, successor: MetadataPublisher) -> None:
        """Add `successor` in the place of a publisher, which gets no more images."""
        self._publishers[self._publishers.index(publisher)] = successor
        self._publish_whole(successor)

    def remove_publisher(self, publisher: MetadataPublisher) -> None:
        """Publish nothing more to it; without effect if it was not added."""
        self._publishers = [one for one in self._publishers if one is not publisher]

    def _publish_whole(self, publisher: MetadataPublisher) -> None:
        if self.image.offset >= 0:
            if self._whole is None:
                self._whole = MetadataDelta.between_empty_and(self.image)
            publisher.publish(self._whole, self.image)

    async def wait_caught_up(self) -> None:
        """Return once the image holds everything that is known to be committed."""
        await self._caught_up.wait()

    @property
    def caught_up(self) -> bool:
        """True if the image holds everything that this replica knows to be committed."""
        heard = self._heard_commits and self._coming is None
        return heard and self._next_offset >= self._log.high_watermark

    @property
    def next_offset(self) -> int:
        """Everything below has been read. The image ends there, or before a transaction."""
        return self._next_offset

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is committed in part, so that the image does not show it."""
        return self._transaction is not None

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Leadership changes no metadata."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Replace what was replayed by a snapshot from the leader, and publish the change.

        Where there is much to compare, a part is compared in each turn of the event loop.
        """
        delta = MetadataDelta(self.image)
        self._coming = _Coming(image, delta, lead(delta, image))
        if self._next_turn is None:
            self._replay_some()

    def on_committed(self, high_watermark: int) -> None:
        """Read and replay up to the high watermark; an image for each chunk read, or more.

        A replica that joins, or was away, has much to read: a part in each turn of the event loop.
        """
        self._heard_commits = True
        self._committed = high_watermark
        if self._next_turn is None:
            self._replay_some()

    def when_replayed(self, call: Callable[[], None]) -> None:
        """Call once, when everything is replayed that is known to be committed: now, or later."""
        self._when_replayed.append(call)
        self._notify_replayed()

    def _notify_replayed(self) -> None:
        if not self._is_behind and self.caught_up:
            self._caught_up.set()
            waiting, self._when_replayed = self._when_replayed, []
            for call in waiting:
                call()

    def stop(self) -> None:
        """Leave the rest to the next start: the log is about to be closed."""
        self._committed = 0
        self._coming = None
        self._when_replayed = []

    @property
    def _is_behind(self) -> bool:
        return self._coming is not None or self._next_offset < self._committed

    def _replay_some(self) -> None:
        """Compare a part of a snapshot, or replay `TURN_BYTES_MAX`, one batch at least."""
        self._next_turn = None
        room = TURN_BYTES_MAX
        if self._coming is not None:
            self._compare_some(self._coming)
            room = 0
        while self._next_offset < self._committed and room > 0:
            batches = self._log.read(Offset(self._next_offset), room)
            invariant(bool(batches), "the log holds every committed record")
            try:
                self._replay(batches)
            except NotKnownError as error:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the metadata log has records that this release does not know, not far after "
                    f"offset {self._next_offset - 1} ({error}): upgrade this node",
                ) from error
            room -= sum([len(batch.payload) for batch in batches])
        if self._is_behind:
            self._next_turn = asyncio.get_running_loop().call_soon(self._replay_more)
        self._notify_replayed()

    def _compare_some(self, coming: _Coming) -> None:
        slices = Slices()
        for _ in coming.pieces:
            if slices.is_over():
                return
        self._coming = None
        self.publish(coming.delta, coming.image)

    def _replay_more(self) -> None:
        with HandingTo(self._fail):
            self._replay_some()

    def _check_levels(self, image: MetadataImage) -> None:
        lacks = unsupported("this node", self._features, image.features) if self._features else None
        if lacks is not None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{lacks}: upgrade it")

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make `image` the newest and publish it."""
        invariant(image.offset > self.image.offset, "images are published in offset order")
        if delta.changed_features:
            self._check_levels(image)
        self._heard_commits = True
        self._whole = None
        self.image = image
        self._transaction = None
        self._next_offset = image.offset + 1
        for publisher in self._publishers:
            publisher.publish(delta, image)
        self._look_for_garbage(delta)
        if self.caught_up:
            self._caught_up.set()

    def _look_for_garbage(self, delta: MetadataDelta) -> None:
        # What is whole comes from an image that there is already, and is not copied for this.
        topics = delta.changed_topics.values()
        self._changes += sum([len(one.partitions) for one in topics if one.whole is None])
        if self._changes >= CHANGES_MAX:
            self._changes = 0
            look_now()

    def _replay(self, batches: list[Batch]) -> None:
        whole = batches[0].base_offset == self._next_offset
        invariant(whole, "images end where batches end, so no record is replayed twice")
        delta = self._transaction or MetadataDelta(self.image)
        # Control batches bear no time: an image has that of the newest batch that does, so that it
        # depends on its offset alone and not on where reading stopped.
        timestamp_ms = self.image.timestamp_ms
        epoch = self.image.epoch
        for batch in batches:
            if batch.payload.startswith(_BEGINNING) and batch.base_offset > self.image.offset + 1:
                # So that nothing else is forgotten should the transaction be aborted.
                self.publish(delta, delta.apply(batch.base_offset - 1, epoch, timestamp_ms))
                delta = MetadataDelta(self.image)
            epoch = batch.epoch
            if not batch.control:
                timestamp_ms = batch.timestamp_ms
                replay_payload(delta, batch.payload, batch.count, batch.base_offset)
            # An image ends at each mark, so that all replicas have the same one of it.
            if not delta.in_transaction and (delta.snapshot_marked or batch is batches[-1]):
                self.publish(delta, delta.apply(batch.end_offset - 1, epoch, timestamp_ms))
                delta = MetadataDelta(self.image)
        if delta.in_transaction:
            self._transaction, self._next_offset = delta, batches[-1].end_offset
