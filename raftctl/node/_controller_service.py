"""The shell of the controller: appends what it decides and answers when that is committed.

Takes requests on the event loop, one after the other (the single writer of row C1). While this node
leads, the controller's own images are published as they commit; otherwise the loader replays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.admin import EventTimes
from raftctl.codec import Columns, columns_of, types_of
from raftctl.errors import ErrorCode, InvariantViolation, KafkaError, invariant
from raftctl.failures import HandingTo, resolve
from raftctl.metadata.codec import as_transaction, in_pieces, may_be_transaction, pack_payload
from raftctl.metadata.records import SnapshotMarkRecord
from raftctl.metadata.requests.admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumReplica,
)
from raftctl.metadata.requests.cluster import BrokerHeartbeatRequest
from raftctl.metadata.requests.kv import (
    KvGetResponse,
    KvHeartbeatRequest,
    KvPutRequest,
    KvWriteResponse,
)
from raftctl.metadata.topic_names import RESERVED
from raftctl.metrics import Distribution
from raftctl.node._forwarded_log import ForwardedLog, is_forwarded
from raftctl.node._forwarded_requests import screen
from raftctl.raft.messages import NO_NODE
from raftctl.runtime import Deadline, Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.controller import QuorumController
    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import KvRecord, Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.quorum import RaftDriver
    from raftctl.raft import QuorumStatus, ReplicaStatus
    from raftctl.raft.messages import Offset
    from raftctl.runtime.api import Runtime
    from raftctl.security import Authorizer
    from raftctl.tracing import Tracer

    Reply = Callable[[ControllerResponse | KafkaError], None]
    Answers = Sequence[ControllerResponse | KafkaError]
    ReplyMany = Callable[[Answers], None]

DEFERRED_MAX = 100_000
"""Answers that wait for a commit or for confirmation; heartbeats may be more."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""The memory for undecided puts, uncommitted records and values to answer; one request may go
beyond it."""
PUTS_BYTES_MAX = 1024 * 1024
"""Puts of one turn of the event loop are appended together up to about this many bytes."""
TRANSACTION_BYTES_MIN = 1024 * 1024
"""The size in bytes above which a write becomes a transaction, in batches of at most this size."""
_US = 1_000_000
LEADERSHIP_LOST = "leadership ended before the commit: it may take effect or not"


class _Deferred(NamedTuple):
    offset: int
    reply: Reply
    response: ControllerResponse
    lost: ErrorCode
    asked: int = 1
    """How many requests are answered by it."""


class ControllerService:
    """One controller node; active while it leads the quorum."""

    def __init__(
        self,
        *,
        node_id: int,
        controller: QuorumController,
        driver: RaftDriver,
        loader: MetadataLoader,
        runtime: Runtime,
        idle_interval_ms: int,
        fail: Callable[[BaseException], None],
        fence: Callable[[], None],
        authorizer: Authorizer | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`fence` has requests refused that were sent before; called before any is done.

        `authorizer` decides what the clients may do for which brokers ask. It has the loader's
        newest image; without one they may do everything.
        """
        self._node_id = node_id
        self._controller = controller
        self._driver = driver
        self._loader = loader
        self._runtime = runtime
        self._idle_interval_ms = idle_interval_ms
        self._fail = fail
        self._fence = fence
        self._authorizer = authorizer
        self._loop = asyncio.get_running_loop()
        self._log = runtime.log.bind(logger="raftctl.controller")
        self._forwarded = ForwardedLog(self._log.bind(node_id=node_id), self._loop.time, tracer)
        self._deferred: deque[_Deferred] = deque()
        self._deferred_requests = 0
        """The number of requests that those answer."""
        self._reads: list[_Deferred] = []
        """Asked in this turn of the event loop and to be confirmed."""
        self._puts = PutBatcher(self._write_puts)
        """Asked in this turn of the event loop; decided together at its end, or before another
        request is decided on."""
        self._puts_wait_since = 0.0
        self.times = EventTimes(Distribution(), Distribution())
        self._confirming = 0
        """The number of answers that wait for confirmation."""
        self._confirming_bytes = 0
        self._uncommitted: deque[tuple[int, int]] = deque()
        """(last offset, size) of what was appended and is not committed."""
        self._uncommitted_bytes = 0
        self._committed = 0
        """The high watermark below which waiting answers are due."""
        self._answers_more = False
        """True if the next turn of the event loop continues to answer."""
        self._last_appended = -1
        self._appended_ms = 0
        self._taking_over = False
        """True while this node leads and replays what it still lacks, to become active then."""
        self._own: list[Record] = []
        """This node's records to append once it is active."""
        self._timer = Deadline(self._loop, self._tick)
        self._unproposed = False
        """True if this turn of the event loop has appended records that are not proposed yet."""
        driver.add_listener(self)

    def handle(self, request: ControllerRequest) -> asyncio.Future[ControllerResponse]:
        """See `answer`; the future fails with the KafkaError."""
        future: asyncio.Future[ControllerResponse] = self._loop.create_future()
        try:
            self.answer(request, partial(resolve, future))
        except KafkaError as error:
            future.set_exception(error)
        return future

    def answer(self, request: ControllerRequest, reply: Reply, peer_id: int = NO_NODE) -> None:
        """Decide on a request; call `reply` once, now or when the result is committed.

        Raises KafkaError when nothing is done: NOT_CONTROLLER if this node is not active,
        THROTTLING_QUOTA_EXCEEDED if too much waits already, and what `screen` raises. A reply with
        NOT_CONTROLLER means that leadership ended before the commit. Any node may ask: requests
        that only one may send name it. A future for each of many writes would cost as much as
        deciding on them.
        """
        if type(request) is KvPutRequest and not self._is_full:
            self.answer_puts((request,), lambda answers: reply(answers[0]))
            return
        if is_forwarded(request):
            self._forwarded.answer(request, reply, peer_id, self._answer)
        else:
            self._answer(request, reply, peer_id)

    def _answer(self, request: ControllerRequest, reply: Reply, peer_id: int) -> None:
        self._watch_turn()
        self._puts.decide()
        if not self._controller.active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        # Heartbeats are few, and to refuse them would fence brokers and end sessions that live.
        heartbeat = isinstance(request, BrokerHeartbeatRequest | KvHeartbeatRequest)
        if self._is_full and not heartbeat:
            raise _throttled()
        allowed = screen(self._authorizer, request, peer_id, lambda: self._controller.image)
        if isinstance(request, DescribeQuorumRequest):
            reply(quorum_response(self._driver.status(), self._runtime.wall_ms()))
            return
        began_s = self._loop.time()
        self.times.queue.add(0)  # decided on in the turn in which it arrives
        result = self._controller.handle(allowed.request, self._now_ms())
        base_offset = self._append(result.records)
        self.times.processing.add(int((self._loop.time() - began_s) * _US))
        response = allowed.complete(result.response_at(base_offset))
        if result.confirm and not self._unproposed:
            self._confirm(_Deferred(self._last_appended, reply, response, result.lost))
        elif self._last_appended < self._driver.high_watermark:
            reply(response)
        else:
            # Also an answer without records waits: it was computed from what is not committed yet.
            self._defer(_Deferred(self._last_appended, reply, response, result.lost))

    def answer_puts(self, requests: Sequence[KvPutRequest], reply: ReplyMany) -> None:
        """Do what `answer` does for several puts, with one call of `reply` for all of them.

        Refusals among them are answered when the others are committed.
        """
        if self._is_full:
            reply([_throttled()] * len(requests))
            return
        if not self._puts.undecided:
            self._puts_wait_since = self._loop.time()
        self._puts.add(requests, reply)
        if self._last_appended < self._driver.high_watermark and self._driver.watch_turn():
            # Nothing is under way: these are not kept waiting for others, which gather meanwhile.
            self._end_turn()
        else:
            self._watch_turn()

    def invariants(self) -> None:
        """Check the controller's whole state; for simulations, between two turns of the loop."""
        self._controller.invariants()

    @property
    def waiting(self) -> int:
        """The number of answers that wait for a decision, a commit or confirmation."""
        return self._puts.undecided + self._deferred_requests + self._confirming

    @property
    def waiting_bytes(self) -> int:
        """The bytes in memory for those answers, or because of them."""
        return self._puts.undecided_bytes + self._uncommitted_bytes + self._confirming_bytes

    @property
    def _is_full(self) -> bool:
        """True if too many wait for a decision, commit or confirmation to accept more.

        Requests that wait are in memory, for a time that nothing bounds.
        """
        full = self.waiting >= DEFERRED_MAX or self.waiting_bytes >= WAITING_BYTES_MAX
        return full or self._driver.is_full

    def _write_puts(self, requests: Sequence[KvPutRequest], reply: ReplyMany) -> None:
        """Decide on puts and append them in one batch; reply to all when it is committed."""
        if not self._controller.active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        began_s = self._loop.time()
        self.times.queue.add(int((began_s - self._puts_wait_since) * _US))
        decided = self._controller.handle_puts(requests)
        self.times.processing.add(int((self._loop.time() - began_s) * _US))
        records: Sequence[Any] = decided
        if not isinstance(decided, Columns):
            records = [outcome for outcome in decided if not isinstance(outcome, KafkaError)]
        if not records:
            reply([outcome for outcome in decided if isinstance(outcome, KafkaError)])
            return
        response = KvWriteResponse(ErrorCode.NONE, self._append(records))
        answer = partial(_answer_puts, decided, reply)
        lost = ErrorCode.REQUEST_TIMED_OUT
        self._defer(_Deferred(self._last_appended, answer, response, lost, len(requests)))

    def _confirm(self, read: _Deferred) -> None:
        """Answer once this controller is known to have been active when the question came.

        What this turn has appended already proves that by its commit: a newer leader's voters would
        not take it. Otherwise one barrier at the end of the turn serves all that was asked in it.
        """
        self._confirming += 1
        self._confirming_bytes += _value_size(read.response)
        if not self._reads:
            self._loop.call_soon(self._open_barrier)
        self._reads.append(read)

    def _open_barrier(self) -> None:
        reads, self._reads = self._reads, []
        if reads:
            confirmed = partial(self._confirmed, reads, self._driver.epoch)
            self._driver.read_barrier().add_done_callback(confirmed)

    def _confirmed(
        self, reads: Sequence[_Deferred], epoch: int, barrier: asyncio.Future[Offset]
    ) -> None:
        self._confirming -= len(reads)
        self._confirming_bytes -= sum([_value_size(read.response) for read in reads])
        refused = barrier.cancelled() or barrier.exception() is not None
        # Of another epoch is also what was rolled back: an answer may come from that.
        if refused or epoch != self._driver.epoch or not self._controller.active:
            _fail_all(reads)
            return
        for read in reads:
            if read.offset < self._driver.high_watermark:
                read.reply(read.response)
            else:
                # Behind some of a greater offset, perhaps: then it waits for those as well.
                self._defer(read)

    def append_own(self, record: Record) -> bool:
        """Append a record of the controller's own, if it is active or will be; return whether."""
        if self._controller.active:
            self._append([record])
        elif self._taking_over:
            self._own.append(record)
        return self._controller.active or self._taking_over

    def stop(self) -> None:
        """Cancel the timer and fail what waits."""
        self._timer.set(None)
        self._fail_deferred()

    # --- RaftListener -----------------------------------------------------------------------------

    def on_committed(self, high_watermark: int) -> None:
        """Answer who waited for what committed, and publish that."""
        if not self._controller.active:
            self._loader.on_committed(high_watermark)
            return
        committed = self._controller.committed(high_watermark - 1)
        self._committed = high_watermark
        while self._uncommitted and self._uncommitted[0][0] < high_watermark:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        if not self._answers_more:
            self._answer_some()
        for delta, image in committed:
            self._loader.publish(delta, image)

    def _defer(self, deferred: _Deferred) -> None:
        self._deferred.append(deferred)
        self._deferred_requests += deferred.asked

    def _take_due(self) -> _Deferred:
        deferred = self._deferred.popleft()
        self._deferred_requests -= deferred.asked
        return deferred

    def _answer_some(self) -> None:
        """Give the answers that waited for what is committed now; of many, some in each turn."""
        slices = Slices()
        while self._is_due:
            deferred = self._take_due()
            deferred.reply(deferred.response)
            if slices.is_over():
                break
        self._answers_more = self._is_due
        if self._answers_more:
            self._loop.call_soon(self._answer_more)

    @property
    def _is_due(self) -> bool:
        return bool(self._deferred) and self._deferred[0].offset < self._committed

    def _answer_more(self) -> None:
        with HandingTo(self._fail):
            self._answer_some()

    def on_snapshot(self, image: MetadataImage) -> None:
        """Do nothing: the loader takes it, and a leader never gets one."""
        invariant(not self._controller.active, "the active controller has all that is committed")
        self._loader.on_snapshot(image)

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Become the active controller, or give up what is not committed.

        Active only when it has replayed what was committed before, some in each turn of the loop.
        """
        if self._controller.active:
            self._controller.renounce()
            self._fail_deferred()
            self._log.info("controller_renounced", epoch=epoch, leader_id=leader_id)
        self._own.clear()
        self._taking_over = leader_id == self._node_id and self._driver.is_leader
        if self._taking_over:
            self._fence()  # now: the quorum changes its voters before this is active
            self._loader.when_replayed(partial(self._take_over, epoch))
        self._arm_timer()

    def _take_over(self, epoch: int) -> None:
        leads = self._driver.is_leader and epoch == self._driver.epoch
        if not self._taking_over or not leads:
            return  # not any more, or for a later call
        self._taking_over = False
        loader = self._loader
        self._log.info("controller_active", epoch=epoch, offset=loader.image.offset)
        self._last_appended = loader.next_offset - 1
        claiming = self._controller.claim(
            epoch, loader.image, self._now_ms(), in_transaction=loader.in_transaction
        )
        self._append(claiming)
        own, self._own = self._own, []
        self._append(own)
        self._arm_timer()
        for name in sorted(RESERVED.intersection(loader.image.topics.ids)):
            # An older release created it. Brokers that host it refuse it; that says why.
            self._log.warning("topic_name_reserved", topic=name, remedy="delete the topic")

    # --- internals --------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _append(self, records: Sequence[Record]) -> int:
        """Append and replay at once; return the offset of the first record."""
        if not records:
            return self._last_appended + 1
        payload = pack_payload(records)
        self._watch_turn()
        self._unproposed = True
        # Replicas end an image where the batch of a mark ends: it is shared with nothing.
        marked = SnapshotMarkRecord in types_of(records)
        large = len(payload) > TRANSACTION_BYTES_MIN
        begins = 0
        if large and may_be_transaction(self._controller.image, records):
            records = as_transaction(records)
            begins = 1
            for piece in in_pieces(records, TRANSACTION_BYTES_MIN):
                last = self._driver.append_payload(*piece, alone=True)
        else:
            last = self._driver.append_payload(payload, len(records), alone=marked)
        self._last_appended = last
        self._uncommitted.append((last, len(payload)))
        self._uncommitted_bytes += len(payload)
        self._appended_ms = self._now_ms()
        try:
            # As replicas will read it in the batch, which a stalled loop may propose later.
            timestamp_ms = self._driver.append_timestamp_ms
            self._controller.appended(records, last, self._driver.epoch, timestamp_ms)
        except Exception as error:
            # The records are on their way into every log: no replica could go on from them.
            raise InvariantViolation("what the controller appends can be replayed") from error
        if marked:
            self._controller.seal()
        return last - len(records) + 1 + begins

    def _watch_turn(self) -> None:
        """Has `_end_turn` called before the driver proposes what this turn appends.

        So what many requests change is looked at once, and images end where batches end.
        """
        if self._driver.watch_turn():
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        with HandingTo(self._fail):
            self._puts.decide()
            self._unproposed = False
            self._driver.propose()
            # Now that the followers have work. What commits at once has been sealed by that.
            self._controller.seal()
            self._arm_timer()

    def _fail_deferred(self) -> None:
        """Refuse what waits: leadership has ended. What is committed is answered as done."""
        while self._is_due:
            deferred = self._take_due()
            deferred.reply(deferred.response)
        waiting = [*self._deferred, *self._reads]
        self._confirming -= len(self._reads)
        self._confirming_bytes -= sum([_value_size(read.response) for read in self._reads])
        self._uncommitted.clear()
        self._uncommitted_bytes = 0
        self._puts.refuse(KafkaError(ErrorCode.NOT_CONTROLLER))
        self._deferred.clear()
        self._deferred_requests = 0
        self._reads = []
        _fail_all(waiting)

    def _arm_timer(self) -> None:
        deadlines_ms = [self._controller.deadline_ms(), self._idle_deadline_ms()]
        due_ms = min((at_ms for at_ms in deadlines_ms if at_ms is not None), default=None)
        if due_ms is None or not self._may_append:
            self._timer.set(None)
        else:
            # One millisecond is added because `_now_ms` rounds down: a tick must not come early.
            self._timer.set_at_latest((due_ms + 1) / 1000)

    @property
    def _may_append(self) -> bool:
        """Not while a node ends whose disk has failed: what is due would stay so, for ever."""
        return self._controller.active and self._driver.is_leader

    def _idle_deadline_ms(self) -> int | None:
        return self._appended_ms + self._idle_interval_ms if self._idle_interval_ms else None

    def _tick(self) -> None:
        with HandingTo(self._fail):
            self._append_due()
            self._arm_timer()

    def _append_due(self) -> None:
        """Append what time brings about: silent brokers are fenced, an idle log gets a no-op."""
        if not self._may_append:
            return
        now_ms = self._now_ms()
        self._append(self._controller.tick(now_ms))
        idle_ms = self._idle_deadline_ms()
        if idle_ms is not None and now_ms >= idle_ms:
            self._append(self._controller.idle_records())


def _throttled() -> KafkaError:
    why = "too much waits to commit: ask again later; nothing was done"
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why)


def _answer_puts(
    decided: Sequence[KvRecord | KafkaError],
    reply: ReplyMany,
    first: ControllerResponse | KafkaError,
) -> None:
    """Answer each put, given the answer to the first that was written."""
    count = len(decided)
    answers: Answers = [first] * count
    if isinstance(first, KvWriteResponse):
        versions = range(first.version, first.version + count)
        answers = Columns(KvWriteResponse, ([ErrorCode.NONE] * count, versions))
    if not isinstance(decided, Columns):
        written = iter(answers)
        answers = [one if isinstance(one, KafkaError) else next(written) for one in decided]
    reply(answers)


def _value_size(response: ControllerResponse) -> int:
    """Of what an answer holds on to that may be large."""
    value = response.value if isinstance(response, KvGetResponse) else None
    return len(value or b"")


def quorum_response(status: QuorumStatus, wall_ms: int) -> DescribeQuorumResponse:
    """Return the leader's view of the quorum, its times on the wall clock."""

    def replica(one: ReplicaStatus) -> QuorumReplica:
        fetch_ms, caught_up_ms = (
            -1 if at_ms is None else wall_ms - (status.now_ms - at_ms)
            for at_ms in (one.last_fetch_ms, one.last_caught_up_ms)
        )
        return QuorumReplica(
            one.node_id, one.log_end_offset, fetch_ms, caught_up_ms, one.directory_id
        )

    return DescribeQuorumResponse(
        ErrorCode.NONE,
        "",
        status.leader_id,
        status.epoch,
        status.high_watermark,
        tuple(map(replica, status.voters)),
        tuple(map(replica, status.observers)),
        nodes=tuple(
            QuorumNode(voter.replica.node_id, voter.host, voter.port)
            for voter in status.voter_set
            if voter.port
        ),
    )


