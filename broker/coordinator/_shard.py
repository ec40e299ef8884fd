"""`Shard`: runs the core of one partition of an internal topic while this broker leads it.

Loads the log, hands requests and the passing of time to the core, appends what it writes, and holds
answers back until what they rest on is committed. All on the event loop; a log is loaded a slice at
a time, so that other work goes on.

Loading reads as a consumer does, up to the high watermark: a coordinator never shows what may yet
be cut off. What is cold comes through the broker's cold reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from broker.coordinator._batches import batch_of
from broker.coordinator.core import NOBODY, Answer, Command, Now
from broker.log.batches import markers
from broker.log.batches.markers import MarkerKind
from broker.log.batches.record_batch import NO_PRODUCER, split_fetched
from broker.log.batches.records import keys_and_values
from broker.types import (
    ALL_IN_SYNC,
    CONSUMER,
    EARLIEST,
    LATEST,
    FetchParams,
    FetchPartition,
    OffsetLookup,
    OwnBatch,
)
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.runtime import Deadline, Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from broker.coordinator._cooperative import TurnQueue
    from broker.coordinator._linger import Linger
    from broker.coordinator.core import Core, Effect, Journal, KeyValue, LogRecord
    from broker.types import Appendable, AppendResult, FetchResult, OffsetResult, TopicPartition
    from raftctl.runtime.api import Piece

# --- loading -------------------------------------------------------------------------------------

STEP_RECORDS = 100
"""Records that are replayed in one step: others have their turn between some steps."""
_WAIT_MS = 500
_LOG_END = -2
"""Any replica id but a consumer's: LATEST is the end of the log then, not the high watermark."""


