"""The driver of the quorum core: queues events, steps the core, performs effects, arms its timer.

It owns the core, the metadata log and the quorum-state file; no other part touches them. It decides
nothing, which is for `raftctl.raft`: a branch here is about how to perform, never about what to do.
An effect that only *starts* something reports its completion as an event. Any failure of disk, core
or listener is fatal to the node, since what follows could not be trusted (rows Q1, Q3, Q12): from
then on nothing is handled, so nothing is acknowledged either.
Source: Kafka's `KafkaRaftClientDriver`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import HandingTo, resolve
from raftctl.quorum._accumulator import Append, BatchAccumulator
from raftctl.raft import claimed_sender, events
from raftctl.raft.batch import BATCH_BYTES_MAX, HEADER_BYTES, without_payload
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    ChangeVotersRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Offset,
    with_batches,
)
from raftctl.rpc import RpcError, RpcUnreachable
from raftctl.runtime import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.loader import Snapshots
    from raftctl.metadata.image import MetadataImage
    from raftctl.quorum._peers import Peers
    from raftctl.raft import QuorumStatus, RaftCore
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import NodeId, OffsetAndEpoch, Request, Response
    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.api import Runtime, Worker
    from raftctl.storage import QuorumStateStore
    from raftctl.storage.log import RecordLog

T = TypeVar("T")

CHANGES = get_args(ChangeVotersRequest)
RECORDED_EVENTS_MAX = 200
UNWRITTEN_BYTES_MAX = 32 * 1024 * 1024
"""The bytes that may wait in memory for the disk, two batches; more is refused until it has caught
up."""
APPEND_BYTES_MAX = BATCH_BYTES_MAX - HEADER_BYTES
"""The largest payload of one `append`, which is never split."""
WARN_PAUSE_MS = 1000
AHEAD_OF_COMMITS = frozenset(
    {
        events.AppendToLog,
        events.ReplyFetch,
        events.Reply,
        events.SendRequest,
        events.HighWatermarkAdvanced,
    }
)
"""Effects that other voters wait for: they are performed before listeners apply what is committed.

Every other effect may roll back or read the state, so listeners apply what is committed before it.
"""


class RaftListener(Protocol):
    """A part that applies what the quorum commits. Called in offset order, on the event loop."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Apply: every record below `high_watermark` is committed."""

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """See `raftctl.raft.events.LeaderChanged`."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Replace the state by the image, which is committed and newer.

        Happens only while this node does not lead.
        """


