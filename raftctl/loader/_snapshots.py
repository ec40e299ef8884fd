"""Snapshots as a node uses them: taken by size and time, handed to followers, fetched, deleted.

Reading and writing them happens on a worker of their own, so that neither the event loop nor the
fsyncs of the log wait for a large one (row Q6). The worker pauses after each piece that it has
written, since otherwise the event loop would get the interpreter only every few milliseconds.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from raftctl.codec import NotKnownError
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.loader._state_hashes import StateDivergedError
from raftctl.metadata.codec import pack_records, pack_topics, replay_payload
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.raft import events
from raftctl.raft.messages import Epoch, FetchSnapshotResponse, Offset, OffsetAndEpoch
from raftctl.storage import BOOTSTRAP
from raftctl.storage.snapshots import CorruptSnapshotError, RetentionPolicy, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence

    from structlog.typing import FilteringBoundLogger

    from raftctl.config import NodeConfig
    from raftctl.loader._loader import MetadataLoader
    from raftctl.loader._state_hashes import StateHashes
    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.api import Runtime, Worker
    from raftctl.storage.snapshots import Snapshot, SnapshotFile, SnapshotStore, WrittenSnapshot

T = TypeVar("T")

FOLLOWER_PATIENCE = 1.5
"""Followers wait this factor longer: normally the leader's mark triggers their snapshot."""


def image_of(snapshot: Snapshot) -> MetadataImage:
    """Return the image that was written as this snapshot.

    Raises KafkaError: UNSUPPORTED_VERSION if another release wrote it, with records that this one
    does not know.
    """
    if snapshot.snapshot_id == BOOTSTRAP:
        return EMPTY_IMAGE  # the time of the formatting is on some disks only
    delta = MetadataDelta(EMPTY_IMAGE)
    last_offset = snapshot.snapshot_id.offset - 1
    try:
        for batch in snapshot.batches:
            replay_payload(delta, batch.payload, batch.count, last_offset)
    except NotKnownError as error:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the metadata snapshot of offset {last_offset} has records that this release does "
            f"not know ({error}): upgrade this node",
        ) from error
    return delta.apply(last_offset, snapshot.snapshot_id.epoch, snapshot.timestamp_ms)


def pack_image(image: MetadataImage) -> Iterator[tuple[int, bytes]]:
    """(number of records, those): the records of an image in their order, in pieces."""
    yield from grouped(pack_records([one])[0] for one in image.records_before_topics())
    yield from pack_topics(image.topics)
    yield from grouped(pack_records([one])[0] for one in image.records_after_topics())


def id_of(image: MetadataImage) -> OffsetAndEpoch:
    """Return the id of the snapshot of this image."""
    return OffsetAndEpoch(Offset(image.offset + 1), Epoch(image.epoch))


