"""Followers copy their leaders' logs: a task and a connection for each leading broker (row R1).

A fetcher sends the ordinary Fetch for all partitions that follow its leader, in a fetch session
that names those that changed, and applies the response. With `num.replica.fetchers` above 1 a
leader has several fetchers, and each partition belongs to one of them.

In the usual round the answer is applied and the next Fetch sent in the turn in which the answer's
bytes arrive (`Fetcher._answered`); the task of the fetcher sleeps meanwhile. It goes on where a
round needs a wait: for a connection, a flush, a slice of other work, or a time.

Logs are cut only where the leader says that leader epochs diverge, or where it ends (row R4). The
work on one partition involves no wait; between slices of it other tasks run.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.replication.fetcher._followings import Following, Followings
from broker.replication.partition import Fetched, Partition
from broker.types import EARLIEST, LATEST, EpochEndOffset, TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.failures import outcome_of
from raftctl.metadata.records import NO_LEADER
from raftctl.runtime import Deadline, Slices
from raftctl.runtime.api import bind_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from broker.log import LogManager
    from broker.protocol.messages import data as wire
    from broker.replication.fetcher._connection import BrokerConnection, Connector
    from broker.replication.partition import Throttle
    from raftctl.metadata.records import Endpoint
    from raftctl.plugins import BrokerContext
    from raftctl.runtime.api import Buffer

    PartitionsLeft = Iterator[tuple[UUID | None, wire.FetchResponsePartitionData]]
    """The partitions of an answer that are not applied, each with its topic's id."""

FETCH_KEY, FETCH_VERSION = 1, 17
LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION = 2, 8
_FIRST_BACKOFF_MS = 20
_THROTTLED_MS = 100
"""The time until a throttled partition is checked again."""
_DOUBLINGS_MAX = 20
_GATHER_SECONDS = 0.000_1
"""The time, for each partition of a fetcher, in which new ones gather before they end a Fetch.

A Fetch that waits at the leader must end before it can name them, and opening a session costs by
the partitions in it.
"""


