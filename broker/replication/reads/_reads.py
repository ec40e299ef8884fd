"""Reads what a Fetch asks for, and waits where there is too little (rows R7, R10).

With a session only its partitions with news are read (`session_news.py`): an idle Fetch waits for
the others without a look at them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.replication.purgatory import DelayedFetch, is_enough
from broker.replication.reads._replica_selector import ReplicaView, closest
from broker.types import CONSUMER, FetchResult
from raftctl.config import RACK_AWARE_SELECTOR
from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import HostedPartition, SessionNews, Throttles
    from broker.replication.purgatory import Purgatory
    from broker.replication.reads._broker_directory import Neighbours
    from broker.replication.reads.cold_reads import ColdReads
    from broker.types import FetchParams, FetchPartition, TopicPartition
    from raftctl.config import NodeConfig


class Reads:
    """The reading half of Fetch; what a follower's Fetch says is the ReplicaManager's affair."""

    def __init__(
        self,
        config: NodeConfig,
        hosted: Mapping[TopicPartition, HostedPartition],
        absence: Callable[[TopicPartition], ErrorCode],
        cold_reads: ColdReads,
        throttles: Throttles,
        neighbours: Neighbours,
        waiting: Purgatory[list[FetchResult]],
    ) -> None:
        """`hosted` is the broker's own table; `absence` says why a partition is not in it."""
        self._config = config
        self._broker_id = config.node_id
        self._hosted = hosted
        self._absence = absence
        self._cold_reads = cold_reads
        self._throttles = throttles
        self._neighbours = neighbours
        self._waiting = waiting
        self._selects = config.replica_selector_class == RACK_AWARE_SELECTOR
        self._loop = asyncio.get_running_loop()

    def fetch(
        self, params: FetchParams, partitions: list[FetchPartition], news: SessionNews | None
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """See `ReplicaManager.fetch`."""
        if not self._cold_reads.is_cold(params, partitions):
            return self._fetch_now(params, partitions, news)
        # A task, so that a client that leaves ends it.
        return self._loop.create_task(self._fetch_warmed(params, partitions, news))

    async def _fetch_warmed(
        self, params: FetchParams, partitions: list[FetchPartition], news: SessionNews | None
    ) -> list[FetchResult]:
        await self._cold_reads.warm(params, partitions)
        found = self._fetch_now(params, partitions, news)
        return found if isinstance(found, list) else await found

    def _fetch_now(
        self, params: FetchParams, partitions: list[FetchPartition], news: SessionNews | None
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        urgent = self._selects and self._must_hear(params.replica_id, partitions)
        results = self._read(params, partitions)
        self._cold_reads.read_ahead(params, partitions)
        nothing = not partitions and (news is None or not news.has_resting)
        at_once = nothing or urgent or params.max_wait_ms <= 0
        if at_once or is_enough(results, params.min_bytes):
            self._end(params, partitions, news, results)
            return results
        operation = DelayedFetch(
            self._loop,
            params,
            partitions,
            results,
            self._hosted,
            partial(self._read_last, params, partitions, news),
            self.must_wait,
            tell_high_watermarks=self._selects,
        )
        watched = (wanted.partition for wanted in partitions)
        if news is not None:
            news.wait(partial(self._join, operation))
        return self._waiting.wait(operation, watched, params.max_wait_ms)

    def _join(self, operation: DelayedFetch, wanted: FetchPartition) -> None:
        operation.reads_more(wanted)
        self._waiting.watch(operation, wanted.partition)

    def _read_last(
        self, params: FetchParams, partitions: list[FetchPartition], news: SessionNews | None
    ) -> list[FetchResult]:
        results = self._read(params, partitions)
        self._end(params, partitions, news, results)
        return results

    def _end(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        news: SessionNews | None,
        results: Sequence[FetchResult],
    ) -> None:
        """Lets the session's reader rest where these results say all there is to say."""
        # Where it may be sent to another replica, that depends on more than this partition.
        if news is None or not news.end(partitions) or not params.leader_only:
            return
        for wanted, result in zip(partitions, results, strict=True):
            if not (result.error or result.records or result.diverging):
                self._hosted[wanted.partition].rest(wanted, params, news)

    def _must_hear(self, replica_id: int, partitions: Sequence[FetchPartition]) -> bool:
        """Whether a follower is to be told of a high watermark now, for the consumers it has."""
        known = (self._hosted.get(wanted.partition) for wanted in partitions)
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
        hosted = self._hosted.get(wanted.partition)
        if hosted is None:
            return FetchResult(self._absence(wanted.partition))
        if params.replica_id != CONSUMER and not hosted.rules.knows(params.replica_id):
            error = hosted.rules.check_leader(wanted.current_leader_epoch)
            return FetchResult(error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        preferred = self._preferred(hosted, wanted, params)
        if preferred != self._broker_id:
            return hosted.sends_to(preferred)
        if self.must_wait(hosted, params.replica_id):
            return hosted.fetch(wanted, params, max_bytes=0, min_one=False)
        result = hosted.fetch(wanted, params, max_bytes=max_bytes, min_one=min_one)
        self._throttles.sent(hosted, params.replica_id, result.size, self._now_ms())
        return result

    def must_wait(self, hosted: HostedPartition, replica_id: int) -> bool:
        """Whether a follower gets nothing of this partition now, to keep to the rate."""
        return self._throttles.must_wait(hosted, replica_id, self._now_ms())

    def _preferred(
        self, hosted: HostedPartition, wanted: FetchPartition, params: FetchParams
    ) -> int:
        """The replica that a consumer should read from; this one if it is not for us to say."""
        if params.leader_only or not params.client_rack or hosted.fetch_error(wanted, params):
            return self._broker_id
        if not hosted.rules.is_leader:
            return self._broker_id
        end = hosted.log.log_end_offset
        leader = ReplicaView(self._broker_id, self._config.broker_rack, end, self._now_ms())
        brokers = self._neighbours.image.brokers
        followers = [
            ReplicaView(replica, brokers[replica].rack, one.log_end_offset, one.had_all_ms)
            for replica, one in hosted.rules.readable_followers(wanted.fetch_offset).items()
            if replica in brokers and brokers[replica].active
        ]
        return closest(params.client_rack, leader, followers)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