class Snapshots:
    """The snapshot files of one node, worked on in the order of the calls."""

    def __init__(self, store: SnapshotStore, worker: Worker, log: FilteringBoundLogger) -> None:
        self._store = store
        self._worker = worker
        self._log = log.bind(logger="raftctl.snapshots")
        self._fetched: tuple[OffsetAndEpoch, MetadataImage] | None = None
        self.fetched_hash: str | None = None
        """The state hash that the snapshot saved last bears; None if it bears none."""
        self._damage: list[tuple[OffsetAndEpoch, CorruptSnapshotError]] = []
        """Found by the worker and not reported yet."""
        self.on_damaged: Callable[[OffsetAndEpoch], object] = _ignore_damage
        """The function to call with the id of a snapshot that the disk has corrupted."""

    async def idle(self) -> None:
        """Return when everything asked for so far is done."""
        await self._worker.submit(_nothing)

    # --- for the driver ---------------------------------------------------------------------------

    def save_chunk(self, chunk: events.SaveSnapshotChunk) -> asyncio.Future[events.Event]:
        """Write a fetched piece; resolve with the event for the core."""
        saved = self._worker.submit(lambda: self._save_chunk(chunk))
        saved.add_done_callback(self._report_refusal)
        return saved

    def _report_refusal(self, saved: asyncio.Future[events.Event]) -> None:
        event = None if saved.cancelled() or saved.exception() else saved.result()
        if isinstance(event, events.SnapshotRefused):
            self._log.warning("fetched_snapshot_refused", why=event.why)

    def _save_chunk(self, chunk: events.SaveSnapshotChunk) -> events.Event:
        try:
            self._store.write_chunk(chunk.snapshot_id, chunk.position, chunk.data)
            if not chunk.last:
                return events.SnapshotChunkSaved()
            snapshot = self._store.finish_fetched(chunk.snapshot_id)
        except CorruptSnapshotError as error:
            return events.SnapshotRefused(f"{error.path}: byte {error.position}: {error.why}")
        self._fetched = (chunk.snapshot_id, image_of(snapshot))
        self.fetched_hash = snapshot.state_hash
        return events.SnapshotSaved(snapshot.voters)

    def take_fetched(self, snapshot_id: OffsetAndEpoch) -> MetadataImage:
        """Return the image of the snapshot that was saved last."""
        fetched, self._fetched = self._fetched, None
        if fetched is None or fetched[0] != snapshot_id:
            invariant(False, "the snapshot has been read before its effect is performed")
            return EMPTY_IMAGE
        return fetched[1]

    def fill(self, reply: events.ReplyFetchSnapshot) -> asyncio.Future[FetchSnapshotResponse]:
        """Read the piece that a replica asked for into its answer.

        Of a snapshot that is damaged there is none, as if it were not there.
        """
        filled = self._worker.submit(lambda: self._fill(reply))
        filled.add_done_callback(self._report_damage)
        return filled

    def _report_damage(self, _: object) -> None:
        found, self._damage = self._damage, []
        for snapshot_id, error in found:
            damage = {"path": error.path, "position": error.position, "why": error.why}
            self._log.error("snapshot_damaged", **damage)
            self.on_damaged(snapshot_id)

    def _fill(self, reply: events.ReplyFetchSnapshot) -> FetchSnapshotResponse:
        response = reply.response
        try:
            chunk = self._store.read_chunk(reply.snapshot_id, response.position, reply.max_bytes)
        except CorruptSnapshotError as error:
            self._damage.append((reply.snapshot_id, error))
            chunk = None
        if chunk is None:
            return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        size, data = chunk
        if not 0 <= response.position < size:
            return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        return replace(response, size=size, data=data)

    # --- for the snapshotter ----------------------------------------------------------------------

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        """Return the path of the snapshot's file."""
        return self._store.path(snapshot_id)

    def write(
        self, image: MetadataImage, timestamp_ms: int, voters: VoterSet | None = None
    ) -> asyncio.Future[WrittenSnapshot]:
        """Write the image as a snapshot, durably, with the voters at its end."""
        return self._worker.submit(lambda: self._write(image, timestamp_ms, voters))

    def _write(
        self, image: MetadataImage, timestamp_ms: int, voters: VoterSet | None
    ) -> WrittenSnapshot:
        pieces = self._with_pauses(pack_image(image))
        return self._store.write(id_of(image), timestamp_ms, pieces, voters)

    def _with_pauses(self, pieces: Iterable[T]) -> Iterator[T]:
        for piece in pieces:
            yield piece
            self._worker.pause()

    async def files(self) -> list[SnapshotFile]:
        """Return the whole snapshots, oldest first; those with a damaged header are reported."""
        found = await self._worker.submit(self._files)
        self._report_damage(found)
        return found

    def _files(self) -> list[SnapshotFile]:
        found = []
        for snapshot_id in self._store.ids():
            try:
                found.append(self._store.stat(snapshot_id))
            except CorruptSnapshotError as error:
                self._damage.append((snapshot_id, error))
        return found

    def ids(self) -> asyncio.Future[list[OffsetAndEpoch]]:
        """Return the whole snapshots, the oldest first, also those that are damaged."""
        return self._worker.submit(self._store.ids)

    def remove(self, ids: Sequence[OffsetAndEpoch]) -> asyncio.Future[None]:
        """Delete snapshots."""
        return self._worker.submit(lambda: self._store.remove(ids))