class Effects:
    """The outside of one replica, as far as the core acts on it."""

    def __init__(
        self,
        *,
        core: RaftCore,
        log: RecordLog,
        states: QuorumStateStore,
        snapshots: Snapshots,
        worker: Worker,
        peers: Peers,
        accumulator: BatchAccumulator,
        runtime: Runtime,
        request_timeout_ms: int,
        handle: Callable[[events.Event], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`handle` takes events for the core; `fail` ends the node."""
        self._core = core
        self._log = log
        self._states = states
        self._snapshots = snapshots
        self._worker = worker
        self._peers = peers
        self._accumulator = accumulator
        self._request_timeout_ms = request_timeout_ms
        self._handle = handle
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._events_log = runtime.log.bind(logger="raftctl.quorum")
        self.listeners: list[RaftListener] = []
        self.stopped = False
        """True once nothing is performed any more."""
        self._last_request_id = 0
        self._reads: dict[int, asyncio.Future[Offset]] = {}
        self._replies: dict[int, Callable[[Response], None]] = {}
        self._calls: dict[asyncio.Task[None], None] = {}
        self._flushing = False
        self._committed: Offset | None = None
        """A new high watermark that the listeners have not applied."""
        self._warn_at_ms = 0
        self._unwarned = 0
        """Warnings that came too soon after the last."""
        self._performers: Mapping[type, Callable[[Any], None]] = {
            events.PersistQuorumState: self._persist,
            events.AppendToLog: self._append,
            events.TruncateLog: self._truncate,
            events.DeleteLogPrefix: self._delete_prefix,
            events.ResetLog: self._reset_log,
            events.SaveSnapshotChunk: self._save_chunk,
            events.SendRequest: self._send,
            events.Reply: self._reply,
            events.ReplyFetch: self._reply_fetch,
            events.ReplyFetchSnapshot: self._reply_snapshot,
            events.HighWatermarkAdvanced: self._advance,
            events.LeaderChanged: self._leader_changed,
            events.ReadConfirmed: partial(self._end_read_of, confirmed=True),
            events.ReadRefused: partial(self._end_read_of, confirmed=False),
            events.Warned: self._warned,
        }

    def perform(self, effect: events.Effect) -> None:
        """Perform one effect, or start to."""
        if type(effect) not in AHEAD_OF_COMMITS:
            self.notify_committed()
        self._performers[type(effect)](effect)

    async def wait_for_calls(self) -> None:
        """Wait until the requests under way have ended, at most the request timeout."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=self._request_timeout_ms / 1000)

    async def stop(self) -> None:
        """End calls and reads, and wait for writes that are under way."""
        self.stopped = True
        for request_id in list(self._reads):
            self.end_read(request_id, confirmed=False)
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._snapshots.idle()
        await self._worker.submit(self._log.close)

    def give_up(self, error: BaseException) -> None:
        """End the node: disk, core or a listener has failed."""
        self.stopped = True
        self._fail(error)

    # --- log and disk -----------------------------------------------------------------------------

    def _append(self, effect: events.AppendToLog) -> None:
        self._log.append(effect.batch)
        if effect.batch.control:
            self._peers.voters_are(self._core.voters)

    def _truncate(self, effect: events.TruncateLog) -> None:
        self._log.truncate(effect.end_offset)
        self._peers.voters_are(self._core.voters)

    def _delete_prefix(self, effect: events.DeleteLogPrefix) -> None:
        self._log.delete_prefix(effect.snapshot_id)

    def _reset_log(self, effect: events.ResetLog) -> None:
        self._log.reset(effect.snapshot_id)
        self._peers.voters_are(self._core.voters)
        image = self._snapshots.take_fetched(effect.snapshot_id)
        for listener in self.listeners:
            listener.on_snapshot(image)

    def start_flush(self) -> None:
        """Write and sync what was appended; appends meanwhile share the next flush.

        Called after all effects of all events: a leader's followers sync the same records
        meanwhile, so the leader's own fsync must not delay the answers to their fetches.
        """
        if self._flushing or self.stopped or not self._log.dirty:
            return
        self._flushing = True
        self._when_done(self._log.flush(self._worker), self._flushed)

    def _flushed(self, _: None) -> None:
        self._flushing = False
        # What the flush itself reports may have been truncated before this callback's turn came.
        self._handle(events.LogFlushed(self._log.flushed_end_offset))

    def _persist(self, effect: events.PersistQuorumState) -> None:
        saved = self._worker.submit(lambda: self._states.save(effect.state))
        self._when_done(saved, lambda _: self._handle(events.QuorumStatePersisted()))

    def _save_chunk(self, effect: events.SaveSnapshotChunk) -> None:
        self._when_done(self._snapshots.save_chunk(effect), self._handle)

    def _when_done(self, future: asyncio.Future[T], then: Callable[[T], None]) -> None:
        """Feed a write's result back, at once if it is there; one that failed ends this node."""

        def done(future: asyncio.Future[T]) -> None:
            with HandingTo(self.give_up):
                result = future.result()
                if not self.stopped:
                    then(result)

        if future.done():
            done(future)
        else:
            future.add_done_callback(done)

    # --- listeners --------------------------------------------------------------------------------

    def _advance(self, effect: events.HighWatermarkAdvanced) -> None:
        self._committed = effect.high_watermark

    @property
    def has_commits(self) -> bool:
        """True if the listeners have something to apply."""
        return self._committed is not None

    def notify_committed(self) -> None:
        """Have the listeners apply what is committed.

        Runs last: sending records and acknowledging flushes unblocks other voters, and applying
        committed records does not.
        """
        high_watermark, self._committed = self._committed, None
        if high_watermark is not None:
            for listener in self.listeners:
                listener.on_committed(high_watermark)

    def _leader_changed(self, effect: events.LeaderChanged) -> None:
        # Also when this node leads again: what was appended in an earlier epoch is rolled back.
        self._accumulator.clear()
        self._events_log.debug(
            "quorum_leader_changed", epoch=effect.epoch, leader_id=effect.leader_id
        )
        for listener in self.listeners:
            listener.on_leader_changed(effect.epoch, effect.leader_id)

    def _warned(self, effect: events.Warned) -> None:
        self.warn(effect.why)

    def warn(self, why: str) -> None:
        """Log a warning, at most one a second: peers decide how often there is one."""
        now_ms = int(self._loop.time() * 1000)
        if now_ms >= self._warn_at_ms:
            self._events_log.warning("quorum_message_refused", why=why, not_logged=self._unwarned)
            self._warn_at_ms, self._unwarned = now_ms + WARN_PAUSE_MS, 0
        else:
            self._unwarned += 1

    # --- requests of others -----------------------------------------------------------------------

    def expect_reply(self, reply: Callable[[Response], None]) -> int:
        """Return the id of a new request; `reply` is called with its response."""
        self._last_request_id += 1
        self._replies[self._last_request_id] = reply
        return self._last_request_id

    def _reply(self, effect: events.Reply) -> None:
        self._answer(effect.request_id, self._peers.with_leader_address(effect.response))

    def _answer(self, request_id: int, response: Response) -> None:
        self._replies.pop(request_id)(response)

    def _reply_fetch(self, effect: events.ReplyFetch) -> None:
        batches = self._log.read(effect.response.fetch_offset, effect.max_bytes)
        # A replica that asked by a bootstrap address may learn only here that this is the leader.
        response = self._peers.with_leader_address(effect.response)
        assert isinstance(response, FetchResponse)
        self._answer(effect.request_id, with_batches(response, batches) if batches else response)

    def _reply_snapshot(self, effect: events.ReplyFetchSnapshot) -> None:
        self._when_done(self._snapshots.fill(effect), partial(self._answer, effect.request_id))

    # --- reads ------------------------------------------------------------------------------------

    def expect_read(self) -> tuple[int, asyncio.Future[Offset]]:
        """Return the id of a new read and its outcome: the high watermark, or NOT_CONTROLLER."""
        self._last_request_id += 1
        request_id = self._last_request_id
        future: asyncio.Future[Offset] = self._loop.create_future()
        self._reads[request_id] = future
        future.add_done_callback(lambda _: self._reads.pop(request_id, None))
        return request_id, future

    def _end_read_of(
        self, effect: events.ReadConfirmed | events.ReadRefused, *, confirmed: bool
    ) -> None:
        self.end_read(effect.request_id, confirmed=confirmed)

    def end_read(self, request_id: int, *, confirmed: bool) -> None:
        """Resolve the read, unless its caller has given up."""
        future = self._reads.get(request_id)
        if future is None or future.done():
            return
        if confirmed:
            future.set_result(self._core.high_watermark)
        else:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))

    # --- requests to others -----------------------------------------------------------------------

    def _send(self, effect: events.SendRequest) -> None:
        destination, request = effect.destination, effect.request
        # Fetches are many; and unlike the last words of a leader, nobody waits for them to end.
        if isinstance(request, FetchRequest):
            answered = partial(self._answered, destination, request)
            peer = self._peers.get(destination)
            if peer is not None and peer.ask(request, self._request_timeout_ms, answered):
                return
        call = self._loop.create_task(self._call(destination, request))
        self._calls[call] = None
        call.add_done_callback(self._calls.pop)

    async def _call(self, destination: NodeId, request: Request) -> None:
        with HandingTo(self.give_up, but=(asyncio.CancelledError,)):
            self._answered(destination, request, await self._response(destination, request))

    async def _response(self, destination: NodeId, request: Request) -> Response | RpcError:
        peer = self._peers.get(destination)
        if peer is None:
            return RpcUnreachable(f"the address of node {destination} is not known")
        try:
            addressed = self._peers.with_own_address(request)
            response: Response = await peer.call(addressed, self._request_timeout_ms)
        except RpcError as error:
            return error
        return response

    def _answered(
        self, destination: NodeId, request: Request, outcome: Response | RpcError
    ) -> None:
        if isinstance(outcome, RpcError):
            self._peers.unreachable(destination)
            self._handle(events.RequestFailed(destination, request))
        else:
            if outcome.leader_id != destination:
                self._peers.learn_leader(outcome)
            self._handle(events.ResponseReceived(destination, outcome))


