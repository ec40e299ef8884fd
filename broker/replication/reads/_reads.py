"""The answers to Fetch and ListOffsets, from memory where possible (rows R7, R10).

`Reads` is the reading half of a Fetch, which waits where there are too few bytes. In a fetch
session only the dirty partitions are read (`FetchSessionIndex`): an idle Fetch waits for the others
without looking at them.

`OffsetLookups` finds offsets by timestamp and by leader epoch. Leader epochs and the ends of logs
are in memory. A timestamp may have to be looked up in pages that are not. A worker reads those
first, so that the disk does not stall the event loop. It also opens batches that are compressed or
have many records.

`BrokerDirectory` knows the other brokers: where a consumer may read, and which replica may join.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches import records
from broker.log.batches.validation import AT_ONCE_RECORDS_MAX
from broker.replication.purgatory import DelayedFetch, is_enough
from broker.replication.reads.cold_reads import WARMINGS_MAX
from broker.types import CONSUMER, EpochEndOffset, FetchResult, OffsetResult
from raftctl.config.keys import RACK_AWARE_SELECTOR
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.log.batches.record_batch import BatchHeader
    from broker.log.batches.records import TimestampOffset
    from broker.replication.partition import FetchSessionIndex, Partition, Throttle
    from broker.replication.purgatory import Purgatory
    from broker.replication.reads.cold_reads import ColdReads
    from broker.turns import Turn
    from broker.types import FetchParams, FetchPartition, OffsetLookup, TopicPartition
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.runtime.api import Buffer, Worker

    _Call = Callable[[], TimestampOffset | KafkaError | None]

_NO_EPOCH = EpochEndOffset(-1, -1)


class BrokerDirectory:
    """The other brokers, as `image` has them, which its owner keeps up to date."""

    def __init__(self, inter_broker_listener: str) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._listener = inter_broker_listener

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the address for other brokers; None if it is unknown."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._listener)

    def lives(self, broker_id: int) -> bool:
        """Return whether the broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether an ISR may include the broker; -1 for a follower without an epoch
        (KIP-841).
        """
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.broker_epoch)


class ReplicaView(NamedTuple):
    """A replica from which a consumer could read, as the leader knows it."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms: int
    """The last time at which it had everything that the leader had."""