def _fail_all(waiting: Sequence[_Deferred]) -> None:
    for one in waiting:
        one.reply(KafkaError(one.lost, LEADERSHIP_LOST))


# --- puts of one turn ---------------------------------------------------------------------------


class _Group(NamedTuple):
    """Puts that are answered by one call, with an answer for each."""

    requests: Sequence[KvPutRequest]
    reply: ReplyMany


class PutBatcher:
    """Gathers the puts of a turn, and divides the answers to a batch among their requests.

    Deciding on a put costs less than a batch, a flush and an answer each of its own. So puts gather
    until the turn ends, or until another request has to see their effect. This path earns several
    times the throughput of one put at a time (`docs/benchmarks/quorum.md`); no other request
    needs it.
    """

    def __init__(self, write: Callable[[Sequence[KvPutRequest], ReplyMany], None]) -> None:
        """`write(requests, reply)` decides on puts; it raises KafkaError, or replies once to all.

        The reply may come later, when what was decided on is committed.
        """
        self._write = write
        self._groups: list[_Group] = []
        self.undecided = 0
        """Puts that are not decided on yet."""
        self.undecided_bytes = 0
        """The size of their values."""

    def add(self, requests: Sequence[KvPutRequest], reply: ReplyMany) -> None:
        """Keep puts for the next `decide`; `reply` gets an answer for each, in order."""
        self._groups.append(_Group(requests, reply))
        self.undecided += len(requests)
        self.undecided_bytes += _size(requests)

    def decide(self) -> None:
        """Decide on all puts that have gathered, in batches of about `PUTS_BYTES_MAX`."""
        while self._groups:
            size, count = 0, 0
            while count < len(self._groups) and size < PUTS_BYTES_MAX:
                size += _size(self._groups[count].requests)
                count += 1
            groups = self._groups[:count]
            del self._groups[:count]
            requests = _joined(groups)
            self.undecided -= len(requests)
            self.undecided_bytes -= size
            try:
                self._write(requests, partial(_divide, groups))
            except KafkaError as error:
                _divide(groups, [error] * len(requests))

    def refuse(self, error: KafkaError) -> None:
        """Answer all that have gathered with the error: nothing was done."""
        groups, self._groups = self._groups, []
        self.undecided = self.undecided_bytes = 0
        _divide(groups, [error for group in groups for _ in group.requests])


def _divide(groups: Sequence[_Group], answers: Answers) -> None:
    if len(groups) == 1:
        groups[0].reply(answers)
        return
    end = 0
    for group in groups:
        begin, end = end, end + len(group.requests)
        group.reply(answers[begin:end])


def _joined(groups: Sequence[_Group]) -> Sequence[KvPutRequest]:
    if len(groups) == 1:
        return groups[0].requests
    parts = [columns_of(KvPutRequest, group.requests) for group in groups]
    return Columns(
        KvPutRequest, [[*chain.from_iterable(column)] for column in zip(*parts, strict=True)]
    )


def _size(puts: Sequence[KvPutRequest]) -> int:
    _, values = columns_of(KvPutRequest, puts)
    return sum(map(len, values))
