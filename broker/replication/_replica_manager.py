"""`ReplicaManager`: every partition of which this broker has a replica, and who waits for them.

Turns images into leaders and followers, requests into appends and reads. It is the only part that
waits: a produce for its replicas, a fetch for bytes. What a request does to the logs is done when
the call returns; a future stands for an answer that comes later. All on the event loop; one node
may have several in one process.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.background import Background
from broker.log.batches.record_batch import NotOneBatchError
from broker.log.batches.validation import RecordsRefusedError
from broker.replication._ack_flusher import AckFlusher
from broker.replication._directory_assignments import DirectoryAssignments
from broker.replication._isr_manager import IsrManager
from broker.replication._partition_change_queue import CHANGES_AT_ONCE, Arrivals
from broker.replication._preparing import Preparing
from broker.replication._record_deletion import RecordDeletion
from broker.replication._role_changes import RoleChanges
from broker.replication._strays import strays
from broker.replication.fetcher import Fetchers
from broker.replication.partition import NO_LEADER, HostedPartition, Partition, Throttles
from broker.replication.purgatory import Awaited, DelayedProduce, Purgatory
from broker.replication.reads import Neighbours, OffsetLookups, Reads, cold_reads
from broker.types import (
    ALL_IN_SYNC,
    CONSUMER,
    INTERNAL_TOPICS,
    AppendResult,
    EpochEndOffset,
    FetchParams,
    FetchPartition,
    FetchResult,
    OffsetLookup,
    OffsetResult,
    TopicPartition,
)
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.configs.topic import TopicConfig, topic_config, topic_defaults
from raftctl.metadata.features import METADATA_VERSION_FEATURE
from raftctl.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage
from raftctl.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, UNASSIGNED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from broker.log import LogManager
    from broker.log.partition_log import PartitionLog
    from broker.replication.partition import SessionNews
    from broker.types import Appendable, DeletedRecords, LogDirectoryFacts, ProducerFacts
    from raftctl.metadata.image import MetadataDelta
    from raftctl.plugins import BrokerContext
    from raftctl.runtime.api import Buffer


_WITHOUT_LOG_START = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_SHRUNK_A_TURN = 500
"""Of so many partitions are the replicas looked at before others have their turn."""


def _topic_id(image: MetadataImage, partition: TopicPartition) -> UUID | None:
    topic = image.topics.by_name(partition.topic)
    return None if topic is None else topic.topic_id


def _tells_log_start(refusal: KafkaError) -> bool:
    """Whether the answer has the log start: a producer compares it with what it last wrote, to tell
    records that expired from records that were lost (KIP-360).
    """
    return refusal.code not in _WITHOUT_LOG_START and not isinstance(refusal, NotOneBatchError)


class ReplicaManager:
    """The broker's replicas. `start`, then images and requests, then `stop`."""

    def __init__(self, context: BrokerContext, logs: LogManager) -> None:
        """`logs` is started and stopped with this manager."""
        self._context = context
        self._config = context.config
        self._broker_id = context.config.node_id
        self._logs = logs
        self._loop = asyncio.get_running_loop()
        self._image = EMPTY_IMAGE
        self._topic_defaults = topic_defaults(context.config)
        self._hosted: dict[TopicPartition, HostedPartition] = {}
        self._refused: set[TopicPartition] = set()
        """Replicas that are to be here and cannot: their logs are out of reach."""
        self._produces: Purgatory[list[AppendResult]] = Purgatory(self._loop)
        self._fetches: Purgatory[list[FetchResult]] = Purgatory(self._loop)
        self._background = Background(context.fail)
        self._changes = RoleChanges(context.runtime.log)
        self._arrivals = Arrivals(self._take, self._changes.tell)
        self._changed = Arrivals(self._take, self._changes.tell, CHANGES_AT_ONCE)
        """Of those that are hosted; no partition is in both."""
        self._neighbours = Neighbours(context.config.inter_broker_listener)
        readers = [context.runtime.worker(f"cold-reads-{n}") for n in range(cold_reads.WORKERS)]
        self._cold_reads = cold_reads.ColdReads(readers, self._hosted)
        lookups = context.runtime.worker("offset-lookups")
        self._offsets = OffsetLookups(lookups, self._hosted, self._absence)
        preparer = context.runtime.worker("prepare-produced")
        self._preparing = Preparing(preparer, self._hosted, context.runtime.wall_ms)
        self._ack_flusher = AckFlusher(self._flushed)
        self._isr = IsrManager(context, self._isr_answered)
        self._places = DirectoryAssignments(context, logs)
        logs.directory_failed = self._directory_failed
        logs.housekeeping.log_start_moved = self._log_start_moved
        logs.log_moved = self._log_moved
        self._deletion = RecordDeletion(
            self._loop, self._hosted, self._absence, self._neighbours.lives
        )
        self._throttles = Throttles(self._broker_id)
        logs.housekeeping.moves.copied = self._log_copied
        self._reads = Reads(
            context.config,
            self._hosted,
            self._absence,
            self._cold_reads,
            self._throttles,
            self._neighbours,
            self._fetches,
        )
        self._fetchers = Fetchers(
            context,
            logs,
            self._throttles.fetching,
            self._neighbours.endpoint,
            lambda fetcher: self._background.start(fetcher.run()),
            self._fetches.wake,
        )

    @property
    def hosted(self) -> Mapping[TopicPartition, HostedPartition]:
        """The partitions of which this broker has a replica; for reading only."""
        return self._hosted

    @property
    def follows_image(self) -> bool:
        """Whether what is hosted here leads and follows as the newest image says."""
        return not self._changed

    def invariants(self, changed: Iterable[HostedPartition] | None = None) -> None:
        """Check the partitions that changed, all by default, and what they share.

        Raises InvariantViolation. Tests and the simulator call it after each event; production
        does not, since it looks at every segment, follower and waiting request.
        """
        for hosted in self._hosted.values() if changed is None else changed:
            partition = hosted.partition
            invariant(self._hosted.get(partition) is hosted, "a partition is known by its name")
            invariant(partition not in self._refused, "what is here is not refused")
            invariant(
                self._logs.get(partition) is hosted.log, "a partition has the log that is kept"
            )
            hosted.invariants()
            if hosted.log.offline is None:
                leader = NO_LEADER if hosted.rules.is_leader else hosted.rules.leader_id
                copied = self._fetchers.leader_of(partition)
                invariant(
                    copied == leader, "a follower copies from its leader, a leader from nobody"
                )
        self._fetchers.invariants()
        self._isr.invariants()
        self._produces.invariants()
        self._fetches.invariants()
        self._deletion.invariants()
        self._logs.invariants()

    async def start(self) -> None:
        """Recovers the logs; partitions are served once an image names them."""
        await self._logs.start()
        self._context.stopped_cleanly(self._logs.clean_epoch)
        self._background.start(self._arrivals.run())
        self._background.start(self._changed.run())
        self._background.start(self._isr.run())
        self._background.start(self._places.run())
        self._background.start(self._shrink_periodically())

    async def stop(self) -> None:
        """Stops copying, cancels what waits, closes the logs cleanly."""
        await self._background.stop()
        self._produces.close()
        self._fetches.close()
        self._deletion.close()
        self._cold_reads.close()
        self._offsets.close()
        self._preparing.close()
        await self._logs.stop(self._context.broker_epoch())

    # --- images ---------------------------------------------------------------------------------

    def apply_delta(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Leads and follows what the image says; starts work and does not wait for it."""
        if self._image is EMPTY_IMAGE:
            for path in self._logs.keep_one(partial(_topic_id, image)):
                self._context.runtime.log.warning("second_log_set_aside", path=path)
            for partition in strays(self._logs, image, self._broker_id):
                self._context.runtime.log.warning("stray_log", partition=str(partition))
                self._logs.delete(partition, aside=True)
        self._image = self._neighbours.image = image
        for topic in delta.deleted_topics.values():
            for partition_id in range(len(topic.partitions)):
                self._drop(TopicPartition(topic.name, partition_id), topic.topic_id)
        self._reconfigure(delta.changed_configs)
        for change in delta.changed_topics.values():
            for partition_id in sorted(change.partitions):
                partition = TopicPartition(change.name, partition_id)
                self._apply(partition, change.topic_id, change.partitions[partition_id])
        self._changed.take_some()
        self._arrivals.take_some()
        if delta.changed_brokers:
            self._deletion.wake_all()
        if METADATA_VERSION_FEATURE in delta.changed_features:
            for hosted in self._hosted.values():
                self._places.check(hosted, image)

    def _apply(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        hosted = self._hosted.get(partition)
        if self._broker_id not in image.replicas:
            self._drop(partition, topic_id)
        elif hosted is None or hosted.topic_id != topic_id:
            self._arrivals.add(partition, topic_id, image)
        elif partition.topic in INTERNAL_TOPICS:
            # Coordinators go by the same image, right after. There are few of these.
            self._take(partition, topic_id, image)
        else:
            self._changed.add(partition, topic_id, image)

    def _take(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        hosted = self._hosted.get(partition)
        if hosted is None and self._is_out_of_reach(partition, image):
            return
        try:
            hosted = self._host(partition, topic_id)
        except KafkaError as error:
            # Of one partition only: where no directory is left the node has been told to end.
            self._refuse(partition, error.message)
            return
        self._places.check(hosted, self._image)
        if hosted.log.offline is not None:
            hosted.stay_offline(image)
        elif image.leader == self._broker_id:
            self._lead(hosted, image)
        else:
            self._follow(hosted, image)
        self._wake(partition)

    def _is_out_of_reach(self, partition: TopicPartition, image: PartitionImage) -> bool:
        """Whether the replica's log may be in a directory that has been offline since the start.

        Nothing is made anew elsewhere in its place then: an empty log must not pass for it. A
        replica that is in no directory yet is out of reach only if it counts as in sync.
        """
        offline = self._logs.offline_directories
        if not offline or self._logs.get(partition) is not None:
            return False
        directory_id = image.directory_of(self._broker_id)
        ids = self._context.directory_ids
        online = {ids[path] for path in ids if path not in offline}
        is_placed = directory_id != UNASSIGNED
        if directory_id not in online if is_placed else self._broker_id in image.isr:
            self._refuse(partition, f"its log may be in {', '.join(offline)}, which is offline")
            return True
        return False

    def _refuse(self, partition: TopicPartition, why: str) -> None:
        self._context.runtime.log.error("replica_offline", partition=str(partition), why=why)
        self._refused.add(partition)

    def _lead(self, hosted: HostedPartition, image: PartitionImage) -> None:
        end = hosted.log.log_end_offset
        if hosted.rules.become_leader(image, log_end_offset=end, now_ms=self._now_ms()):
            self._fetchers.unfollow(hosted.partition)
            hosted.log.epochs.assign(image.leader_epoch, end)
            self._ack_flusher.request(hosted)
            self._changes.leads(hosted, end)
        hosted.advance(self._now_ms())

    def _follow(self, hosted: HostedPartition, image: PartitionImage) -> None:
        if not hosted.rules.become_follower(image):
            return
        self._changes.follows(hosted, image.leader)
        self._fetchers.follow(hosted, image.leader)

    def _host(self, partition: TopicPartition, topic_id: UUID) -> HostedPartition:
        """The partition with this id; one of an earlier topic of its name makes room."""
        hosted = self._hosted.get(partition)
        if hosted is not None and hosted.topic_id == topic_id:
            return hosted
        log = self._open(partition, topic_id)
        rules = Partition(
            self._broker_id,
            high_watermark=log.high_watermark,
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            may_join=self._neighbours.may_join,
        )
        rules.min_insync_replicas = log.config.min_insync_replicas
        self._refused.discard(partition)
        hosted = self._hosted[partition] = HostedPartition(partition, topic_id, rules, log)
        return hosted

    def _open(self, partition: TopicPartition, topic_id: UUID) -> PartitionLog:
        config = self._topic_config(partition.topic)
        log = self._logs.get(partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            self._drop(partition, log.topic_id)
            log = None
        if log is None:
            return self._logs.create(partition, topic_id, config)
        if log.topic_id is None:
            self._logs.identify(log, topic_id)
        log.config = config
        return log

    def _drop(self, partition: TopicPartition, topic_id: UUID) -> None:
        """The partition is deleted or has moved away: forgets it and removes its log."""
        self._arrivals.forget(partition, topic_id)
        self._changed.forget(partition, topic_id)
        self._refused.discard(partition)
        log = self._logs.get(partition)
        if log is None or log.topic_id != topic_id:
            return
        self._fetchers.unfollow(partition)
        self._places.forget(partition)
        hosted = self._hosted.pop(partition, None)
        self._logs.delete(partition)
        if hosted is not None:
            hosted.rules.resign()
            hosted.has_news()
            self._wake(partition)

    def _directory_failed(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        # Whoever finds out is in the middle of something.
        self._loop.call_soon(self._take_offline, path, partitions)

    def _take_offline(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        """These have no log here until the node starts again: others lead them, or nobody."""
        for partition in partitions:
            hosted = self._hosted.get(partition)
            if hosted is not None:
                self._fetchers.unfollow(partition)
                hosted.rules.resign()
                self._wake(partition)
        directory_id = self._context.directory_ids.get(path)
        if directory_id is not None:
            self._context.directory_failed(directory_id)

    def _reconfigure(self, changed: Collection[tuple[int, str]]) -> None:
        """Takes up the new configs of topics, or what is set for brokers where they have none."""
        everywhere = any(kind == BROKER_RESOURCE for kind, _ in changed)
        topics = {name for kind, name in changed if kind == TOPIC_RESOURCE}
        if not everywhere and not topics:
            return
        self._throttles.configure(self._image)
        for partition, hosted in self._hosted.items():
            if everywhere or partition.topic in topics:
                config = self._topic_config(partition.topic)
                hosted.log.config = config
                hosted.rules.min_insync_replicas = config.min_insync_replicas
                if hosted.rules.is_leader:
                    self._ack_flusher.request(hosted)
                hosted.advance(self._now_ms())
                self._wake(partition)
                self._fetchers.touch(partition)

    def _topic_config(self, topic: str) -> TopicConfig:
        return topic_config(self._image, topic, self._topic_defaults, self._broker_id)

    # --- produce --------------------------------------------------------------------------------

    def prepare(
        self, acks: int, entries: Sequence[tuple[TopicPartition, Buffer]]
    ) -> list[Appendable] | asyncio.Future[list[Appendable]]:
        """What to append for each produced batch, later if that takes long."""
        return self._preparing.prepare(acks, entries)

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, Appendable]],
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Appends to each partition; results in order of the entries, later if acks is -1."""
        results: list[AppendResult] = []
        awaited: dict[int, Awaited] = {}
        for index, (partition, batch) in enumerate(entries):
            result, required_offset = self._append_one(partition, batch, acks)
            results.append(result)
            if acks == ALL_IN_SYNC and result.error is ErrorCode.NONE:
                awaited[index] = Awaited(self._hosted[partition], required_offset)
        for partition, _ in entries:
            self._wake(partition)
        if not awaited:
            appended = [self._hosted.get(partition) for partition, _ in entries]
            return results if acks == 0 else self._ack_flusher.answer(results, appended)
        operation = DelayedProduce(self._loop, results, awaited)
        if operation.settle_at_once():
            return operation.answer()
        return self._produces.wait(operation, operation.partitions, timeout_ms)

    def _append_one(
        self, partition: TopicPartition, batch: Appendable, acks: int
    ) -> tuple[AppendResult, int]:
        hosted = self._hosted.get(partition)
        if hosted is None:
            return AppendResult(self._absence(partition)), -1
        try:
            done = hosted.append(batch, acks, self._now_ms(), self._context.runtime.wall_ms())
        except KafkaError as error:
            hint = hosted.hint_for(error.code)
            start = hosted.log.log_start_offset if _tells_log_start(error) else -1
            bad = error.records if isinstance(error, RecordsRefusedError) else {}
            return AppendResult(error.code, -1, -1, start, error.message, hint, bad), -1
        self._ack_flusher.request(hosted)
        start = hosted.log.log_start_offset
        result = AppendResult(ErrorCode.NONE, done.base_offset, done.log_append_time_ms, start)
        return result, done.next_offset

    # --- fetch ----------------------------------------------------------------------------------

    def fetch(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        news: SessionNews | None = None,
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Reads from each partition; results in order of the partitions, later if there is little.

        With `news`, of a fetch session, `partitions` is a list of those that have some; where
        others have some before there is enough, the list grows by them. A follower's fetch also
        says how far it has come, which may commit records.
        """
        if news is not None:
            news.begin(partitions, self._now_ms())
        if params.replica_id != CONSUMER:
            self._follower_fetched(params, partitions)
        return self._reads.fetch(params, partitions, news)

    def _follower_fetched(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        now_ms = self._now_ms()
        for wanted in partitions:
            hosted = self._hosted.get(wanted.partition)
            if hosted is None:
                continue
            error, moved = hosted.follower_fetched(wanted, params, now_ms)
            if moved:
                self._wake(wanted.partition)
            if self._deletion:
                self._deletion.wake(wanted.partition)
            if error is ErrorCode.NONE:
                proposal = hosted.rules.propose_expansion(params.replica_id)
                if proposal is not None:
                    self._isr.submit(hosted, proposal)

    # --- offsets --------------------------------------------------------------------------------

    def list_offsets(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Results in order of the lookups, later if they are to be read from disk."""
        return self._offsets.by_time(lookups, replica_id)

    def offsets_for_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Of (partition, current leader epoch, leader epoch); results in order."""
        return self._offsets.by_leader_epoch(lookups)

    # --- administration -------------------------------------------------------------------------

    def delete_records(
        self, timeout_ms: int, entries: Sequence[tuple[TopicPartition, int]]
    ) -> list[DeletedRecords] | asyncio.Future[list[DeletedRecords]]:
        """Hides what is below each offset; results in order, when all live replicas follow."""
        deleted = self._deletion.delete(timeout_ms, entries)
        for partition, _ in entries:
            self._log_start_moved(partition)
        return deleted

    def producers(self, partition: TopicPartition) -> tuple[ErrorCode, list[ProducerFacts]]:
        """Who writes to a partition that this broker leads."""
        hosted = self._hosted.get(partition)
        return (self._absence(partition), []) if hosted is None else hosted.producers()

    def move_log(self, partition: TopicPartition, path: str) -> ErrorCode:
        """Has this broker's replica live in that one of `log.dirs`; see `LogManager.move`."""
        if self._image.topics.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self._logs.move(partition, path)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _log_copied(self, size: int) -> bool:
        """Counts what goes to another directory; returns whether that must wait now."""
        now_ms, throttle = self._now_ms(), self._throttles.moving
        throttle.record(size, now_ms)
        return throttle.is_exceeded(now_ms)

    def _log_moved(self, log: PartitionLog) -> None:
        hosted = self._hosted.get(log.partition)
        if hosted is not None:
            hosted.log = log
            self._places.check(hosted, self._image)
            self._ack_flusher.request(hosted)

    async def log_directories(self) -> list[LogDirectoryFacts]:
        """What each of `log.dirs` holds."""
        return await self._logs.describe()

    def _absence(self, partition: TopicPartition) -> ErrorCode:
        """Why a partition is not here: its log cannot be used, or it is another's, or nobody's."""
        if partition in self._refused:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._image.topics.partition(*partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- in-sync replicas -----------------------------------------------------------------------

    async def _shrink_periodically(self) -> None:
        """Half the lag time apart, so that a lagging replica leaves after 1 to 1.5 times it."""
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2000)
            now_ms = self._now_ms()
            for number, hosted in enumerate(list(self._hosted.values())):
                if number % _SHRUNK_A_TURN == _SHRUNK_A_TURN - 1:
                    await asyncio.sleep(0)
                end = hosted.log.log_end_offset
                proposal = hosted.rules.propose_shrinking(end, now_ms)
                if proposal is not None:
                    self._isr.submit(hosted, proposal)
                if hosted.advance(now_ms):
                    self._wake(hosted.partition)

    def _flushed(self, hosted: HostedPartition) -> None:
        if hosted.advance(self._now_ms()):
            self._wake(hosted.partition)

    def _isr_answered(self, hosted: HostedPartition) -> None:
        hosted.advance(self._now_ms())
        self._wake(hosted.partition)

    def _log_start_moved(self, partition: TopicPartition) -> None:
        """Leaders tell it to their readers, followers to their leader; nobody is kept waiting."""
        hosted = self._hosted.get(partition)
        if hosted is not None:
            hosted.has_news()
            self._fetchers.touch(partition)

    def _wake(self, partition: TopicPartition) -> None:
        hosted = self._hosted.get(partition)
        if hosted is not None:
            hosted.has_news()
        self._produces.wake(partition)
        self._fetches.wake(partition)
        self._deletion.wake(partition)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