def closest(client_rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """Return the broker id of the replica to read from; the client's rack is empty if it has none.

    The rules are those of Apache Kafka's rack-aware selector (KIP-392). The leader serves, if it is
    in the client's rack or no replica is. Otherwise the replica in the rack with the longest log
    does, then the one that was caught up last, then the lowest id. The followers are in sync and
    have the record that the client wants next.
    """
    near = [replica for replica in followers if replica.rack == client_rack]
    if not client_rack or leader.rack == client_rack or not near:
        return leader.broker_id
    best = max(near, key=lambda one: (one.log_end_offset, one.caught_up_ms, -one.broker_id))
    return best.broker_id


class Reads:
    """The reading half of Fetch; the ReplicaManager handles a follower's position."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Mapping[TopicPartition, Partition],
        absence: Callable[[TopicPartition], ErrorCode],
        cold_reads: ColdReads,
        sending: Throttle,
        brokers: BrokerDirectory,
        waiting: Purgatory[list[FetchResult]],
        turn: Turn,
    ) -> None:
        """`replicas` is the broker's own table; `absence` returns why a partition is not in it."""
        self._config = config
        self._broker_id = config.node_id
        self._replicas = replicas
        self._absence = absence
        self._cold_reads = cold_reads
        self._sending = sending
        self._brokers = brokers
        self._waiting = waiting
        self._turn = turn
        self._selects = config.replica_selector_class == RACK_AWARE_SELECTOR
        self._loop = asyncio.get_running_loop()

    def fetch(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """See `ReplicaManager.fetch`."""
        if not self._cold_reads.is_cold(params, partitions):
            return self._fetch_now(params, partitions, index)
        # A task, so that a client that leaves ends it.
        return self._loop.create_task(self._fetch_warmed(params, partitions, index))

    async def _fetch_warmed(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
    ) -> list[FetchResult]:
        await self._cold_reads.warm(params, partitions)
        found = self._fetch_now(params, partitions, index)
        return found if isinstance(found, list) else await found

    def _fetch_now(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        urgent = self._selects and self._must_notify(params.replica_id, partitions)
        results = self._read(params, partitions)
        if any(result.records for result in results):
            self._cold_reads.read_ahead(params, partitions)
        # A Fetch that names nothing waits for nothing, unless its session has idle partitions.
        nothing = not partitions and (index is None or not index.has_idle)
        at_once = nothing or urgent or params.max_wait_ms <= 0
        if at_once or is_enough(results, params.min_bytes):
            self._end(params, partitions, index, results)
            return results
        operation = DelayedFetch(
            self._turn,
            params,
            partitions,
            results,
            self._replicas,
            partial(self._read_last, params, partitions, index),
            self.must_wait,
            notifies_high_watermarks=self._selects,
        )
        watched = (wanted.partition for wanted in partitions)
        if index is not None:
            index.wait(partial(self._join, operation))
        return self._waiting.wait(operation, watched, params.max_wait_ms)

    def _join(self, operation: DelayedFetch, wanted: FetchPartition) -> None:
        """Add a partition that became dirty while the Fetch waits."""
        operation.reads_more(wanted)
        self._waiting.watch(operation, wanted.partition)

    def _read_last(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
    ) -> list[FetchResult]:
        """Return the answer of a Fetch that has waited: everything is read again.

        What was found before the wait may be out of date, and a buffer held meanwhile would keep
        the memory of every waiting consumer.
        """
        results = self._read(params, partitions)
        self._end(params, partitions, index, results)
        return results

    def _end(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
        results: Sequence[FetchResult],
    ) -> None:
        """Mark the partitions idle of which these results leave the reader nothing to ask for."""
        # Where it may be sent to another replica, that depends on more than this partition.
        if index is None or not index.end(partitions) or not params.leader_only:
            return
        for wanted, result in zip(partitions, results, strict=True):
            if not (result.error or result.records or result.diverging):
                self._replicas[wanted.partition].mark_idle(wanted, params, index)

    def _must_notify(self, replica_id: int, partitions: Sequence[FetchPartition]) -> bool:
        """Return whether a follower waits for a high watermark that its own consumers should
        see.
        """
        known = (self._replicas.get(wanted.partition) for wanted in partitions)
        return any(h is not None and h.is_behind_in_high_watermark(replica_id) for h in known)

    def _read(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> list[FetchResult]:
        """Read from each partition, beginning with number `params.first`, within `max_bytes`.

        The first batch is returned whole, whatever its size: a reader whose limit is below it would
        never get on (KIP-74). The first partition changes from Fetch to Fetch; otherwise those at
        the end would starve while those before fill the response.
        """
        count = len(partitions)
        results: dict[int, FetchResult] = {}
        left, min_one = params.max_bytes, True
        for step in range(count):
            index = (params.first + step) % count
            result = self._read_one(params, partitions[index], max(left, 0), min_one)
            results[index] = result
            # Else a client's buffer, sized by its limit, would never hold the response.
            within = result.size <= max(left, 0) or min_one
            invariant(within, "only the first batch of a response may exceed its limit")
            left -= result.size
            min_one = min_one and not result.records
        return [results[index] for index in range(count)]

    def _read_one(
        self, params: FetchParams, wanted: FetchPartition, max_bytes: int, min_one: bool
    ) -> FetchResult:
        replica = self._replicas.get(wanted.partition)
        if replica is None:
            return FetchResult(self._absence(wanted.partition))
        if params.replica_id != CONSUMER and not replica.state.knows(params.replica_id):
            error = replica.state.check_leader(wanted.current_leader_epoch)
            return FetchResult(error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # Records are not read for a consumer that is sent elsewhere: it would drop them.
        preferred = self._preferred(replica, wanted, params)
        if preferred != self._broker_id:
            return replica.sends_to(preferred)
        if self.must_wait(replica, params.replica_id):
            return replica.fetch(wanted, params, max_bytes=0, min_one=False)
        result = replica.fetch(wanted, params, max_bytes=max_bytes, min_one=min_one)
        if params.replica_id != CONSUMER and result.size and replica.sends_throttled:
            self._sending.record(result.size, self._now_ms())
        return result

    def must_wait(self, replica: Partition, replica_id: int) -> bool:
        """Return whether a follower gets nothing of this partition now, to keep to the rate.

        A follower in sync never waits, because clients wait for it.
        """
        if replica_id == CONSUMER or replica_id in replica.state.isr or not replica.sends_throttled:
            return False
        return self._sending.is_exceeded(self._now_ms())

    def _preferred(self, replica: Partition, wanted: FetchPartition, params: FetchParams) -> int:
        """Return the replica from which a consumer should read; this one unless it leads."""
        if params.leader_only or not params.client_rack or replica.fetch_error(wanted, params):
            return self._broker_id
        if not replica.state.is_leader:
            return self._broker_id
        end = replica.log.log_end_offset
        leader = ReplicaView(self._broker_id, self._config.broker_rack, end, self._now_ms())
        brokers = self._brokers.image.brokers
        followers = [
            ReplicaView(follower, brokers[follower].rack, one.log_end_offset, one.had_all_ms)
            for follower, one in replica.state.readable_followers(wanted.fetch_offset).items()
            if follower in brokers and brokers[follower].active
        ]
        return closest(params.client_rack, leader, followers)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


class _ToOpenError(Exception):
    """A batch that a worker must search before the lookup can go on."""

    def __init__(self, key: tuple[object, ...], call: _Call) -> None:
        super().__init__()
        self.key = key
        self.call = call


class _Searches:
    """The worker's findings in the batches of one lookup.

    The lookup begins again with each finding: the log may have changed while the worker searched.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[object, ...], TimestampOffset | KafkaError | None] = {}

    def search(
        self, batch: Buffer, header: BatchHeader, timestamp: int, offset: int
    ) -> TimestampOffset | None:
        """See `records.Search`; raises _ToOpenError for what it does not know and may take long."""
        if not header.codec and header.record_count <= AT_ONCE_RECORDS_MAX:
            return records.first_at_or_after(batch, header, timestamp, offset)
        key = (header, timestamp, offset)
        if key not in self.found:
            # The log may be cut meanwhile: these bytes are the worker's own.
            raise _ToOpenError(key, partial(_searched, bytes(batch), header, timestamp, offset))
        found = self.found[key]
        if isinstance(found, KafkaError):
            raise found
        return found


def _searched(
    batch: bytes, header: BatchHeader, timestamp: int, offset: int
) -> TimestampOffset | KafkaError | None:
    try:
        return records.first_at_or_after(batch, header, timestamp, offset)
    except KafkaError as error:
        return error


class OffsetLookups:
    """The lookups of one broker: ListOffsets by time, and OffsetForLeaderEpoch.

    By time, the answer is the first record that is not older. A consumer's is below the high
    watermark or the last stable offset, as its reads are.
    """

    def __init__(
        self,
        worker: Worker,
        replicas: Mapping[TopicPartition, Partition],
        absence: Callable[[TopicPartition], ErrorCode],
    ) -> None:
        """`replicas` is the broker's own table; `absence` says why a partition is not in it."""
        self._worker = worker
        self._replicas = replicas
        self._absence = absence

    def by_time(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Return results in the order of the lookups, later if a worker has to read first."""
        if self._cold(lookups) is None:
            with contextlib.suppress(_ToOpenError):
                return [self._find(lookup, replica_id, _Searches()) for lookup in lookups]
        # A task, so that a client that leaves ends it.
        return asyncio.get_running_loop().create_task(self._warmed(lookups, replica_id))

    def by_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Return the end of each (partition, current leader epoch, leader epoch), in order."""
        results = []
        for partition, current_leader_epoch, leader_epoch in lookups:
            replica = self._replicas.get(partition)
            if replica is None:
                results.append((self._absence(partition), _NO_EPOCH))
            else:
                results.append(replica.end_offset_for_epoch(current_leader_epoch, leader_epoch))
        return results

    def _find(self, lookup: OffsetLookup, replica_id: int, searches: _Searches) -> OffsetResult:
        replica = self._replicas.get(lookup.partition)
        if replica is None:
            return OffsetResult(self._absence(lookup.partition))
        return replica.find_offset(lookup, replica_id, searches.search)

    async def _warmed(self, lookups: Sequence[OffsetLookup], replica_id: int) -> list[OffsetResult]:
        for _ in range(WARMINGS_MAX):
            call = self._cold(lookups)
            if call is None:
                break
            # If the disk refuses, so it will when it is read.
            with contextlib.suppress(OSError):
                await self._worker.submit(call)
        return [await self._found(lookup, replica_id) for lookup in lookups]

    async def _found(self, lookup: OffsetLookup, replica_id: int) -> OffsetResult:
        searches = _Searches()
        while True:
            try:
                return self._find(lookup, replica_id, searches)
            except _ToOpenError as wanted:
                # Else the look-up would ask for it again, for ever.
                invariant(wanted.key not in searches.found, "a worker searches a batch once")
                searches.found[wanted.key] = await self._worker.submit(wanted.call)

    def _cold(self, lookups: Sequence[OffsetLookup]) -> Callable[[], None] | None:
        """Return the worker's next call; None if everything is in memory."""
        for lookup in lookups:
            replica = self._replicas.get(lookup.partition)
            call = None if replica is None else replica.warm_lookup(lookup)
            if call is not None:
                return call
        return None

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
