"""The pulling side of replication: at most one Fetch under way, sent only from a durable log.

A Fetch is the acknowledgement: its position says what the replica has on disk (row Q3). Sent from
an unflushed log it would let the leader commit records that a power cut can still take. It also
means that a log is never truncated while an append to it is being flushed.
Source: Raft §5.3 turned round, as in KIP-595.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftctl.errors import ErrorCode, invariant
from raftctl.raft._replica import Replica
from raftctl.raft.batch import Batch, CorruptBatchError, decode_batches
from raftctl.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    OffsetAndEpoch,
)
from raftctl.raft.voters import is_sound_control


@dataclass(slots=True)
class Fetcher:
    """Fetches from one source: records, or first the snapshot that the source named."""

    replica: Replica
    source: NodeId
    in_flight: FetchRequest | FetchSnapshotRequest | None = None
    retry_at_ms: int | None = None
    failures: int = 0
    snapshot_id: OffsetAndEpoch | None = None
    position: int = 0
    """The bytes of the snapshot fetched so far: a failed request continues here, also at a new
    leader."""
    seen_round: int = 0
    """The newest round of reads in the answers of this source."""

    def invariants(self) -> None:
        """Check that one Fetch at most is under way, and that it asks for what is missing here."""
        request = self.in_flight
        invariant(request is None or self.retry_at_ms is None, "one Fetch at most is under way")
        invariant(request is None or request.epoch == self.replica.epoch, "it is of this epoch")
        # Its end was durable when it left, and nothing is appended or cut before its answer.
        fetching = isinstance(request, FetchRequest)
        ends = not fetching or request is None or self.replica.log.durable
        invariant(ends, "what a Fetch under way says is on this disk")

    def deadline_ms(self) -> int | None:
        """Return when to call `fetch` again after a failure; None while the log is flushed."""
        return self.retry_at_ms if self.replica.may_fetch else None

    def fetch(self, now_ms: int) -> None:
        """Send the next Fetch, unless one is under way, or it is too early for it."""
        pausing = self.retry_at_ms is not None and now_ms < self.retry_at_ms
        if self.in_flight is not None or pausing or not self.replica.may_fetch:
            return
        self.retry_at_ms = None
        snapshot_id = self.snapshot_id
        self.in_flight = self._fetch() if snapshot_id is None else self._fetch_snapshot(snapshot_id)
        self.replica.send(self.source, self.in_flight)

    def _fetch(self) -> FetchRequest:
        config = self.replica.config
        return FetchRequest(
            epoch=self.replica.epoch,
            replica=self.replica.local,
            fetch_from=self.replica.log.end,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_wait_ms,
            high_watermark=self.replica.high_watermark,
            fetch_id=self.replica.next_fetch_id(),
            seen_round=self.seen_round,
        )

    def _fetch_snapshot(self, snapshot_id: OffsetAndEpoch) -> FetchSnapshotRequest:
        return FetchSnapshotRequest(
            epoch=self.replica.epoch,
            replica=self.replica.local,
            snapshot_id=snapshot_id,
            position=self.position,
            max_bytes=self.replica.config.snapshot_max_bytes,
            fetch_id=self.replica.next_fetch_id(),
        )

    def want(self, snapshot_id: OffsetAndEpoch | None) -> None:
        """Fetch what is missing of this snapshot; with None, go back to fetching records."""
        self.snapshot_id = snapshot_id
        self.position = 0 if snapshot_id is None else self.replica.has_of(snapshot_id)

    def answers(self, source: NodeId, response: FetchResponse | FetchSnapshotResponse) -> bool:
        """Return whether this answers the Fetch under way, and is no late or repeated answer.

        The id decides, not the offset: the same position may have been fetched twice, and between
        the two this log may have been cut and grown again with other records.
        """
        request = self.in_flight
        repeated = request is not None and response.fetch_id == request.fetch_id
        return repeated and source == self.source

    def failed(self, now_ms: int) -> None:
        """Give the Fetch under way up; the next one waits for a pause."""
        self.in_flight = None
        self.failures += 1
        self.retry_at_ms = now_ms + self.replica.config.backoff_ms(self.failures)

    def ask_another(self, now_ms: int) -> None:
        """Go to a different source, at random: this one neither leads nor knows the leader."""
        self.failed(now_ms)
        self.source = random_source(self.replica, self.source)


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of the epoch."""

    replica: Replica
    fetcher: Fetcher
    fetch_deadline_ms: int
    has_fetched: bool = False

    @property
    def leader_id(self) -> NodeId:
        """The leader that is followed."""
        return self.fetcher.source

    def invariants(self) -> None:
        """Check that this replica follows the one leader of its epoch."""
        self.fetcher.invariants()
        recorded = self.replica.state.leader_id
        invariant(self.leader_id == recorded, "a follower follows the leader it has recorded")
        invariant(self.leader_id != self.replica.node_id, "nobody follows itself")

    def deadline_ms(self) -> int | None:
        """Return when to fetch again after a failure, or to give the leader up.

        None while the own disk is slow: not asked, the leader cannot answer, and a follower that
        deposed it for that would depose the next one as well.
        """
        if not self.replica.may_fetch:
            return None
        retry_at_ms = self.fetcher.deadline_ms()
        if retry_at_ms is None:
            return self.fetch_deadline_ms
        return min(retry_at_ms, self.fetch_deadline_ms)

    def lost_leader(self, now_ms: int) -> bool:
        """Return whether the leader has been silent for the fetch timeout."""
        return self.replica.may_fetch and now_ms >= self.fetch_deadline_ms

    def hears_leader(self, now_ms: int) -> bool:
        """Return whether the leader has answered lately; then no other should be elected (Raft
        §9.6).
        """
        return self.has_fetched and now_ms < self.fetch_deadline_ms

    def flushed(self, now_ms: int) -> None:
        """Fetch on as soon as all of the log, or the piece of the snapshot, is durable."""
        if self.replica.may_fetch:
            self._extend(now_ms)
            self.fetcher.fetch(now_ms)

    def accept(self, response: FetchResponse, now_ms: int) -> None:
        """Take the leader's answer: records, a point to cut at, or a snapshot to fetch first."""
        batches = self._sound_batches(response) if response.error is ErrorCode.NONE else None
        if batches is None:
            if response.error is ErrorCode.NONE:
                self.replica.warn(f"cannot follow {self.leader_id}: its batches do not fit here")
            self.fetcher.failed(now_ms)
            return
        self.fetcher.in_flight = None
        self.fetcher.failures = 0
        self.fetcher.seen_round = response.round
        self.has_fetched = True
        self._extend(now_ms)
        if response.snapshot_id is not None:
            self._want_snapshot(response.snapshot_id, now_ms)
        elif response.diverging is not None:
            self._truncate(response.diverging, now_ms)
        else:
            for batch in batches:
                self.replica.append(batch)
            # The leader's high watermark may lie beyond what it has sent so far.
            committed = min(response.high_watermark, self.replica.log.end_offset)
            self.replica.advance_high_watermark(committed)
        self.fetcher.fetch(now_ms)

    def _truncate(self, diverging: OffsetAndEpoch, now_ms: int) -> None:
        """Cut what the leader does not have; never what is committed, even if a leader asks."""
        replica = self.replica
        point = replica.log.truncation_point(diverging)
        if replica.high_watermark <= point < replica.log.end_offset:
            replica.truncate(point)
            return
        replica.warn(
            f"cannot follow {self.leader_id}: it names {diverging} as where the logs part, but all "
            f"below {replica.high_watermark} is committed here, and the log ends at "
            f"{replica.log.end}"
        )
        self.fetcher.failed(now_ms)

    def _want_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """Fetch the snapshot first: the leader's log starts after the point where this one ends."""
        if snapshot_id.offset <= self.replica.high_watermark:
            self.fetcher.failed(now_ms)  # the leader has that committed record, as this one does
        else:
            self.fetcher.want(snapshot_id)

    def accept_chunk(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        """Save a piece of the snapshot, or fetch records again if the leader has it no more.

        Pieces must follow each other: a gap would show only when the whole file is checked, after
        megabytes fetched in vain.
        """
        fetcher = self.fetcher
        end = fetcher.position + len(response.data)
        sound = response.error is ErrorCode.NONE and response.position == fetcher.position
        if fetcher.snapshot_id is None or not sound or not response.data or end > response.size:
            self.replica.forget_part()
            fetcher.want(None)
            fetcher.failed(now_ms)
            return
        fetcher.in_flight = None
        fetcher.failures = 0
        self.has_fetched = True
        self._extend(now_ms)
        self.replica.save_chunk(
            fetcher.snapshot_id, fetcher.position, response.data, last=end == response.size
        )
        fetcher.position = end

    def _extend(self, now_ms: int) -> None:
        self.fetch_deadline_ms = now_ms + self.replica.config.fetch_timeout_ms

    def _sound_batches(self, response: FetchResponse) -> list[Batch] | None:
        """Return the batches, or None if a checksum or their order is wrong (row Q12)."""
        try:
            batches = [batch for _, batch in decode_batches(response.batches)]
        except CorruptBatchError:
            return None
        end = self.replica.log.end
        for batch in batches:
            in_order = end.epoch <= batch.epoch <= response.epoch
            voters_sound = not batch.control or is_sound_control(batch.payload)
            if batch.base_offset != end.offset or not in_order or not voters_sound:
                return None
            end = OffsetAndEpoch(batch.end_offset, batch.epoch)
        return batches


def random_source(replica: Replica, previous: NodeId | None) -> NodeId:
    """Return the replica to ask next: not the previous one again if there are others.

    Bootstrap servers are among them: all voters of this log may be gone, or there is no log yet.
    """
    sources = (*replica.other_voters(), *replica.config.bootstrap_ids)
    invariant(bool(sources), "an observer knows whom to ask")
    return replica.random.choice([one for one in sources if one != previous] or sources)
