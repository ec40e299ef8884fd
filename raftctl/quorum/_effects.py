"""Performs the core's effects: on the log, the disk, the peers, the snapshots and the listeners.

Nothing is decided here; a branch is about how to perform, never about what to do. An effect that
only *starts* something reports its completion as an event. A completion that fails ends the node,
since nothing that depends on it could be trusted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import HandingTo
from raftctl.raft import events
from raftctl.raft.messages import FetchRequest, FetchResponse, Offset, with_batches
from raftctl.rpc import RpcError, RpcUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from raftctl.loader import Snapshots
    from raftctl.metadata.image import MetadataImage
    from raftctl.quorum._accumulator import BatchAccumulator
    from raftctl.quorum._peers import Peers
    from raftctl.raft import RaftCore
    from raftctl.raft.messages import NodeId, Request, Response
    from raftctl.runtime.api import Runtime, Worker
    from raftctl.storage import QuorumStateStore
    from raftctl.storage.log import RecordLog

T = TypeVar("T")

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
        self._events_log = runtime.log.bind(part="quorum")
        self.listeners: list[RaftListener] = []
        self.stopped = False
        """Whether nothing is performed any more."""
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
        """Whether the listeners have something to apply."""
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
        for listener in self.listeners:
            listener.on_leader_changed(effect.epoch, effect.leader_id)

    def _warned(self, effect: events.Warned) -> None:
        self.warn(effect.why)

    def warn(self, why: str) -> None:
        """Log a warning, at most one a second: peers decide how often there is one."""
        now_ms = int(self._loop.time() * 1000)
        if now_ms >= self._warn_at_ms:
            self._events_log.warning("quorum_message_refused", why=why, not_told=self._unwarned)
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