class Fetcher:
    """Follows one broker. `run` it as a task; cancelling that ends it."""

    def __init__(
        self,
        context: BrokerContext,
        logs: LogManager,
        throttle: Throttle,
        leader_id: int,
        endpoint: Callable[[int], Endpoint | None],
        changed: Callable[[TopicPartition], None],
        connector: Connector,
    ) -> None:
        """`endpoint` gives the leader's address as the newest image has it; `changed` is
        called with partitions that have more to read.
        """
        self._context = context
        self._config = context.config
        self._logs = logs
        self._throttle = throttle
        self._leader_id = leader_id
        self._endpoint = endpoint
        self._notify_changed = changed
        self._connector = connector
        self._log = bind_log(
            context.runtime, logger="broker.replication.fetcher", fetch_from=leader_id
        )
        self._loop = asyncio.get_running_loop()
        self._followings = Followings(context.config.replica_fetch_max_bytes)
        self._changed = asyncio.Event()
        self._connection: BrokerConnection | None = None
        self._is_waiting = False
        """Whether a Fetch is at the leader."""
        self._interrupted = False
        """Whether this fetcher ended its own Fetch, which is then no failure of the leader."""
        self._gathering = Deadline(self._loop, self._interrupt)
        """Runs while partitions gather for which the Fetch that waits is ended."""
        self._failures = 0
        """The failed Fetches since the last one that was answered."""
        self._left: asyncio.Future[PartitionsLeft] = self._loop.create_future()
        """For the task: what is left to apply of the newest answer, once it must go on."""

    def invariants(self) -> None:
        """Check that every partition here follows this fetcher's leader."""
        self._followings.invariants()
        for one in self._followings:
            leader = one.replica.state.leader_id
            invariant(leader == self._leader_id, "a follower copies only from its leader")
        waits = not self._is_waiting or self._connection is not None or self._interrupted
        invariant(waits, "a Fetch that waits has a connection")

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that follow this leader here."""
        return {one.replica.partition for one in self._followings}

    def lag_of(self, partition: TopicPartition) -> int:
        """Return how many committed records a partition lacks here, as far as is known."""
        return self._followings.lag_of(partition)

    @property
    def is_idle(self) -> bool:
        """Whether no partition follows this leader: then the fetcher is ended, to end its
        connection and the session that the leader keeps for it.
        """
        return not self._followings

    def follow(self, replica: Partition) -> None:
        """Add a partition, or note its new leader epoch.

        Its first Fetch in the epoch has the last epoch of its log, by which the leader finds where
        the two logs diverge. No truncation is needed before (KIP-595).
        """
        self._followings.follow(replica)
        self._changed.set()
        if self._gathering.at_s is None:
            # The request in flight may wait at the leader for partitions that have nothing new.
            # A new session costs by the partitions that it names, so let them gather first.
            delay = len(self._followings) * _GATHER_SECONDS
            self._gathering.set(self._loop.time() + delay)

    def unfollow(self, partition: TopicPartition) -> None:
        """Forget a partition; a response for it is dropped."""
        self._followings.unfollow(partition)

    def touch(self, partition: TopicPartition) -> None:
        """Note that the partition's log changed by itself: the next Fetch reports it to the
        leader.
        """
        self._followings.touch(partition)

    def _interrupt(self) -> None:
        """End the Fetch that waits, so that the next one names the gathered partitions."""
        if self._is_waiting:
            self._interrupted = True
            self._drop_connection()

    async def run(self) -> None:
        """Fetch until cancelled; a failed Fetch is repeated after a growing pause."""
        try:
            while True:
                await self._pause_until_ready()
                self._interrupted = False
                try:
                    await self._fetch()
                except KafkaError as error:
                    self._drop_connection()
                    if not self._interrupted:
                        self._failures += 1
                        # The first failure is worth a line; retries to a dead leader are not.
                        log = self._log.info if self._failures == 1 else self._log.debug
                        log("fetch_failed", error=error.code.name, why=error.message)
                        await self._pause(self._backoff_ms(self._failures) / 1000)
        finally:
            self._gathering.set(None)
            self._drop_connection()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _backoff_ms(self, failures: int) -> int:
        """Return the pause after so many failures: short at first, for a leader often lags behind
        this broker's image by an instant.
        """
        longest_ms = self._config.replica_fetch_backoff_ms
        return min(_FIRST_BACKOFF_MS << min(failures - 1, _DOUBLINGS_MAX), longest_ms)

    async def _pause(self, seconds: float | None) -> None:
        """Wait so long, or until a partition is added."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _pause_until_ready(self) -> None:
        while not self._is_ready():
            ready_at = self._followings.ready_at()
            await self._pause(None if ready_at is None else ready_at - self._loop.time())

    def _is_ready(self) -> bool:
        """Return whether a partition may be asked for now.

        Over the rate of `follower.replication.throttled.rate`, those are held back that are
        throttled and behind (KIP-73). The others are in the same session, and go on.
        """
        now = self._loop.time()
        ready = self._followings.is_ready(now)
        if not self._throttle.is_exceeded(int(now * 1000)):
            return ready
        # One that is in sync is never kept waiting: clients wait for it.
        self._followings.hold(
            lambda one: one.is_behind and one.replica.fetches_throttled, now + _THROTTLED_MS / 1000
        )
        return self._followings.is_ready(now)

    async def _connected(self) -> BrokerConnection:
        if self._connection is None or not self._connection.is_open:
            # The leader closes what was idle for `connections.max.idle.ms`.
            endpoint = self._endpoint(self._leader_id)
            if endpoint is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the leader has no address")
            self._connection = await self._connector.connect(
                endpoint, "fetcher", self._config.replica_socket_timeout_ms
            )
        return self._connection

    # --- one round ------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        """Fetch, over and over, until a round needs a wait; then apply what is left of it."""
        connection = await self._connected()
        await connection.renew(self._config.replica_socket_timeout_ms)
        for following in self._followings.touched:
            if following.out_of_range:
                await self._align(connection, following)
        await self._flush()
        self._left = self._loop.create_future()
        try:
            self._ask(connection)
            left = await self._left
        finally:
            self._is_waiting = False
        slices = Slices()
        for topic_id, data in left:
            self._apply(topic_id, data)
            await slices.rest()

    def _answered(
        self, connection: BrokerConnection, answer: wire.FetchResponse | KafkaError
    ) -> None:
        """Go on with the next Fetch in this turn; if that needs a wait, or fails, the task does."""
        if self._left.done():
            return
        self._is_waiting = False
        left, error = outcome_of(partial(self._go_on, connection, answer))
        if error is not None:
            self._left.set_exception(error)
        elif left is not None:
            self._left.set_result(left)

    def _go_on(
        self, connection: BrokerConnection, answer: wire.FetchResponse | KafkaError
    ) -> PartitionsLeft | None:
        """Apply an answer and send the next Fetch; return what is left for the task, if it must
        go on instead.
        """
        partitions = self._noted(answer)
        slices = Slices()
        for topic_id, data in partitions:
            self._apply(topic_id, data)
            if slices.is_over():
                return partitions
        if not self._needs_no_wait(connection):
            return partitions
        self._ask(connection)
        return None

    def _noted(self, answer: wire.FetchResponse | KafkaError) -> PartitionsLeft:
        """Note the answer in the session, and return its partitions; KafkaError if it is none."""
        session = self._followings.session
        if isinstance(answer, KafkaError):
            session.failed()
            raise answer
        code = ErrorCode(answer["error_code"])
        session.answered(code, answer["session_id"])
        if code is not ErrorCode.NONE:
            raise KafkaError(code, "the leader refused the fetch")
        self._failures = 0
        return ((t["topic_id"], data) for t in answer["responses"] for data in t["partitions"])

    def _needs_no_wait(self, connection: BrokerConnection) -> bool:
        """Return whether the next Fetch can be sent at once."""
        return (
            self._connection is connection
            and connection.is_open
            and not connection.must_renew
            and self._is_ready()
            and not any(
                one.out_of_range or one.replica.awaits_flush for one in self._followings.touched
            )
        )

    async def _flush(self) -> None:
        """Make the batches durable that count only then (`flush.on.ack`).

        All flushes are begun before the first is awaited, so that the disk can order them. A
        follower's position in the next Fetch says that it has everything below.
        """
        waiting = [one for one in self._followings.touched if one.replica.awaits_flush]
        flushes = [f.replica.log.flush_through(f.replica.log.log_end_offset) for f in waiting]
        for following, flushed in zip(waiting, flushes, strict=True):
            try:
                await flushed
            except KafkaError as failed:
                self._back_off(following, str(failed))

    def _ask(self, connection: BrokerConnection) -> None:
        self._gathering.set(None)
        message = self._request()
        timeout_ms = self._config.replica_socket_timeout_ms
        answered = cast("Callable[[Any], None]", partial(self._answered, connection))
        try:
            connection.send(FETCH_KEY, FETCH_VERSION, message, timeout_ms, answered)
        except KafkaError:
            self._followings.session.failed()
            raise
        self._is_waiting = True

    def _request(self) -> wire.FetchRequest:
        config = self._config
        self._followings.update_session()
        fetch = self._followings.session.next()
        topics: dict[UUID, list[wire.FetchPartition]] = {}
        for (topic_id, _), wanted in fetch.changed.items():
            topics.setdefault(topic_id, []).append(wanted)
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition_id in fetch.forgotten:
            forgotten.setdefault(topic_id, []).append(partition_id)
        return {
            "replica_state": {
                "replica_id": config.node_id,
                "replica_epoch": self._context.broker_epoch(),
            },
            "max_wait_ms": config.replica_fetch_wait_max_ms,
            "min_bytes": config.replica_fetch_min_bytes,
            "max_bytes": config.replica_fetch_response_max_bytes,
            "isolation_level": 0,
            "session_id": fetch.session_id,
            "session_epoch": fetch.epoch,
            "topics": [{"topic_id": t, "partitions": parts} for t, parts in topics.items()],
            "forgotten_topics_data": [
                {"topic_id": t, "partitions": parts} for t, parts in forgotten.items()
            ],
        }

    def _apply(self, topic_id: UUID | None, data: wire.FetchResponsePartitionData) -> None:
        following = self._followings.asked(topic_id, data["partition_index"])
        if following is not None:
            self._followings.touch(following.replica.partition)
            # The decoder gives one buffer; only a response to be sent has pieces of files.
            self._apply_one(following, data, cast("Buffer", data["records"] or b""))

    def _apply_one(
        self, following: Following, data: wire.FetchResponsePartitionData, records: Buffer
    ) -> None:
        replica = following.replica
        error = ErrorCode(data["error_code"])
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            following.out_of_range = True
            return
        if error is not ErrorCode.NONE:
            self._back_off(following, error.name)
            return
        following.failures = 0
        if replica.log.log_end_offset != following.fetch_offset:
            # The log was cut, or began again, after the request: these records do not continue it.
            return
        diverging = data["diverging_epoch"]
        if diverging is not None and diverging["end_offset"] >= 0:
            agreed = EpochEndOffset(diverging["epoch"], diverging["end_offset"])
            self._cut(replica, replica.truncate_to_agree(agreed))
            return
        try:
            changed = replica.append_fetched(
                Fetched(records, data["high_watermark"], data["log_start_offset"])
            )
        except KafkaError as failed:
            self._back_off(following, str(failed))
            return
        replica.counts.broker.replication_bytes_in += len(records)
        following.lag = max(data["high_watermark"] - replica.log.log_end_offset, 0)
        following.is_behind = following.lag > 0
        if records and replica.fetches_throttled:
            self._throttle.record(len(records), int(self._loop.time() * 1000))
        if changed:
            self._notify_changed(replica.partition)

    async def _align(self, connection: BrokerConnection, following: Following) -> None:
        """Ask the leader for its bounds, because it does not have this log's end, and adapt to
        them.
        """
        start = await self._leader_offset(connection, following, EARLIEST)
        end = await self._leader_offset(connection, following, LATEST)
        if start is None or end is None or not self._followings.is_current(following):
            return
        following.out_of_range = False
        self._cut(following.replica, following.replica.align_with(start, end))

    async def _leader_offset(
        self, connection: BrokerConnection, following: Following, timestamp: int
    ) -> int | None:
        partition = following.replica.partition
        lookup: wire.ListOffsetsPartition = {
            "partition_index": partition.partition,
            "current_leader_epoch": following.leader_epoch,
            "timestamp": timestamp,
        }
        message: wire.ListOffsetsRequest = {
            "replica_id": self._config.node_id,
            "isolation_level": 0,
            "topics": [{"name": partition.topic, "partitions": [lookup]}],
        }
        timeout_ms = self._config.replica_socket_timeout_ms
        answer = await connection.call(LIST_OFFSETS_KEY, LIST_OFFSETS_VERSION, message, timeout_ms)
        found = _only_partition(cast("wire.ListOffsetsResponse", answer))
        if found["error_code"]:
            self._back_off(following, ErrorCode(found["error_code"]).name)
            return None
        return found["offset"]

    def _cut(self, replica: Partition, shorter: bool) -> None:
        if shorter:
            end = replica.log.log_end_offset
            self._log.info("log_truncated", partition=str(replica.partition), log_end_offset=end)
            self._logs.truncated(replica.log)

    def _back_off(self, following: Following, why: str) -> None:
        following.failures += 1
        backoff_ms = self._backoff_ms(following.failures)
        self._followings.wait(following, self._loop.time() + backoff_ms / 1000)
        log = self._log.info if following.failures == 1 else self._log.debug
        log("fetch_refused", partition=str(following.replica.partition), why=why)


