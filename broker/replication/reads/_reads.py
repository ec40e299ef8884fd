"""The reading half of a Fetch, which waits where there are too few bytes (rows R7, R10).

In a fetch session only the dirty partitions are read (`FetchSessionIndex`): an idle Fetch waits for
the others without looking at them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.replication.purgatory import DelayedFetch, is_enough
from broker.types import CONSUMER, FetchResult
from raftctl.config import RACK_AWARE_SELECTOR
from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import FetchSessionIndex, Partition, Throttle
    from broker.replication.purgatory import Purgatory
    from broker.replication.reads._broker_directory import BrokerDirectory
    from broker.replication.reads.cold_reads import ColdReads
    from broker.types import FetchParams, FetchPartition, TopicPartition
    from raftctl.config import NodeConfig


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
        self._cold_reads.read_ahead(params, partitions)
        nothing = not partitions and (index is None or not index.has_idle)
        at_once = nothing or urgent or params.max_wait_ms <= 0
        if at_once or is_enough(results, params.min_bytes):
            self._end(params, partitions, index, results)
            return results
        operation = DelayedFetch(
            self._loop,
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
        operation.reads_more(wanted)
        self._waiting.watch(operation, wanted.partition)

    def _read_last(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None,
    ) -> list[FetchResult]:
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
        count = len(partitions)
        results: dict[int, FetchResult] = {}
        left, min_one = params.max_bytes, True
        for step in range(count):
            index = (params.first + step) % count
            result = self._read_one(params, partitions[index], max(left, 0), min_one)
            results[index] = result
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
