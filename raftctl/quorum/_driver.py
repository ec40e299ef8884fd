"""The shell of the quorum core: performs its effects and feeds results back as events.

Owns the core, the metadata log and the quorum-state file; nobody else touches them. It decides
nothing: every branch here is about how to perform, never about what to do. Any failure of disk,
core or listener is fatal to the node, since what follows could not be trusted (rows Q1, Q3, Q12):
from then on nothing is handled, so nothing is acknowledged either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar, get_args

from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import HandingTo
from raftctl.quorum._appends import Append, shared
from raftctl.quorum._flight_recorder import without_records
from raftctl.raft import claimed_sender, events
from raftctl.raft.batch import BATCH_BYTES_MAX, HEADER_BYTES
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    ChangeVotersRequest,
    FetchRequest,
    FetchResponse,
    Offset,
    with_batches,
)
from raftctl.rpc import RpcError, RpcUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.loader import Snapshots
    from raftctl.quorum._listener import RaftListener
    from raftctl.quorum._peers import Peers
    from raftctl.raft import QuorumStatus, RaftCore
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import NodeId, OffsetAndEpoch, Request, Response
    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.api import Runtime, Worker
    from raftctl.storage.log import RecordLog
    from raftctl.storage.quorum_state import QuorumStateStore

T = TypeVar("T")

CHANGES = get_args(ChangeVotersRequest)
STORY_EVENTS_MAX = 200
WARN_PAUSE_MS = 1000
UNWRITTEN_BYTES_MAX = 32 * 1024 * 1024
"""What may wait for the disk, in memory; more is refused until that has got on. Two batches."""
APPEND_BYTES_MAX = BATCH_BYTES_MAX - HEADER_BYTES
"""Of one `append`, which is never split."""


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
        self._states = states
        self._snapshots = snapshots
        self._worker = worker
        self._peers = peers
        self._runtime = runtime
        self._request_timeout_ms = request_timeout_ms
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._listeners: list[RaftListener] = []
        self._queue: deque[events.Event] = deque()
        self._draining = False
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._reads: dict[int, asyncio.Future[Offset]] = {}
        self._replies: dict[int, Callable[[Response], None]] = {}
        self._next_token = 0
        self.append_timestamp_ms = -1
        """What the batch of the newest append says of its time, in ms since 1970."""
        self._pending: list[Append] = []
        self._pending_end_offset = Offset(0)
        self._log_to = runtime.log.bind(part="quorum")
        self._warn_at_ms = 0
        self._unwarned = 0
        """Warnings that came too soon after the last."""
        self._held = False
        """Whether a transfer of leadership keeps back what is pending."""
        self._flushing = False
        self._committed: Offset | None = None
        """A new high watermark that the listeners have not been told of."""
        self._calls: dict[asyncio.Task[None], None] = {}
        peers.voters_are(core.voters)
        self.story: deque[events.Event | events.Effect] = deque(maxlen=STORY_EVENTS_MAX)
        """The newest events and effects without their records, for the report of a failure."""

    # --- for the node -----------------------------------------------------------------------------

    def add_listener(self, listener: RaftListener) -> None:
        """Adds a listener; before `start`."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Arms the core's timers."""
        self._handle(events.Started())

    async def resign(self) -> None:
        """Hands leadership over if this node holds it, before a clean stop."""
        if self.is_leader:
            self._handle(events.ResignRequested())
            if self._calls:
                await asyncio.wait(self._calls, timeout=self._request_timeout_ms / 1000)

    def halt(self) -> None:
        """Handles nothing from now on, not even what is queued: the node has failed."""
        self._stopped = True

    async def stop(self) -> None:
        """Stops timers and calls, and waits for writes that are under way."""
        self._stopped = True
        for token in list(self._reads):
            self._end_read(token, confirmed=False)
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._snapshots.idle()
        await self._worker.submit(self._log.close)

    # --- for the controller and the loader --------------------------------------------------------

    def append(self, payloads: Sequence[bytes]) -> Offset:
        """Appends packed records as the leader; returns the offset of the last.

        The records of one call stand in one batch: all commit or none. Calls made during one turn
        of the event loop share batches. They are safe when `on_committed` passes them. KafkaError:
        NOT_CONTROLLER unless this node leads, RECORD_LIST_TOO_LARGE for more than a batch holds.
        """
        return self.append_payload(b"".join(payloads), len(payloads))

    def append_payload(self, payload: bytes, record_count: int, *, alone: bool = False) -> Offset:
        """Does what `append` does with records that are packed one after the other already.

        If they are to stand `alone`, their batch is shared with no other call.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if len(payload) > APPEND_BYTES_MAX:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        if not self._pending:
            self._pending_end_offset = self._core.log.end_offset
            self._loop.call_soon(self.propose)
        self.append_timestamp_ms = self._runtime.wall_ms()
        self._pending.append(Append(payload, record_count, self.append_timestamp_ms, alone))
        self._pending_end_offset = Offset(self._pending_end_offset + record_count)
        return Offset(self._pending_end_offset - 1)

    @property
    def unwritten_bytes(self) -> int:
        """What was appended and waits for the disk."""
        return self._log.unwritten_bytes + sum(len(append.payload) for append in self._pending)

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk that nothing more should be appended.

        Not a matter of `append`: an operation that has begun appends all of its pieces.
        """
        return self.unwritten_bytes > UNWRITTEN_BYTES_MAX

    def propose(self) -> None:
        """Turns what `append` gathered into batches, at the latest at the end of the turn.

        During a transfer of leadership it waits: it is proposed after all, or lost with that.
        """
        if not self._pending:
            return
        if self._core.is_transferring:
            self._held = True
            return
        pending, self._pending = self._pending, []
        for payload, count, timestamp_ms, _alone in shared(pending):
            self._handle(events.Proposed(payload, count, timestamp_ms))

    def read_barrier(self) -> asyncio.Future[Offset]:
        """Resolves once this leader knows that everything committed before this call is applied.

        With the high watermark at that time. Fails with KafkaError(NOT_CONTROLLER) if this node
        does not lead, or not long enough to be sure (row Q9).
        """
        self._next_token += 1
        token = self._next_token
        future: asyncio.Future[Offset] = self._loop.create_future()
        self._reads[token] = future
        future.add_done_callback(lambda _: self._reads.pop(token, None))
        if self._stopped:
            self._end_read(token, confirmed=False)
        else:
            self._handle(events.ReadRequested(token))
        return future

    def _end_read(self, token: int, *, confirmed: bool) -> None:
        future = self._reads.get(token)
        if future is None or future.done():
            return
        if confirmed:
            future.set_result(self._core.high_watermark)
        else:
            future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Committed batches from the one that contains `offset`."""
        high_watermark = self._core.high_watermark
        batches = self._log.batches(offset, max_bytes)
        return [batch for batch in batches if batch.end_offset <= high_watermark]

    def bytes_from(self, offset: Offset) -> int:
        """About how many bytes of the log stand at and above the offset."""
        return self._log.bytes_from(offset)

    def is_batch_boundary(self, offset: Offset) -> bool:
        """Whether no batch of the log contains the offset beyond its first record."""
        if not self._log.start_offset <= offset < self._log.end_offset:
            return True
        return self._log.batches(offset, 1)[0].base_offset == offset

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """Return the voters that the records below this offset make."""
        return self._core.voters_at(end_offset)

    def snapshot_taken(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot of what is committed is on disk: others may fetch it."""
        self._handle(events.SnapshotTaken(snapshot_id))

    def expire_prefix(self, snapshot_id: OffsetAndEpoch) -> None:
        """What stands before this snapshot is kept no longer."""
        self._handle(events.PrefixExpired(snapshot_id))

    @property
    def core(self) -> RaftCore:
        """For reading only."""
        return self._core

    @property
    def log(self) -> RecordLog:
        """For reading only."""
        return self._log

    @property
    def high_watermark(self) -> Offset:
        """As far as this replica knows."""
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
        """Whether this node leads the current epoch, as far as it knows; not once it is stopped."""
        return self._core.is_leader and not self._stopped

    def status(self) -> QuorumStatus:
        """What `quorum describe` shows."""
        return self._core.status(self._now_ms())

    def receive(self, request: Request) -> asyncio.Future[Response]:
        """See `answer`."""
        future: asyncio.Future[Response] = self._loop.create_future()
        self.answer(request, partial(_resolve, future))
        return future

    def answer(
        self, request: Request, reply: Callable[[Response], None], peer_id: int | None = None
    ) -> None:
        """A peer's request; `reply` is called when the core replies, now or later.

        `peer_id` is who the peer says it is: KafkaError(INVALID_REQUEST) if the request comes from
        another node.
        """
        claimed = claimed_sender(request)
        if peer_id is not None and claimed not in (None, peer_id):
            kind = type(request).__name__
            self._warned(f"{kind} refused: node {peer_id} sent it in the name of {claimed}")
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind}: you are not node {claimed}")
        if isinstance(request, BeginQuorumEpochRequest) and self._core.believes(request):
            self._peers.hear(request)
        self._next_token += 1
        self._replies[self._next_token] = reply
        self._handle(events.RequestReceived(self._next_token, request))

    # --- events -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _handle(self, event: events.Event) -> None:
        """Queues the event and, unless one is being handled, handles all that are queued.

        A listener may append while effects are performed; the queue keeps the order.
        """
        if self._stopped:
            return
        self._queue.append(event)
        if self._draining:
            return
        self._draining = True
        with HandingTo(self._give_up):
            while (self._queue or self._committed is not None) and not self._stopped:
                if self._queue:
                    self._handle_one(self._queue.popleft())
                if not self._queue:
                    self._start_flush()
                if not self._queue:
                    self._tell_committed()
            if self._held and not self._core.is_transferring:
                self._held = False
                self._loop.call_soon(self.propose)
            self._arm_timer()
        self._draining = False

    def _handle_one(self, event: events.Event) -> None:
        if self._pending and self._may_change_voters(event):
            # What `append` has promised offsets to stands in the log before the voters' record.
            pending, self._pending = self._pending, []
            for payload, count, timestamp_ms, _alone in shared(pending):
                self._step(events.Proposed(payload, count, timestamp_ms))
        self._step(event)

    def _may_change_voters(self, event: events.Event) -> bool:
        """Whether the core may append a record of its own with this event."""
        asks = isinstance(event, events.RequestReceived) and isinstance(event.request, CHANGES)
        return (asks or self._core.is_changing_voters) and not self._core.is_transferring

    def _step(self, event: events.Event) -> None:
        self.story.append(without_records(event))
        for effect in self._core.handle(event, self._now_ms()):
            self.story.append(without_records(effect))
            self._perform(effect)

    def _give_up(self, error: BaseException) -> None:
        self._stopped = True
        self._fail(error)

    def _arm_timer(self) -> None:
        """Sets the timer unless it fires early enough: to fire early costs less than to set it."""
        deadline_ms = None if self._stopped else self._core.deadline_ms()
        if self._timer is not None:
            if deadline_ms is not None and self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            # One millisecond is added because `_now_ms` rounds down: a tick must not come early.
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if (self._core.deadline_ms() or 0) > self._now_ms():
            self._arm_timer()
        else:
            self._handle(events.Tick())

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.AppendToLog(batch):
                self._log.append(batch)
                if batch.control:
                    self._peers.voters_are(self._core.voters)
            case events.ReplyFetch():
                self._reply_fetch(effect)
            case events.Reply(token, response):
                self._reply(token, self._peers.told(response))
            case events.SendRequest(destination, request):
                self._send(destination, request)
            case events.HighWatermarkAdvanced(high_watermark):
                self._committed = high_watermark
            case _:
                # What was committed before is told before: it may be rolled back or read now.
                self._tell_committed()
                self._perform_rarer(effect)

    def _tell_committed(self) -> None:
        """Has the listeners apply what is committed.

        After all that others wait for is under way: other voters for records or for word that they
        are on this disk, where a follower has to apply what the records came with.
        """
        high_watermark, self._committed = self._committed, None
        if high_watermark is not None:
            for listener in self._listeners:
                listener.on_committed(high_watermark)

    def _perform_rarer(self, effect: events.Effect) -> None:
        match effect:
            case events.LeaderChanged(epoch, leader_id):
                self._leader_changed(epoch, leader_id)
            case events.PersistQuorumState(state):
                self._persist(state)
            case events.TruncateLog(end_offset):
                self._log.truncate(end_offset)
                self._peers.voters_are(self._core.voters)
            case _:
                self._perform_snapshot(effect)

    def _perform_snapshot(self, effect: events.Effect) -> None:
        match effect:
            case events.Warned(why):
                self._warned(why)
            case events.ReadConfirmed(token):
                self._end_read(token, confirmed=True)
            case events.ReadRefused(token):
                self._end_read(token, confirmed=False)
            case events.DeleteLogPrefix(snapshot_id):
                self._log.delete_prefix(snapshot_id)
            case events.ResetLog(snapshot_id):
                self._reset_log(snapshot_id)
            case events.SaveSnapshotChunk():
                self._when_done(self._snapshots.save_chunk(effect), self._handle)
            case events.ReplyFetchSnapshot(token):
                self._when_done(
                    self._snapshots.fill(effect), lambda response: self._reply(token, response)
                )

    def _warned(self, why: str) -> None:
        """Tells the log, once in a while: peers decide how often there is something to tell."""
        now_ms = self._now_ms()
        if now_ms >= self._warn_at_ms:
            self._log_to.warning("quorum_message_refused", why=why, not_told=self._unwarned)
            self._warn_at_ms, self._unwarned = now_ms + WARN_PAUSE_MS, 0
        else:
            self._unwarned += 1

    def _reset_log(self, snapshot_id: OffsetAndEpoch) -> None:
        self._log.reset(snapshot_id)
        self._peers.voters_are(self._core.voters)
        image = self._snapshots.take_fetched(snapshot_id)
        for listener in self._listeners:
            listener.on_snapshot(image)

    def _leader_changed(self, epoch: int, leader_id: int) -> None:
        # Also when this node leads again: what was appended in an earlier epoch is rolled back.
        self._pending.clear()
        for listener in self._listeners:
            listener.on_leader_changed(epoch, leader_id)

    def _start_flush(self) -> None:
        """Writes and syncs what was appended; appends meanwhile share the next flush.

        After all effects of all events: a leader's followers sync the same records meanwhile.
        """
        if self._flushing or self._stopped or not self._log.dirty:
            return
        self._flushing = True
        self._when_done(self._log.flush(self._worker), self._flushed)

    def _flushed(self, _: None) -> None:
        self._flushing = False
        # What the flush itself reports may have been truncated before this callback's turn came.
        self._handle(events.LogFlushed(self._log.flushed_end_offset))

    def _persist(self, state: events.QuorumState) -> None:
        saved = self._worker.submit(lambda: self._states.save(state))
        self._when_done(saved, lambda _: self._handle(events.QuorumStatePersisted()))

    def _when_done(self, future: asyncio.Future[T], then: Callable[[T], None]) -> None:
        """Feeds a write's result back, at once if it is there; one that failed ends this node."""

        def done(future: asyncio.Future[T]) -> None:
            with HandingTo(self._give_up):
                result = future.result()
                if not self._stopped:
                    then(result)

        if future.done():
            done(future)
        else:
            future.add_done_callback(done)

    def _reply(self, token: int, response: Response) -> None:
        self._replies.pop(token)(response)

    def _reply_fetch(self, effect: events.ReplyFetch) -> None:
        batches = self._log.read(effect.response.fetch_offset, effect.max_bytes)
        # Who asked by a bootstrap address may hear here for the first time that this is the leader.
        response = self._peers.told(effect.response)
        assert isinstance(response, FetchResponse)
        self._reply(effect.token, with_batches(response, batches) if batches else response)

    def _send(self, destination: NodeId, request: Request) -> None:
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
        with HandingTo(self._give_up, but=(asyncio.CancelledError,)):
            self._answered(destination, request, await self._response(destination, request))

    async def _response(self, destination: NodeId, request: Request) -> Response | RpcError:
        peer = self._peers.get(destination)
        if peer is None:
            return RpcUnreachable(f"nobody has told where node {destination} is")
        try:
            introduced = self._peers.introduced(request)
            response: Response = await peer.call(introduced, self._request_timeout_ms)
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
                self._peers.hear(outcome)
            self._handle(events.ResponseReceived(destination, outcome))


def _resolve(future: asyncio.Future[Response], response: Response) -> None:
    if not future.done():  # else whoever asked has given up
        future.set_result(response)