def _only_partition(answer: wire.ListOffsetsResponse) -> wire.ListOffsetsPartitionResponse:
    found = [one for t in answer["topics"] for one in t["partitions"]]
    if len(found) != 1:
        text = f"the leader answers {len(found)} partitions where one was asked for"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    return found[0]


_Link = tuple[int, int]
"""The leading broker, and the number of the connection to it."""


class Fetchers:
    """The fetchers of a broker, by leader."""

    def __init__(
        self,
        context: BrokerContext,
        logs: LogManager,
        throttle: Throttle,
        endpoint: Callable[[int], Endpoint | None],
        start: Callable[[Fetcher], asyncio.Task[None]],
        changed: Callable[[TopicPartition], None],
        connector: Connector,
    ) -> None:
        """`start` runs a fetcher as a task; for the others see `Fetcher`."""
        self._context = context
        self._logs = logs
        self._throttle = throttle
        self._endpoint = endpoint
        self._start = start
        self._changed = changed
        self._connector = connector
        self._fetchers: dict[_Link, Fetcher] = {}
        self._tasks: dict[_Link, asyncio.Task[None]] = {}
        self._link_of: dict[TopicPartition, _Link] = {}

    def invariants(self) -> None:
        """Check that each partition has one fetcher, and each fetcher a task and partitions."""
        invariant(self._fetchers.keys() == self._tasks.keys(), "a fetcher is a task")
        used = set(self._link_of.values())
        invariant(used == self._fetchers.keys(), "a fetcher has partitions to copy")
        for link, fetcher in self._fetchers.items():
            here = {partition for partition, other in self._link_of.items() if other == link}
            invariant(fetcher.partitions == here, "a partition has one fetcher")
            fetcher.invariants()

    def leader_of(self, partition: TopicPartition) -> int:
        """Return the broker from which a partition is copied, NO_LEADER if from none."""
        return self._link_of.get(partition, (NO_LEADER, 0))[0]

    def lag_of(self, partition: TopicPartition) -> tuple[str, int] | None:
        """Return which fetcher copies a partition, and how many committed records it lacks here.

        None if nobody copies it. The name is that of Apache Kafka's thread.
        """
        link = self._link_of.get(partition)
        if link is None:
            return None
        leader_id, number = link
        lag = self._fetchers[link].lag_of(partition)
        return f"ReplicaFetcherThread-{number}-{leader_id}", lag

    def follow(self, replica: Partition, leader_id: int) -> None:
        """Add a partition, or note its new leader epoch."""
        if leader_id == NO_LEADER:
            self.unfollow(replica.partition)
            return
        link = leader_id, self._number_for(replica.partition)
        if self._link_of.get(replica.partition, link) != link:
            self.unfollow(replica.partition)
        self._link_of[replica.partition] = link
        fetcher = self._fetchers.get(link)
        if fetcher is None:
            fetcher = Fetcher(
                self._context,
                self._logs,
                self._throttle,
                leader_id,
                self._endpoint,
                self._changed,
                self._connector,
            )
            self._fetchers[link] = fetcher
            self._tasks[link] = self._start(fetcher)
        fetcher.follow(replica)

    def touch(self, partition: TopicPartition) -> None:
        """Note that the partition's log changed by itself: the next Fetch reports it to the
        leader.
        """
        link = self._link_of.get(partition)
        if link is not None:
            self._fetchers[link].touch(partition)

    def _number_for(self, partition: TopicPartition) -> int:
        # Spreads a topic over the connections. Python's own hash differs from run to run.
        spread = zlib.crc32(partition.topic.encode()) + partition.partition
        return spread % self._context.config.num_replica_fetchers

    def unfollow(self, partition: TopicPartition) -> None:
        """Forget a partition; a response for it is dropped."""
        link = self._link_of.pop(partition, None)
        if link is None:
            return
        fetcher = self._fetchers[link]
        fetcher.unfollow(partition)
        if fetcher.is_idle:
            del self._fetchers[link]
            self._tasks.pop(link).cancel()