class SnapshottedLog(Protocol):
    """The replica whose log gets shorter by snapshots (`raftctl.quorum.RaftDriver`)."""

    @property
    def is_leader(self) -> bool:
        """True if this node leads: only the leader marks offsets for all replicas."""

    def bytes_from(self, offset: Offset) -> int:
        """Return about how many bytes of the log stand at and above the offset."""

    def is_batch_boundary(self, offset: Offset) -> bool:
        """Return True unless a batch of the log contains the offset beyond its first record."""

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """Return the voters that the records below this offset make."""

    def snapshot_taken(self, snapshot_id: OffsetAndEpoch) -> None:
        """Offer a durable snapshot of committed records to the followers."""

    def expire_prefix(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log start at the end of this snapshot."""

    def halt(self) -> None:
        """Handle nothing from now on: the node's state cannot be trusted."""


class Snapshotter:
    """Takes snapshots of the committed image and lets retention delete what they make needless.

    Added to the driver after the loader, so that the image is as new as it can be.
    """

    def __init__(
        self,
        log: SnapshottedLog,
        loader: MetadataLoader,
        snapshots: Snapshots,
        hashes: StateHashes,
        runtime: Runtime,
        config: NodeConfig,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._replica = log
        self._loader = loader
        self._snapshots = snapshots
        self._hashes = hashes
        self._marked: MetadataImage | None = None
        """The image to take a snapshot of when the one under way is done."""
        self._runtime = runtime
        self._max_bytes = config.metadata_log_max_record_bytes_between_snapshots
        self._interval_ms = config.metadata_log_max_snapshot_interval_ms
        self._retention = RetentionPolicy(
            config.metadata_max_retention_bytes, config.metadata_max_retention_ms
        )
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._log = runtime.log.bind(logger="raftctl.snapshots")
        self._end_offset = Offset(loader.image.offset + 1)
        """The end offset of the newest snapshot."""
        self._taken_ms = self._now_ms()
        self._task: asyncio.Task[None] | None = None
        self._damaged: dict[OffsetAndEpoch, None] = {}
        """The corrupt snapshots to delete once there is another."""
        snapshots.on_damaged = self.replace

    async def stop(self) -> None:
        """Give up what is under way; a snapshot half written is removed at the next start."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- RaftListener -----------------------------------------------------------------------------

    def on_committed(self, high_watermark: Offset) -> None:
        """Take a snapshot if it is time, or have all replicas take one."""
        if self._task is None and self._due() and not self._hashes.mark():
            self._begin(self._loader.image)

    def take_marked(self, image: MetadataImage) -> None:
        """Take a snapshot of the image at a mark of the leader's."""
        if self._task is None:
            self._begin(image)
            return
        self._forget_marked()
        self._marked = image

    def replace(self, damaged: OffsetAndEpoch) -> None:
        """Take a snapshot in the place of one that nobody can load."""
        self._damaged[damaged] = None
        if self._task is None:
            self._begin(self._loader.image)

    def _forget_marked(self) -> None:
        if self._marked is not None:
            self._hashes.skipped(self._marked.offset)
        self._marked = None

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Do nothing: snapshots do not depend on the leader."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Take the leader's snapshot as this node's newest."""
        self._forget_marked()
        self._note(image)
        if self._snapshots.fetched_hash is not None:
            path = self._snapshots.path(id_of(image))
            self._hashes.taken(image.offset, self._snapshots.fetched_hash, path)

    # --- internals --------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _due(self) -> bool:
        if self._loader.image.offset + 1 <= self._end_offset:
            return False
        patience = 1 if self._replica.is_leader else FOLLOWER_PATIENCE
        large = self._replica.bytes_from(self._end_offset) >= self._max_bytes * patience
        late = self._now_ms() - self._taken_ms >= self._interval_ms * patience
        return large or (late and self._interval_ms > 0)

    def _note(self, image: MetadataImage) -> None:
        self._end_offset = Offset(image.offset + 1)
        self._taken_ms = self._now_ms()

    async def _take(self, image: MetadataImage, voters: VoterSet) -> None:
        # The quorum's own records have no time.
        known = image.timestamp_ms >= 0
        taken, state_hash = await self._snapshots.write(
            image, image.timestamp_ms if known else self._runtime.wall_ms(), voters
        )
        self._hashes.taken(image.offset, state_hash, self._snapshots.path(taken.snapshot_id))
        self._damaged.pop(taken.snapshot_id, None)  # what had its name is overwritten
        if taken.snapshot_id.offset <= self._end_offset:
            return  # One of the leader's came meanwhile, and the log begins with its end.
        self._note(image)
        self._replica.snapshot_taken(taken.snapshot_id)
        self._log.info("snapshot_taken", end_offset=taken.snapshot_id.offset, bytes=taken.size)
        if self._damaged:
            await self._remove_damaged()
        await self._expire()

    async def _remove_damaged(self) -> None:
        ids = await self._snapshots.ids()
        damaged = [one for one in ids[:-1] if one in self._damaged]
        whole = next(one for one in ids if one not in damaged)
        if whole != ids[0]:
            self._replica.expire_prefix(whole)  # for the log may go on from the first
        await self._snapshots.remove(damaged)
        self._damaged.clear()

    async def _expire(self) -> None:
        files = await self._snapshots.files()
        if self._damaged:  # what nobody had asked for since it was damaged
            await self._remove_damaged()
            files = await self._snapshots.files()
        expired = self._retention.expired(files, self._replica.bytes_from, self._runtime.wall_ms())
        if expired:
            self._replica.expire_prefix(files[len(expired)].snapshot_id)
            await self._snapshots.remove([one.snapshot_id for one in expired])
            self._log.info("snapshots_deleted", count=len(expired))

    def _begin(self, image: MetadataImage) -> None:
        """Take a snapshot of the image, with the voters as they are at its end now."""
        invariant(self._ends_a_batch(image), "a snapshot ends where a batch ends")
        self._start(self._take(image, self._replica.voters_at(id_of(image).offset)))

    def _ends_a_batch(self, image: MetadataImage) -> bool:
        """Whether a replica that loads the snapshot can go on with the log; else none could."""
        return self._replica.is_batch_boundary(id_of(image).offset)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StateDivergedError):
            self._replica.halt()
        if error is not None:
            self._fail(error)
        elif self._marked is not None and not task.cancelled():
            image, self._marked = self._marked, None
            self._begin(image)


def _ignore_damage(_: OffsetAndEpoch) -> None:
    """What is done about a damaged snapshot as long as there is no snapshotter."""


def _nothing() -> None:
    """What the worker does when all else is done."""
