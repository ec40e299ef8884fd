"""`Partition`: one partition's state and its log, put together.

Does what one request asks of one partition, and moves the high watermark along. It waits for
nothing and wakes nobody: each method returns what the ReplicaManager must know for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches.validation import NotOneBatchError, RecordsRefusedError
from broker.log.segments import Limits
from broker.replication.partition._partition_state import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    PartitionState,
)
from broker.replication.partition._throttle import names
from broker.replication.partition._transaction_guards import TransactionGuards
from broker.types import (
    ALL_IN_SYNC,
    ANY_REPLICA,
    CONSUMER,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AppendResult,
    EndMarker,
    EpochEndOffset,
    FetchParams,
    FetchPartition,
    FetchResult,
    LeaderHint,
    OffsetLookup,
    OffsetResult,
    OwnBatch,
    ProducerFacts,
    TopicPartition,
)
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from broker.log.batches.records import Search
    from broker.log.partition_log import PartitionLog
    from broker.log.segments.aborted_index import AbortedTransaction
    from broker.metrics import TopicCounts
    from broker.replication.partition._fetch_session_index import FetchSessionIndex
    from broker.replication.partition._transaction_guards import Guard, Sender
    from broker.types import Appendable, FetchKey
    from raftctl.metadata.image import PartitionImage
    from raftctl.runtime.api import Buffer, Piece

_WITHOUT_LOG_START = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _shows_log_start(refusal: KafkaError) -> bool:
    """Return whether the response has the log start.

    A producer compares it with its last offset, to distinguish expired from lost records (KIP-360).
    """
    return refusal.code not in _WITHOUT_LOG_START and not isinstance(refusal, NotOneBatchError)


class Fetched(NamedTuple):
    """Response of the leader to a follower for one partition."""

    records: Buffer
    high_watermark: int
    log_start_offset: int


class Partition:
    """A partition of which this broker has a replica."""

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        state: PartitionState,
        log: PartitionLog,
        counts: TopicCounts,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.state = state
        self.log = log
        self.counts = counts
        """Of its topic."""
        self.guards = TransactionGuards()
        self.idle_sessions: dict[tuple[FetchSessionIndex, FetchKey], None] = {}
        """The fetch sessions whose readers have all that they may see of this partition."""

    def invariants(self) -> None:
        """Check that state and log agree: both keep the high watermark."""
        state, log = self.state, self.log
        state.invariants()
        if log.offline is not None:
            return
        log.invariants()
        invariant(
            state.high_watermark == log.high_watermark, "state and log know what is committed"
        )
        ends = (one.log_end_offset for one in state.followers.values())
        invariant(all(one <= log.log_end_offset for one in ends), "no follower has more")
        invariant(state.epoch_start_offset <= log.log_end_offset, "a leader does not cut its log")
        epochs = state.leader_epoch, log.epochs.latest
        invariant(epochs[1] <= epochs[0], "no record is of a leader epoch to come")
        leads = not state.is_leader or epochs[0] == epochs[1]
        invariant(leads, "a leader writes in its own epoch")

    def mark_dirty(self) -> None:
        """Mark this partition dirty in every session: what its readers may see has changed."""
        for index, key in list(self.idle_sessions):
            index.mark_dirty(key)

    def hint(self) -> LeaderHint:
        """Return the leader as this broker knows it."""
        return LeaderHint(self.state.leader_id, self.state.leader_epoch)

    def hint_for(self, error: ErrorCode) -> LeaderHint | None:
        """Return the leader, with the errors that send a client to another one."""
        return self.hint() if error in _HINTED else None

    def stay_offline(self, image: PartitionImage) -> None:
        """Without a log it neither leads nor copies, but sends clients to who leads."""
        if image.leader == self.state.broker_id:
            self.state.resign()
        else:
            self.state.become_follower(image)

    # --- leading --------------------------------------------------------------------------------

    def append(
        self, what: Appendable, acks: int, now_ms: int, wall_ms: int
    ) -> tuple[AppendResult, int]:
        """Append a produced batch, or a marker; return the result, and the offset after it or -1.

        Errors of the result: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or what is wrong with the
        batch or the marker.
        """
        state, log = self.state, self.log
        try:
            if not state.is_leader:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if acks == ALL_IN_SYNC and state.is_under_min_insync:
                needed = state.effective_min_insync
                text = f"{len(state.isr)} replicas in sync, {needed} are required"
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
            if isinstance(what, KafkaError):
                raise what
            if isinstance(what, EndMarker):
                done = log.append_marker(what, state.leader_epoch, wall_ms)
                self.guards.ended(what)
            elif isinstance(what, OwnBatch):
                done = log.append_as_leader(
                    what.data, state.leader_epoch, wall_ms, is_sequenced=False
                )
            else:
                done = log.append_as_leader(what, state.leader_epoch, wall_ms)
        except KafkaError as error:
            # One partition's refusal is no reason to refuse the others of the request.
            hint = self.hint_for(error.code)
            start = log.log_start_offset if _shows_log_start(error) else UNKNOWN_OFFSET
            bad = error.records if isinstance(error, RecordsRefusedError) else {}
            self.counts.refused(error.code)
            return AppendResult(error.code, -1, -1, start, error.message, hint, bad), -1
        messages = 0 if done.duplicate else done.next_offset - done.base_offset
        self.counts.appended(messages, done.size)
        self.advance(now_ms)
        start = log.log_start_offset
        result = AppendResult(ErrorCode.NONE, done.base_offset, done.log_append_time_ms, start)
        return result, done.next_offset

    # --- beginning transactions -----------------------------------------------------------------

    def has_open(self, sender: Sender) -> bool:
        """Return whether the producer has a transaction open here, in this epoch."""
        known = self.log.producers.get(sender.producer_id)
        return known is not None and known.has_open(sender.producer_epoch)

    def begin_check(self, sender: Sender) -> Guard | None:
        """Return what a batch needs that may begin a transaction; None if it may be appended as it
        is.
        """
        if not self.state.is_leader or self.has_open(sender):
            return None
        return self.guards.begin(sender, self.state.leader_epoch)

    def end_check(self, sender: Sender, guard: Guard, *, own_epoch: bool = False) -> None:
        """Return whether the batch may be appended, in this turn, that the coordinator has agreed
        to.

        `own_epoch`: the transaction has its epoch for itself, so that its sequence begins at 0.
        Raises KafkaError: NOT_ENOUGH_REPLICAS if what it said may not hold any more, or
        OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch still waits, or is missing. The first two
        are sent again.
        """
        if self.has_open(sender):
            return
        if not self.guards.holds(sender, guard, self.state.leader_epoch):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction may have ended")
        if sender.sequence > guard.lowest_sequence:
            text = f"sequence {sender.sequence}, but {guard.lowest_sequence} waits before it"
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        if own_epoch and sender.sequence > 0 and self.log.producers.get(sender.producer_id) is None:
            text = f"sequence {sender.sequence} is the transaction's first here, 0 is expected"
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)
        self.guards.drop(sender)

    # --- deleting and committing ------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Hide what is below `offset`, -1 for all that is committed; return the log start.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION where records are only ever
        compacted, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        error = self.state.check_leader(UNKNOWN_EPOCH)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy does not have delete")
        return self.log.delete_records(offset)

    def low_watermark(self, lives: Callable[[int], bool]) -> tuple[ErrorCode, int]:
        """Return the least log start of the replicas on brokers that live; -1 while one is not
        known.
        """
        error = self.state.check_leader(UNKNOWN_EPOCH)
        if error is not ErrorCode.NONE:
            return error, UNKNOWN_OFFSET
        return error, self.state.low_watermark(self.log.log_start_offset, lives)

    def advance(self, now_ms: int, by: int | None = None) -> bool:
        """Move the high watermark as far as the replicas allow; return whether it moved.

        `by` is the replica that has more than before, if one has.
        """
        log = self.log
        # Else a replica has what its disk has, the leader no less than the others.
        own_end = log.recovery_point if self.awaits_flush else log.log_end_offset
        moved = self.state.advance_high_watermark(own_end, now_ms, by)
        if moved:
            self._keep_high_watermark()
        return moved

    @property
    def awaits_flush(self) -> bool:
        """True if this replica has records that count only once they are flushed.

        With `flush.on.ack` these are all records, else `flush.messages` of them or more.
        """
        log = self.log
        return log.is_flush_due or (log.config.flush_on_ack and log.is_dirty)

    def follower_fetched(
        self, wanted: FetchPartition, params: FetchParams, now_ms: int
    ) -> tuple[ErrorCode, bool]:
        """Note a follower's position; return its error, and whether the high watermark moved.

        It counts only once its log is known to agree with this one.
        """
        error = self.fetch_error(wanted, params)
        if error is not ErrorCode.NONE or self.diverging(wanted) is not None:
            return error, False
        error = self.state.follower_fetched(
            params.replica_id,
            fetch_offset=wanted.fetch_offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=params.replica_epoch,
            log_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
        )
        return error, error is ErrorCode.NONE and self.advance(now_ms, params.replica_id)

    @property
    def sends_throttled(self) -> bool:
        """True if this replica, as a leader, is to send at a bounded rate (KIP-73)."""
        named = self.log.config.leader_replication_throttled_replicas
        return names(named, self.partition.partition, self.state.broker_id)

    @property
    def fetches_throttled(self) -> bool:
        """True if this replica, as a follower, is to fetch at a bounded rate (KIP-73)."""
        named = self.log.config.follower_replication_throttled_replicas
        return names(named, self.partition.partition, self.state.broker_id)

    # --- reading --------------------------------------------------------------------------------

    def limit_for(self, replica_id: int, *, read_committed: bool = False) -> int:
        """Return the offset below which this reader may see records."""
        if replica_id != CONSUMER:
            return self.log.log_end_offset
        return self.last_stable_offset if read_committed else self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended for good."""
        return min(self.state.high_watermark, self.log.last_stable_offset)

    def fetch(
        self, wanted: FetchPartition, params: FetchParams, *, max_bytes: int, min_one: bool
    ) -> FetchResult:
        """Return records for a consumer or a follower, or why there are none."""
        error = self.fetch_error(wanted, params)
        if error is not ErrorCode.NONE:
            return FetchResult(error, current_leader=self.hint_for(error))
        records: Sequence[Piece] = ()
        aborted: Sequence[AbortedTransaction] = ()
        diverging = self.diverging(wanted)
        if diverging is None:
            limits = Limits(
                max_bytes=min(max_bytes, wanted.max_bytes),
                up_to_offset=self.limit_for(
                    params.replica_id, read_committed=params.read_committed
                ),
                min_one=min_one,
            )
            committed = params.replica_id != CONSUMER or (
                limits["up_to_offset"] <= self.state.high_watermark
            )
            # What is above may be cut off when another replica takes the lead.
            invariant(committed, "a consumer sees only what is committed")
            try:
                records = self.log.to_send(wanted.fetch_offset, **limits)
                if params.read_committed:
                    aborted = self.log.aborted_in(wanted.fetch_offset, **limits)
                    for one in aborted:
                        # A consumer drops the producer's records from `first_offset` on: one that
                        # begins later would hide records of the producer's next transaction.
                        covers = one.first_offset < limits["up_to_offset"]
                        covers = covers and one.last_offset >= wanted.fetch_offset
                        invariant(covers, "an aborted transaction has records in what is read")
            except KafkaError as failed:
                return FetchResult(failed.code)
        self.state.note_sent(params.replica_id)
        return FetchResult(
            ErrorCode.NONE,
            high_watermark=self.state.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log.log_start_offset,
            records=records,
            diverging=diverging,
            aborted_transactions=tuple((one.producer_id, one.first_offset) for one in aborted)
            if params.read_committed
            else None,
        )

    def mark_idle(
        self, wanted: FetchPartition, params: FetchParams, index: FetchSessionIndex
    ) -> None:
        """After a Fetch that found nothing, mark this partition idle if the next would not, either.

        Only a change makes it dirty again, so the reader must have seen all that there is.
        """
        if wanted.fetch_offset < self.limit_for(
            params.replica_id, read_committed=params.read_committed
        ):
            return
        if params.replica_id == CONSUMER:
            index.mark_idle(self, wanted, None)
            return
        follower = self.state.idle_follower(
            params.replica_id, wanted.fetch_offset, params.replica_epoch
        )
        if follower is not None:
            index.mark_idle(self, wanted, follower)

    def available_bytes(self, wanted: FetchPartition, params: FetchParams, enough: int) -> int:
        """Return how much a fetch would find, at least if it is less than `enough`."""
        limit = self.limit_for(params.replica_id, read_committed=params.read_committed)
        if limit <= wanted.fetch_offset or enough <= 1:
            return int(limit > wanted.fetch_offset)
        return min(self.log.bytes_between(wanted.fetch_offset, limit), wanted.max_bytes)

    def diverging(self, wanted: FetchPartition) -> EpochEndOffset | None:
        """Return where a follower's log departs from this one, by its last epoch (KIP-595)."""
        if wanted.last_fetched_epoch < 0:
            return None
        end = self.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        same = end.leader_epoch == wanted.last_fetched_epoch
        return None if same and wanted.fetch_offset <= end.end_offset else end

    def sends_to(self, replica_id: int) -> FetchResult:
        """Return the response that directs a consumer to another replica (KIP-392)."""
        return FetchResult(
            ErrorCode.NONE,
            high_watermark=self.state.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log.log_start_offset,
            preferred_read_replica=replica_id,
        )

    def is_behind_in_high_watermark(self, replica_id: int) -> bool:
        """Return whether that follower knows an older high watermark than this leader's."""
        follower = self.state.followers.get(replica_id)
        return follower is not None and follower.sent_high_watermark < self.state.high_watermark

    def fetch_error(self, wanted: FetchPartition, params: FetchParams) -> ErrorCode:
        """Return the error of a Fetch, whatever the log holds; NONE if this replica serves it."""
        if wanted.topic_id is not None and wanted.topic_id != self.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if not params.leader_only and not self.state.is_leader:
            return self._follower_error(wanted)
        error = self.state.check_leader(wanted.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        if params.may_be_deposed and self._is_beyond(wanted, params):
            # A newer leader may have it: a consumer that resets its offset would skip some.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if wanted.last_fetched_epoch < 0:
            return error
        if wanted.last_fetched_epoch > self.log.epochs.latest:
            # It cannot have copied that from this leader's history: let it start from the ends.
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return error

    def _is_beyond(self, wanted: FetchPartition, params: FetchParams) -> bool:
        return params.replica_id == CONSUMER and wanted.fetch_offset > self.log.log_end_offset

    def _follower_error(self, wanted: FetchPartition) -> ErrorCode:
        """Return the error of a consumer's read here, while another replica leads (KIP-392)."""
        if self.log.offline is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        error = self.state.check_epoch(wanted.current_leader_epoch)
        if error is ErrorCode.NONE and wanted.fetch_offset > self.log.log_end_offset:
            # The leader may have it: whether it is out of range this replica cannot say.
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return error

    # --- offsets --------------------------------------------------------------------------------

    def find_offset(self, lookup: OffsetLookup, replica_id: int, search: Search) -> OffsetResult:
        """Answer ListOffsets; to `ANY_REPLICA` a follower gives the ends of its log, too."""
        if replica_id != ANY_REPLICA or lookup.timestamp not in (EARLIEST, LATEST):
            error = self.state.check_leader(lookup.current_leader_epoch)
            if error is not ErrorCode.NONE:
                return OffsetResult(error)
        if lookup.timestamp == EARLIEST:
            return self._offset(self.log.log_start_offset)
        limit = self.limit_for(replica_id, read_committed=lookup.read_committed)
        if lookup.timestamp != LATEST:
            try:
                if lookup.timestamp == MAX_TIMESTAMP:
                    found = self.log.newest(search)
                else:
                    found = self.log.first_at_or_after(lookup.timestamp, search)
            except KafkaError as failed:
                return OffsetResult(failed.code)
            if found is None:
                return OffsetResult(ErrorCode.NONE)
            if found.offset < limit:
                return self._offset(found.offset, found.timestamp)
        if replica_id == CONSUMER and not self.state.knows_committed_end:
            return OffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self._offset(limit) if lookup.timestamp == LATEST else OffsetResult(ErrorCode.NONE)

    def warm_lookup(self, lookup: OffsetLookup) -> Callable[[], None] | None:
        """Return what a worker must call before `find_offset`; None if that reads nothing cold."""
        by_time = lookup.timestamp == MAX_TIMESTAMP or lookup.timestamp >= 0
        if not by_time or self.state.check_leader(lookup.current_leader_epoch):
            return None
        wanted = None if lookup.timestamp == MAX_TIMESTAMP else lookup.timestamp
        return self.log.warm_lookup(wanted)

    def _offset(self, offset: int, timestamp: int = -1) -> OffsetResult:
        log = self.log
        within = log.log_start_offset <= offset <= log.log_end_offset
        invariant(within, "an offset that is found is in the log")
        return OffsetResult(ErrorCode.NONE, offset, timestamp, log.epochs.epoch_of(offset))

    def end_offset_for_epoch(
        self, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[ErrorCode, EpochEndOffset]:
        """Answer OffsetForLeaderEpoch for this partition."""
        error = self.state.check_leader(current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error, EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET)
        return error, self.log.end_offset_for_epoch(leader_epoch)

    def producers(self) -> tuple[ErrorCode, list[ProducerFacts]]:
        """Answer DescribeProducers for this partition."""
        error = self.state.check_leader(UNKNOWN_EPOCH)
        if error is not ErrorCode.NONE:
            return error, []
        return error, [
            ProducerFacts(
                producer_id,
                one.epoch,
                one.last_sequence,
                one.timestamp,
                one.coordinator_epoch,
                one.open_from,
            )
            for producer_id, one in self.log.producers.items()
        ]

    # --- following ------------------------------------------------------------------------------

    def append_fetched(self, fetched: Fetched) -> bool:
        """Append what the leader sent; return whether this brought records or a new bound.

        Raises KafkaError(CORRUPT_MESSAGE or KAFKA_STORAGE_ERROR), good batches before appended.
        """
        changed = False
        if len(fetched.records):
            changed = self.log.append_as_follower(fetched.records) > 0
        end = self.log.log_end_offset
        if self.state.follow_high_watermark(fetched.high_watermark, end):
            self._keep_high_watermark()
            changed = True
        if self.log.log_start_offset < fetched.log_start_offset <= end:
            self.log.advance_log_start(fetched.log_start_offset)
            self.state.log_started_at(fetched.log_start_offset)
        return changed

    def truncate_to_agree(self, diverging: EpochEndOffset) -> bool:
        """Cut the log where the leader's departs (never at a high watermark, row R4).

        Returns whether records were cut.
        """
        point = self.log.epochs.truncation_point(diverging, self.log.log_end_offset)
        return self._truncated(self.log.truncate_to(point))

    def align_with(self, leader_start: int, leader_end: int) -> bool:
        """After OFFSET_OUT_OF_RANGE: cuts to the leader's end, or starts again at its start.

        Returns whether records were cut.
        """
        if self.log.log_end_offset > leader_end:
            return self._truncated(self.log.truncate_to(leader_end))
        if self.log.log_end_offset < leader_start:
            self.log.restart_at(leader_start)
            self.state.log_started_at(leader_start)
            return True
        return False

    def _truncated(self, shorter: bool) -> bool:
        self.state.truncated(self.log.log_end_offset)
        return shorter

    def _keep_high_watermark(self) -> None:
        self.log.high_watermark = self.state.high_watermark
        self.log.producers.prune_undo(self.state.high_watermark)