class RaftDriver:
    """Runs one replica of the metadata log."""

    def __init__(
        self,
        *,
        core: RaftCore,
        log: RecordLog,
        states: QuorumStateStore,
        snapshots: Snapshots,
        worker: Worker,
        peers: Peers,
        runtime: Runtime,
        request_timeout_ms: int,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._log = log
        self._peers = peers
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._accumulator = BatchAccumulator()
        self._effects = Effects(
            core=core,
            log=log,
            states=states,
            snapshots=snapshots,
            worker=worker,
            peers=peers,
            accumulator=self._accumulator,
            runtime=runtime,
            request_timeout_ms=request_timeout_ms,
            handle=self._handle,
            fail=fail,
        )
        self._queue: deque[events.Event] = deque()
        self._draining = False
        self._timer = Deadline(self._loop, self._tick)
        self._held = False
        """True while a transfer of leadership keeps back what is pending."""
        self.on_append: Callable[[Offset], None] = lambda _offset: None
        """Called with the offset of the last record of each append; for its measurement."""
        self._turn_is_watched = False
        """True while somebody calls `propose` before this turn of the loop ends."""
        self.append_timestamp_ms = -1
        """The time in the batch of the newest append, in ms since 1970."""
        self.flight_recorder: deque[events.Event | events.Effect] = deque(
            maxlen=RECORDED_EVENTS_MAX
        )
        """The newest events and effects without their records, for the report of a failure."""
        peers.voters_are(core.voters)

    # --- for the node -----------------------------------------------------------------------------

    def add_listener(self, listener: RaftListener) -> None:
        """Add a listener; before `start`. Listeners are called in the order of their addition."""
        self._effects.listeners.append(listener)

    def start(self) -> None:
        """Arm the core's timers."""
        self._handle(events.Started())

    async def resign(self) -> None:
        """Hand leadership over if this node holds it, before a clean stop."""
        if self.is_leader:
            self._handle(events.ResignRequested())
            await self._effects.wait_for_calls()

    def halt(self) -> None:
        """Handle nothing from now on, not even what is queued: the node has failed."""
        self._effects.stopped = True

    async def stop(self) -> None:
        """Stop timers and calls, and wait for writes that are under way."""
        self._timer.set(None)
        await self._effects.stop()

    @property
    def _stopped(self) -> bool:
        return self._effects.stopped

    # --- for the controller and the loader --------------------------------------------------------

    def append(self, payloads: Sequence[bytes]) -> Offset:
        """Append packed records as the leader; return the offset of the last.

        The records of one call stand in one batch: all commit or none. Calls made during one turn
        of the event loop share batches. They are safe when `on_committed` passes them. KafkaError:
        NOT_CONTROLLER unless this node leads, RECORD_LIST_TOO_LARGE for more than a batch holds.
        """
        return self.append_payload(b"".join(payloads), len(payloads))

    def append_payload(self, payload: bytes, record_count: int, *, alone: bool = False) -> Offset:
        """Append records that are packed one after the other already; see `append`.

        If they are to stand `alone`, their batch is shared with no other call.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if len(payload) > APPEND_BYTES_MAX:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        if not self._accumulator and not self._turn_is_watched:
            self._loop.call_soon(self.propose)
        self.append_timestamp_ms = self._runtime.wall_ms()
        append = Append(payload, record_count, self.append_timestamp_ms, alone)
        offset = self._accumulator.add(append, self._core.log.end_offset)
        self.on_append(offset)
        return offset

    @property
    def unwritten_bytes(self) -> int:
        """The size of what was appended and waits for the disk."""
        return self._log.unwritten_bytes + self._accumulator.bytes

    @property
    def is_full(self) -> bool:
        """True if so much waits for the disk that nothing more should be appended.

        `append` does not check it: an operation that has begun appends all of its pieces.
        """
        return self.unwritten_bytes > UNWRITTEN_BYTES_MAX

    def watch_turn(self) -> bool:
        """Return True if the caller is to call `propose` before this turn of the loop ends.

        False if somebody will already. If nobody asks, an append takes a turn of its own for it.
        """
        if self._turn_is_watched:
            return False
        self._turn_is_watched = True
        return True

    def propose(self) -> None:
        """Turn what `append` gathered into batches, at the latest at the end of the turn.

        During a transfer of leadership it waits: it is proposed after all, or lost with that.
        """
        self._turn_is_watched = False
        if not self._accumulator:
            return
        if self._core.is_transferring:
            self._held = True
            return
        for proposed in self._accumulator.drain():
            self._handle(proposed)

    def read_barrier(self) -> asyncio.Future[Offset]:
        """Resolve once this leader knows that everything committed before this call is applied.

        The result is the high watermark at that time. Fails with KafkaError(NOT_CONTROLLER) if this
        node does not lead, or not long enough to be sure (row Q9).
        """
        request_id, future = self._effects.expect_read()
        if self._stopped:
            self._effects.end_read(request_id, confirmed=False)
        else:
            self._handle(events.ReadRequested(request_id))
        return future

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Return committed batches from the one that contains `offset`."""
        high_watermark = self._core.high_watermark
        batches = self._log.batches(offset, max_bytes)
        return [batch for batch in batches if batch.end_offset <= high_watermark]

    def bytes_from(self, offset: Offset) -> int:
        """Return about how many bytes of the log stand at and above the offset."""
        return self._log.bytes_from(offset)

    def is_batch_boundary(self, offset: Offset) -> bool:
        """Return whether no batch of the log contains the offset beyond its first record."""
        if not self._log.start_offset <= offset < self._log.end_offset:
            return True
        return self._log.batches(offset, 1)[0].base_offset == offset

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """Return the voters that the records below this offset make."""
        return self._core.voters_at(end_offset)

    def snapshot_taken(self, snapshot_id: OffsetAndEpoch) -> None:
        """Offer a durable snapshot of committed records to the followers."""
        self._handle(events.SnapshotTaken(snapshot_id))

    def expire_prefix(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log start at the end of this snapshot."""
        self._handle(events.PrefixExpired(snapshot_id))

    @property
    def core(self) -> RaftCore:
        """The core; for reading only."""
        return self._core

    @property
    def log(self) -> RecordLog:
        """The log; for reading only."""
        return self._log

    @property
    def high_watermark(self) -> Offset:
        """Every record below is committed, as far as this replica knows."""
        return self._core.high_watermark

    @property
    def leader_id(self) -> NodeId:
        """The leader of the current epoch, or NO_NODE."""
        return self._core.leader_id

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._core.epoch

    @property
    def is_leader(self) -> bool:
        """True if this node leads the current epoch, as far as it knows; not once it is stopped."""
        return self._core.is_leader and not self._stopped

    def status(self) -> QuorumStatus:
        """Return what `quorum describe` shows."""
        return self._core.status(self._now_ms())

    # --- requests of peers ------------------------------------------------------------------------

    def receive(self, request: Request) -> asyncio.Future[Response]:
        """See `answer`."""
        future: asyncio.Future[Response] = self._loop.create_future()
        self.answer(request, partial(resolve, future))
        return future

    def answer(
        self, request: Request, reply: Callable[[Response], None], peer_id: int | None = None
    ) -> None:
        """Handle a peer's request; `reply` is called when the core replies, now or later.

        `peer_id` is the node id in the peer's hello. KafkaError(INVALID_REQUEST) if the request
        names another node as its sender.
        """
        claimed = claimed_sender(request)
        if peer_id is not None and claimed not in (None, peer_id):
            kind = type(request).__name__
            self._effects.warn(f"{kind} refused: node {peer_id} sent it in the name of {claimed}")
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind}: you are not node {claimed}")
        if isinstance(request, BeginQuorumEpochRequest) and self._core.believes(request):
            self._peers.learn_leader(request)
        self._handle(events.RequestReceived(self._effects.expect_reply(reply), request))

    # --- events -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _handle(self, event: events.Event) -> None:
        """Queue the event and, unless one is being handled, handle all that are queued.

        A listener may append while effects are performed; the queue keeps the order.
        """
        if self._stopped:
            return
        self._queue.append(event)
        if self._draining:
            return
        self._draining = True
        with HandingTo(self._effects.give_up):
            while (self._queue or self._effects.has_commits) and not self._stopped:
                for each in self._next_events():
                    self.flight_recorder.append(without_records(each))
                    for effect in self._core.handle(each, self._now_ms()):
                        self.flight_recorder.append(without_records(effect))
                        self._effects.perform(effect)
                if not self._queue:
                    self._effects.start_flush()
                if not self._queue:
                    self._effects.notify_committed()
            if self._held and not self._core.is_transferring:
                self._held = False
                self._loop.call_soon(self.propose)
            self._arm_timer()
        self._draining = False

    def _next_events(self) -> Sequence[events.Event]:
        """Take the event that is queued first, with what has to be proposed before it."""
        if not self._queue:
            return ()
        event = self._queue.popleft()
        if self._accumulator and self._may_change_voters(event):
            # Records that `append` has promised offsets to stand in the log before the voters'
            # record, which the core appends on its own at the log's end.
            return (*self._accumulator.drain(), event)
        return (event,)

    def _may_change_voters(self, event: events.Event) -> bool:
        """Whether the core may append a record of its own with this event."""
        asks = isinstance(event, events.RequestReceived) and isinstance(event.request, CHANGES)
        return (asks or self._core.is_changing_voters) and not self._core.is_transferring

    def _arm_timer(self) -> None:
        deadline_ms = None if self._stopped else self._core.deadline_ms()
        # One millisecond is added because `_now_ms` rounds down: a tick must not come early.
        self._timer.set_at_latest(None if deadline_ms is None else (deadline_ms + 1) / 1000)

    def _tick(self) -> None:
        if (self._core.deadline_ms() or 0) > self._now_ms():
            self._arm_timer()
        else:
            self._handle(events.Tick())


# --- the flight recorder --------------------------------------------------------------------------


def without_records(entry: events.Event | events.Effect) -> events.Event | events.Effect:
    """Return what the flight recorder keeps: the records would hold on to megabytes."""
    drop = _DROPS.get(type(entry))
    return entry if drop is None else drop(entry)


def _drop_batches(received: events.ResponseReceived) -> events.Event:
    match received.response:
        case FetchResponse(batches=batches) as response if batches:
            return events.ResponseReceived(received.source, with_batches(response, b""))
        case FetchSnapshotResponse() as piece:
            return events.ResponseReceived(received.source, replace(piece, data=b""))
    return received


_DROPS: Mapping[type, Callable[[Any], events.Event | events.Effect]] = {
    events.Proposed: lambda it: events.Proposed(b"", it.count, it.timestamp_ms),
    events.AppendToLog: lambda it: events.AppendToLog(without_payload(it.batch)),
    events.ResponseReceived: _drop_batches,
    events.SaveSnapshotChunk: lambda it: replace(it, data=b""),
}
"""Few entries have records, and there are several entries for each message."""