class LogReader(Protocol):
    """The part of the ReplicaManager that loading uses."""

    def fetch(
        self, params: FetchParams, partitions: list[FetchPartition]
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Read from each partition."""

    def list_offsets(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Look offsets up; results in order of the lookups."""


class LoadError(Exception):
    """The log cannot be read now."""


async def bounds(reader: LogReader, partition: TopicPartition, leader_epoch: int) -> range:
    """Return the start and the end of the log, committed or not. LoadError if not the leader."""
    start = await _offset(reader, OffsetLookup(partition, leader_epoch, EARLIEST))
    end = await _offset(reader, OffsetLookup(partition, leader_epoch, LATEST))
    invariant(0 <= start <= end, "a log begins before it ends")
    return range(start, end)


async def _offset(reader: LogReader, lookup: OffsetLookup) -> int:
    found = reader.list_offsets([lookup], _LOG_END)
    (result,) = found if isinstance(found, list) else await found
    _check_read(result.error)
    return result.offset


def is_committed(reader: LogReader, partition: TopicPartition, end: int) -> bool:
    """Return whether the high watermark has reached `end`."""
    found = reader.list_offsets([OffsetLookup(partition, -1, LATEST)], CONSUMER)
    return isinstance(found, list) and not found[0].error and found[0].offset >= end


async def replay_log(
    reader: LogReader,
    partition: TopicPartition,
    leader_epoch: int,
    slice_bytes: int,
    replay: Callable[[Sequence[LogRecord], int], None],
    ended: Callable[[int, bool], None],
    turns: TurnQueue,
) -> int:
    """Replay what the log holds now, once that is committed; returns how many records these are.

    Keys and values come some at a time, those of a transaction with its producer's id; `ended` is
    called for markers, with whether they commit. LoadError or KafkaError if the log cannot be read.
    """
    found = await bounds(reader, partition, leader_epoch)
    offset, count = found.start, 0
    slices = Slices()
    while offset < found.stop:
        data = await _slice(reader, partition, leader_epoch, offset, slice_bytes)
        for header, batch in split_fetched(data):
            if header.next_offset <= offset:
                continue
            offset = header.next_offset
            if header.is_control:
                if (marker := markers.parse(batch, header)) is not None:
                    ended(header.producer_id, marker.kind is MarkerKind.COMMIT)
                continue
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            records = keys_and_values(batch, header)
            count += len(records)
            for start in range(0, len(records), STEP_RECORDS):
                replay(records[start : start + STEP_RECORDS], producer_id)
                if slices.is_over():
                    await turns.next()
    return count


async def _slice(
    reader: LogReader, partition: TopicPartition, leader_epoch: int, offset: int, size: int
) -> bytes:
    """Whole batches from `offset` on; nothing if none is committed within a while."""
    params = FetchParams(CONSUMER, -1, _WAIT_MS, 1, size, read_committed=False)
    wanted = FetchPartition(partition, None, leader_epoch, offset, -1, 0, size)
    found = reader.fetch(params, [wanted])
    (result,) = found if isinstance(found, list) else await found
    _check_read(result.error)
    return b"".join(map(_bytes, result.records))


def _bytes(piece: Piece) -> bytes | bytearray | memoryview:
    if isinstance(piece, bytes | bytearray | memoryview):
        return piece
    return piece.read(0, len(piece))


def _check_read(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        raise LoadError(error.name)


# --- the shard -----------------------------------------------------------------------------------

RETRY_S = 0.1
"""The pause of a shard before it loads again, or looks again at what is committed."""
_GATHERED_MAX = 100
"""Requests that share a batch."""

_AS_CLIENTS_KNOW_THEM = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


class Replicas(LogReader, Protocol):
    """The part of the ReplicaManager that a shard uses."""

    def append(
        self, acks: int, timeout_ms: int, entries: Sequence[tuple[TopicPartition, Appendable]]
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Append to each partition; results in order of the entries."""


class Settings(Protocol):
    """The part of the configuration that a coordinator uses."""

    @property
    def offsets_commit_timeout_ms(self) -> int:
        """Time for which an append may stay uncommitted."""

    @property
    def offsets_load_buffer_size(self) -> int:
        """The bytes read at a time."""

    @property
    def group_coordinator_append_linger_ms(self) -> int:
        """See `Linger`."""


class Shard:
    """One leader epoch of one partition. `run` it; `close` it when the leadership goes."""

    def __init__(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        make_core: Callable[[Journal, int], Core],
        replicas: Replicas,
        settings: Settings,
        linger: Linger,
        wall_ms: Callable[[], int],
        turns: TurnQueue,
        log: FilteringBoundLogger,
    ) -> None:
        """`make_core` is given the journal and the leader epoch; `linger` and `turns` are those of
        all shards of the coordinator.
        """
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.core = make_core(self, leader_epoch)
        """Asked for its state only once `is_loaded`."""
        self.is_loaded = False
        self.on_command: Callable[[Shard, Any], None] = lambda _shard, _what: None
        """Does what the core asks for."""
        self._make_core = make_core
        self._replicas = replicas
        self._settings = settings
        self._linger = linger
        self._wall_ms = wall_ms
        self._turns = turns
        self._log = log.bind(partition=str(partition), leader_epoch=leader_epoch)
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._gathered: list[tuple[int, Any]] = []
        """Requests with their ids that are to share a batch."""
        self._next_request_id = 0
        self._written = 0
        """The number of batches appended, and of those that are committed."""
        self._committed = 0
        self._ended: list[tuple[int, bool]] = []
        """The transactions that ended while the log was loaded."""
        self._doubts: set[int] = set()
        """The batches that were not committed in time, until they turn out to be."""
        self._uncommitted: deque[tuple[int, Sequence[Effect]]] = deque()
        self._timer = Deadline(self._loop, self._due)
        self._is_due = False
        """True once the core's deadline has come, while it waits for its turn."""
        self._closed: KafkaError | None = None

    # --- the life of a shard --------------------------------------------------------------------

    async def run(self) -> None:
        """Load the log, again and again until it is loaded.

        Each attempt has a core of its own: one that was replayed in part knows of offsets, but not
        of their tombstones. Until it is loaded, clients get COORDINATOR_LOAD_IN_PROGRESS.
        """
        while self._closed is None:
            try:
                count = await self._load()
            except (LoadError, KafkaError) as error:
                self._log.warning("coordinator_not_loaded", reason=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            if self._closed is None:
                self._log.info("coordinator_loaded", records=count)
                self.is_loaded = True
                for producer_id, commit in self._ended:
                    self.core.ended(producer_id, commit=commit)
                self._take(self.core.loaded(self._now()))
            return

    async def _load(self) -> int:
        self.core = self._make_core(self, self.leader_epoch)
        return await replay_log(
            self._replicas,
            self.partition,
            self.leader_epoch,
            self._settings.offsets_load_buffer_size,
            self._replay,
            lambda producer_id, commit: self.core.ended(producer_id, commit=commit),
            self._turns,
        )

    def close(self, error: KafkaError) -> None:
        """End all requests with `error`: this broker leads the partition no more."""
        self._closed = error
        self._timer.set(None)
        self._linger.closed(self)
        self._uncommitted.clear()
        for request_id in list(self._pending):
            self._refuse(request_id, error)
        invariant(not self._pending, "a shard that is closed owes no response")

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """Note that a marker is committed in the partition."""
        if self.is_loaded:
            self.core.ended(producer_id, commit=commit)
            self._set_timer()
        else:
            # It may stand above the end up to which the log is loaded.
            self._ended.append((producer_id, commit))

    @property
    def is_closed(self) -> bool:
        """True if another leader epoch has begun."""
        return self._closed is not None

    # --- requests -------------------------------------------------------------------------------

    def ask(self, request: Any) -> asyncio.Future[Any]:
        """Return the core's response, or KafkaError: its own, COORDINATOR_LOAD_IN_PROGRESS,
        NOT_COORDINATOR, or COORDINATOR_NOT_AVAILABLE if what it wrote is not committed in time.
        """
        request_id, self._next_request_id = self._next_request_id, self._next_request_id + 1
        future = self._pending[request_id] = self._loop.create_future()
        if self._closed is not None:
            self._refuse(request_id, self._closed)
        elif not self.is_loaded:
            self._refuse(request_id, KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        elif self.core.may_gather(request):
            self._gathered.append((request_id, request))
            if len(self._gathered) == 1:
                self._linger.gathered(self, self._handle_gathered)
            elif len(self._gathered) == _GATHERED_MAX:
                self._handle_gathered()
            invariant(len(self._gathered) < _GATHERED_MAX, "a batch of requests is bounded")
        else:
            # What came before is done before.
            self._handle_gathered()
            try:
                self._take(self.core.handle(request_id, request, self._now()))
            except KafkaError as error:
                self._refuse(request_id, error)
        return future

    def _handle_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        # Requests that waited when the leadership went have ended.
        if gathered and self._closed is None:
            self._take(self.core.handle_all(gathered, self._now()))

    def look(self) -> Core:
        """Return the core, for what needs no record; KafkaError as of `ask`."""
        if self._closed is not None:
            raise self._closed
        if not self.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.core

    def _take(self, effects: Sequence[Effect]) -> None:
        """Release effects that rest on nothing uncommitted, and hold the others.

        A response may leave at once also while an earlier one waits. Answers that rest on records
        wait for all records so far, not only their own: what the core decided rests on those, too.
        """
        waiting: list[Effect] = []
        for effect in effects:
            at_once = isinstance(effect, Answer) and not effect.needs_commit
            if at_once or self._committed == self._written:
                self._release(effect)
            else:
                waiting.append(effect)
        if waiting:
            self._hold(self._written, waiting)
        self._set_timer()

    def _release(self, effect: Effect) -> None:
        """Respond to the client, or hand the command to the coordinator's owner."""
        if isinstance(effect, Command):
            self.on_command(self, effect.what)
            return
        if isinstance(effect.response, KafkaError):
            self._refuse(effect.request_id, effect.response)
            return
        future = self._pending.pop(effect.request_id, None)
        if future is not None and not future.done():
            future.set_result(effect.response)

    def _refuse(self, request_id: int, error: KafkaError) -> None:
        future = self._pending.pop(request_id, None)
        if future is not None and not future.done():
            future.set_exception(error)
            # The client may be gone.
            future.exception()

    def _set_timer(self) -> None:
        """Arm the timer for the core's next deadline, which any call may have changed."""
        awaits = not self._is_due and self._closed is None
        deadline_ms = self.core.deadline_ms() if awaits else None
        self._timer.set(None if deadline_ms is None else deadline_ms / 1000)

    def _due(self) -> None:
        self._is_due = True
        self._turns.submit(self._tick)

    def _tick(self) -> None:
        self._is_due = False
        if self._closed is None:
            self._handle_gathered()
            self._take(self.core.tick(self._now()))

    def _now(self) -> Now:
        # Rounded: a timer that has come must not find itself a fraction too early.
        return Now(round(self._loop.time() * 1000), self._wall_ms())

    # --- records --------------------------------------------------------------------------------

    def append(self, records: Sequence[KeyValue], producer: tuple[int, int] = NOBODY) -> None:
        """Append to each partition; results in order of the entries."""
        if self._closed is not None:
            raise self._closed
        invariant(self.is_loaded, "a core writes once it knows what the log says")
        invariant(bool(records), "a batch has records")
        timeout_ms = self._settings.offsets_commit_timeout_ms
        batch = OwnBatch(batch_of(records, self._wall_ms(), producer))
        done = self._replicas.append(ALL_IN_SYNC, timeout_ms, [(self.partition, batch)])
        if isinstance(done, list):
            _check(done[0])
        self._written += 1
        number = self._written
        self._linger.written(self)
        for record in records:
            self.core.replay(*record, producer[0])
        if isinstance(done, list):
            self._loop.call_soon(self._on_committed, number)
        else:
            done.add_done_callback(lambda future: self._appended(number, future))

    def _appended(self, number: int, future: asyncio.Future[list[AppendResult]]) -> None:
        """A batch is in all in-sync replicas, or was not in time."""
        if future.cancelled() or self._closed is not None:
            return
        result = future.result()[0]
        if result.error is ErrorCode.NONE:
            self._on_committed(number)
        else:
            self._log.warning("coordinator_write_not_committed", error=result.error.name)
            self._doubt(number, result.base_offset)

    def _on_committed(self, number: int) -> None:
        """Release what rests on batches up to `number`. One that is committed implies those before
        it: they stand before it in the log.
        """
        invariant(number <= self._written, "what is committed was written")
        self._committed = max(self._committed, number)
        while self._uncommitted and self._uncommitted[0][0] <= self._committed:
            for effect in self._uncommitted.popleft()[1]:
                self._release(effect)
        if self._committed == self._written:
            self._linger.committed(self)

    def _doubt(self, number: int, base_offset: int) -> None:
        """A batch that is in the log may yet be committed. Until then no response rests on it.
        A command waits; requests are to be sent again.
        """
        if self._closed is not None:
            return
        if is_committed(self._replicas, self.partition, base_offset + 1):
            self._doubts.discard(number)
            self._on_committed(number)
            return
        self._doubts.add(number)
        waiting, self._uncommitted = self._uncommitted, deque()
        for required, effects in waiting:
            self._hold(required, effects)
        self._loop.call_later(RETRY_S, self._doubt, number, base_offset)

    def _hold(self, required: int, effects: Sequence[Effect]) -> None:
        """Keep what must wait for a commit, unless that is in doubt and a client waits for it."""
        if self._doubts:
            for effect in effects:
                if isinstance(effect, Answer):
                    self._refuse(effect.request_id, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            effects = [one for one in effects if not isinstance(one, Answer)]
            if not effects:
                return
        invariant(required > self._committed, "what rests on committed records is released")
        in_order = not self._uncommitted or self._uncommitted[-1][0] <= required
        invariant(in_order, "effects leave in the order of what they rest on")
        self._uncommitted.append((required, effects))

    def _replay(self, records: Sequence[LogRecord], producer_id: int) -> None:
        for error in self.core.replay_all(records, producer_id):
            # As Apache Kafka: a newer version's record must not keep all others from their group.
            self._log.error("coordinator_record_skipped", reason=str(error))


def _check(result: AppendResult) -> None:
    if result.error is not ErrorCode.NONE:
        code = _AS_CLIENTS_KNOW_THEM.get(result.error, ErrorCode.UNKNOWN_SERVER_ERROR)
        raise KafkaError(code, result.message or result.error.text)
