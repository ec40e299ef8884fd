"""`ReplicaManager`: every partition of which this broker has a replica, and the waiting requests.

Turns images into leaders and followers, requests into appends and reads. It is the only part that
waits: a produce for its replicas, a fetch for bytes. The effect of a request on the logs is
complete when the call returns; a future stands for a response that comes later.

Everything runs on the event loop. One process may have several nodes.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.background import Background
from broker.log import LogListener
from broker.metrics import TopicCounts, TopicMetrics
from broker.replication._controller_reports import DirectoryAssignments, IsrManager
from broker.replication._partition_changes import (
    PartitionChangeQueue,
    RoleChanges,
)
from broker.replication._produced_batches import AckFlusher, Preparing
from broker.replication.fetcher import Connector, Fetchers
from broker.replication.partition import Conditions, Partition, PartitionState, Throttles
from broker.replication.purgatory import Awaited, DelayedDelete, DelayedProduce, Purgatory
from broker.replication.reads import BrokerDirectory, OffsetLookups, Reads, cold_reads
from broker.turns import Turn
from broker.types import (
    ALL_IN_SYNC,
    CONSUMER,
    INTERNAL_TOPICS,
    AppendResult,
    DeletedRecords,
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
from raftctl.metadata.records import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE, UNASSIGNED
from raftctl.runtime import Slices
from raftctl.runtime.api import bind_log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from broker.log import LogManager
    from broker.log.partition_log import PartitionLog
    from broker.replication.partition import FetchSessionIndex
    from broker.request_context import RequestContext
    from broker.types import Appendable, LogDirectoryFacts, ProducerFacts
    from raftctl.metadata.image import MetadataDelta
    from raftctl.plugins import BrokerContext

_TOPIC_CONFIGS_MAX = 10_000
"""Topics whose config is remembered: topics come and go."""


def _topic_id(image: MetadataImage, partition: TopicPartition) -> UUID | None:
    topic = image.topics.by_name(partition.topic)
    return None if topic is None else topic.topic_id


def _strays(logs: LogManager, image: MetadataImage, broker_id: int) -> list[TopicPartition]:
    """Return the partitions whose logs are here though the first image gives them no replica here.

    They were deleted, or moved away, while the broker was down. The first image holds the broker's
    own registration, which is newer than all that the broker had when it stopped. Their files are
    only set aside: a quorum that was rebuilt from one voter may have forgotten a topic. A log
    without a topic id is left alone: a crash kept the id from being written, and the next replica
    of the partition takes the log over.
    """
    found = []
    for partition in logs.partitions:
        log = logs.get(partition)
        if log is None or log.topic_id is None:
            continue
        topic = image.topics.by_id(log.topic_id)
        here = None if topic is None else topic.partitions.get(partition.partition)
        if here is None or broker_id not in here.replicas:
            found.append(partition)
    return found


class ReplicaManager(LogListener):
    """The broker's replicas. `start`, then images and requests, then `stop`."""

    def __init__(self, context: BrokerContext, logs: LogManager) -> None:
        """`logs` is started and stopped with this manager."""
        self._context = context
        self._config = context.config
        self._broker_id = context.config.node_id
        self._logs = logs
        self._loop = asyncio.get_running_loop()
        self.turn = Turn()
        """At whose end the requests are answered that need not wait any longer."""
        self._image = EMPTY_IMAGE
        self._topic_defaults = topic_defaults(context.config)
        self._topic_configs: dict[str, TopicConfig] = {}
        """Of the topics that were asked for since the configs in the image changed last."""
        self._configs_read_from = EMPTY_IMAGE.configs
        self._replicas: dict[TopicPartition, Partition] = {}
        self._refused: set[TopicPartition] = set()
        """Replicas that are to be here and cannot: their logs are out of reach."""
        self._produces: Purgatory[list[AppendResult]] = Purgatory(self._loop)
        self._fetches: Purgatory[list[FetchResult]] = Purgatory(self._loop)
        self._deletes: Purgatory[list[DeletedRecords]] = Purgatory(self._loop)
        self.conditions = Conditions()
        """Of the replicas here; for others to read only."""
        self._background = Background(context.fail)
        self._log = bind_log(context.runtime, logger="broker.replication")
        self._changes = RoleChanges(self._log)
        self._new_replicas = PartitionChangeQueue(self._apply, self._changes.log_changes)
        self._changed = PartitionChangeQueue(self._apply, self._changes.log_changes)
        """Of partitions that are here; no partition is in both queues."""
        self._brokers = BrokerDirectory(context.config.inter_broker_listener)
        readers = [context.runtime.worker(f"cold-reads-{n}") for n in range(cold_reads.WORKERS)]
        self._cold_reads = cold_reads.ColdReads(readers, self._replicas)
        lookups = context.runtime.worker("offset-lookups")
        self._offsets = OffsetLookups(lookups, self._replicas, self._absence)
        preparer = context.runtime.worker("prepare-produced")
        self.preparing = Preparing(preparer, self._replicas, context.runtime.wall_ms)
        """For batches, before `append`."""
        self._ack_flusher = AckFlusher(self._flushed)
        self.isr = IsrManager(context, self._isr_answered)
        self._places = DirectoryAssignments(context, logs)
        self._throttles = Throttles(self._broker_id)
        self.topics = TopicMetrics()
        """The counts of what is produced and fetched."""
        self._unknown = TopicCounts(broker=self.topics.broker)
        """Of partitions that are not here; only the broker's sums have them."""
        self._reads = Reads(
            context.config,
            self._replicas,
            self._absence,
            self._cold_reads,
            self._throttles.sending,
            self._brokers,
            self._fetches,
            self.turn,
        )
        self.connector = Connector(context.config, context.runtime)
        """To other brokers, for all parts of this one."""
        self.fetchers = Fetchers(
            context,
            logs,
            self._throttles.fetching,
            self._brokers.endpoint,
            lambda fetcher: self._background.start(fetcher.run()),
            self._fetches.wake,
            self.connector,
        )

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The partitions of which this broker has a replica; for reading only."""
        return self._replicas

    @property
    def refused(self) -> int:
        """How many replicas are to be here and cannot."""
        return len(self._refused)

    @property
    def waiting(self) -> Mapping[str, Purgatory[Any]]:
        """The requests that wait, under Apache Kafka's names of their kinds."""
        return {"Produce": self._produces, "Fetch": self._fetches, "DeleteRecords": self._deletes}

    @property
    def follows_image(self) -> bool:
        """True if every replica here leads or follows as the newest image says."""
        return not self._changed

    def invariants(self, changed: Iterable[Partition] | None = None) -> None:
        """Check the partitions that changed, all by default, and what they share.

        Raises InvariantViolation. Tests and the simulator call it after each event; production
        does not, since it looks at every segment, follower and waiting request.
        """
        changed = list(self._replicas.values() if changed is None else changed)
        for replica in changed:
            partition = replica.partition
            invariant(self._replicas.get(partition) is replica, "a partition is known by its name")
            invariant(partition not in self._refused, "what is here is not refused")
            invariant(
                self._logs.get(partition) is replica.log, "a partition has the log that is kept"
            )
            replica.invariants()
            if replica.log.offline is None:
                leader = NO_LEADER if replica.state.is_leader else replica.state.leader_id
                copied = self.fetchers.leader_of(partition)
                invariant(
                    copied == leader, "a follower copies from its leader, a leader from nobody"
                )
        self._new_replicas.invariants(self._replicas, changes=False)
        self._changed.invariants(self._replicas, changes=True)
        self.fetchers.invariants()
        self.isr.invariants()
        self._places.invariants()
        self._produces.invariants()
        self._fetches.invariants()
        self._deletes.invariants()
        self._logs.invariants()
        self.topics.invariants()
        self.conditions.invariants(self._replicas, changed)

    async def start(self) -> None:
        """Recover the logs; partitions are served once an image names them.

        Until then this broker cannot know which of its logs lead, or are of topics that exist.
        """
        await self._logs.start(self)
        self._context.stopped_cleanly(self._logs.clean_epoch)
        self._background.start(self._new_replicas.run())
        self._background.start(self._changed.run())
        self._background.start(self.isr.run())
        self._background.start(self._places.run())
        self._background.start(self._shrink_periodically())

    async def stop(self) -> None:
        """Stop copying, cancel the waiting requests, close the logs cleanly."""
        await self._background.stop()
        self.connector.close()
        self._produces.close()
        self._fetches.close()
        self._deletes.close()
        self._cold_reads.close()
        self._offsets.close()
        self.preparing.close()
        await self._logs.stop(self._context.broker_epoch())

    # --- images ---------------------------------------------------------------------------------

    def apply_delta(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Lead and follow as the image has it. Starts the work and does not wait for it.

        New replicas and changes are queued and applied a few at a time, except those of internal
        topics.
        """
        if self._image is EMPTY_IMAGE:
            self._set_strays_aside(image)
        self._image = self._brokers.image = image
        for topic in delta.deleted_topics.values():
            for partition_id in range(len(topic.partitions)):
                self._drop(TopicPartition(topic.name, partition_id), topic.topic_id)
        self._reconfigure(delta.changed_configs)
        for change in delta.changed_topics.values():
            for partition_id, after in sorted(change.partitions.items()):
                partition = TopicPartition(change.name, partition_id)
                replica = self._replicas.get(partition)
                if self._broker_id not in after.replicas:
                    self._drop(partition, change.topic_id)
                elif replica is None or replica.topic_id != change.topic_id:
                    self._new_replicas.add(partition, change.topic_id, after)
                elif change.name in INTERNAL_TOPICS:
                    # Coordinators go by the same image, right after. There are few of these.
                    self._apply(partition, change.topic_id, after)
                else:
                    self._changed.add(partition, change.topic_id, after)
        self._changed.take_some()
        self._new_replicas.take_some()
        if delta.changed_brokers:
            self._wake_deletes()
        if METADATA_VERSION_FEATURE in delta.changed_features:
            for replica in self._replicas.values():
                self._places.check(replica, image)

    def _wake_deletes(self) -> None:
        """Look again at deletions: a broker that is gone does not count for the low watermark."""
        if self._deletes:
            for partition in self._replicas:
                self._deletes.wake(partition)

    def _set_strays_aside(self, image: MetadataImage) -> None:
        """Set the logs aside that the first image does not have here, or that are here twice.

        Before any replica takes a log over: later no log is a stray.
        """
        for path in self._logs.keep_one(partial(_topic_id, image)):
            self._log.warning("second_log_set_aside", path=path)
        for partition in _strays(self._logs, image, self._broker_id):
            self._log.warning("stray_log", partition=str(partition))
            self._logs.delete(partition, aside=True)

    def _apply(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        """Lead or follow one partition as its image has it, with a new log if it has none."""
        replica = self._replicas.get(partition)
        if replica is None and self._is_out_of_reach(partition, image):
            return
        try:
            replica = self._host(partition, topic_id)
        except KafkaError as error:
            # Of this partition only: with no directory left, the node is ending already.
            self._refuse(partition, error.message)
            return
        self._places.check(replica, self._image)
        if replica.log.offline is not None:
            replica.stay_offline(image)
        elif image.leader == self._broker_id:
            self._lead(replica, image)
        else:
            self._follow(replica, image)
        self.conditions.note(replica)
        self._wake(partition)

    def _is_out_of_reach(self, partition: TopicPartition, image: PartitionImage) -> bool:
        """Return whether the replica's log may be in a directory that is offline since the start.

        No empty log may take its place then: it would count as in sync with nothing in it. A
        replica that is in no directory yet is out of reach only if it is in the ISR.
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
        self._log.error("replica_offline", partition=str(partition), why=why)
        self._refused.add(partition)

    def _lead(self, replica: Partition, image: PartitionImage) -> None:
        end = replica.log.log_end_offset
        if replica.state.become_leader(image, log_end_offset=end, now_ms=self._now_ms()):
            self.fetchers.unfollow(replica.partition)
            # Before any append: a follower of the former leader is cut by this entry, even if this
            # leader never writes a batch in its epoch (KIP-101).
            replica.log.epochs.assign(image.leader_epoch, end)
            self._ack_flusher.request(replica)
            self._changes.leads(replica, end)
        replica.advance(self._now_ms())

    def _follow(self, replica: Partition, image: PartitionImage) -> None:
        if not replica.state.become_follower(image):
            return
        self._changes.follows(replica, image.leader)
        self.fetchers.follow(replica, image.leader)

    def _host(self, partition: TopicPartition, topic_id: UUID) -> Partition:
        """Return the partition with this id; one of an earlier topic of its name is dropped."""
        replica = self._replicas.get(partition)
        if replica is not None and replica.topic_id == topic_id:
            return replica
        config = self._topic_config(partition.topic)
        log = self._logs.get(partition)
        if log is not None and log.topic_id is not None and log.topic_id != topic_id:
            self._drop(partition, log.topic_id)
            log = None
        if log is None:
            log = self._logs.create(partition, topic_id, config)
        else:
            if log.topic_id is None:
                self._logs.identify(log, topic_id)
            log.config = config
        state = PartitionState(
            self._broker_id,
            high_watermark=log.high_watermark,
            lag_time_max_ms=self._config.replica_lag_time_max_ms,
            may_join=self._brokers.may_join,
        )
        state.configure(log.config.min_insync_replicas)
        self._refused.discard(partition)
        counts = self.topics.hosted(partition.topic)
        replica = self._replicas[partition] = Partition(partition, topic_id, state, log, counts)
        return replica

    def _drop(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Forget a partition that is deleted or has moved away, and remove its log."""
        self._new_replicas.forget(partition, topic_id)
        self._changed.forget(partition, topic_id)
        self._refused.discard(partition)
        log = self._logs.get(partition)
        if log is None or log.topic_id != topic_id:
            return
        self.fetchers.unfollow(partition)
        self._places.forget(partition)
        replica = self._replicas.pop(partition, None)
        self._logs.delete(partition)
        if replica is not None:
            self.topics.dropped(partition.topic)
            self.conditions.forget(partition)
            replica.state.resign()
            replica.mark_dirty()
            self._wake(partition)

    def directory_failed(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        # Later, because the caller may be in the middle of an append to one of these partitions.
        self._loop.call_soon(self._take_offline, path, partitions)

    def _take_offline(self, path: str, partitions: Sequence[TopicPartition]) -> None:
        """Resign these partitions: they have no log here until the node restarts."""
        for partition in partitions:
            replica = self._replicas.get(partition)
            if replica is not None:
                self.fetchers.unfollow(partition)
                replica.state.resign()
                self.conditions.note(replica)
                self._wake(partition)
        directory_id = self._context.directory_ids.get(path)
        if directory_id is not None:
            self._context.directory_failed(directory_id)

    def _reconfigure(self, changed: Collection[tuple[int, str]]) -> None:
        """Apply the changed configs of topics, or of brokers where topics have none."""
        everywhere = any(kind == BROKER_RESOURCE for kind, _ in changed)
        topics = {name for kind, name in changed if kind == TOPIC_RESOURCE}
        if not everywhere and not topics:
            return
        self._throttles.configure(self._image)
        for partition, replica in self._replicas.items():
            if everywhere or partition.topic in topics:
                config = self._topic_config(partition.topic)
                replica.log.config = config
                replica.state.configure(config.min_insync_replicas)
                self.conditions.note(replica)
                if replica.state.is_leader:
                    self._ack_flusher.request(replica)
                replica.advance(self._now_ms())
                self._wake(partition)
                self.fetchers.touch(partition)

    def _topic_config(self, topic: str) -> TopicConfig:
        """Return the config of a topic, one object for all of its partitions."""
        is_full = len(self._topic_configs) >= _TOPIC_CONFIGS_MAX
        if is_full or self._configs_read_from is not self._image.configs:
            self._configs_read_from = self._image.configs
            self._topic_configs.clear()
        config = self._topic_configs.get(topic)
        if config is None:
            config = topic_config(self._image, topic, self._topic_defaults, self._broker_id)
            self._topic_configs[topic] = config
        return config

    # --- produce --------------------------------------------------------------------------------

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, Appendable]],
        request: RequestContext | None = None,
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Append to each partition; return results in the order of the entries, later if acks is
        -1.

        With acks=all a result comes when the high watermark has passed the batch, or after
        `timeout_ms` as REQUEST_TIMED_OUT: then the batch may still be committed. The `request`
        notes what it waited for.
        """
        results: list[AppendResult] = []
        appended: dict[int, Awaited] = {}
        now_ms, wall_ms = self._now_ms(), self._context.runtime.wall_ms()
        for index, (partition, batch) in enumerate(entries):
            replica = self._replicas.get(partition)
            if replica is None:
                error = self._absence(partition)
                self._unknown.refused(error)
                results.append(AppendResult(error))
                continue
            result, end_offset = replica.append(batch, acks, now_ms, wall_ms)
            results.append(result)
            if result.error is ErrorCode.NONE:
                appended[index] = Awaited(replica, end_offset)
                self._ack_flusher.request(replica)
        # After all appends, so that a Fetch that waits for several partitions finds all of them.
        for partition, _ in entries:
            self._wake(partition)
        if acks == 0:
            return results
        if acks != ALL_IN_SYNC:
            return self._ack_flusher.answer(results, appended)
        # Two batches may be of one partition, so this is asked after the last of them.
        awaited = {
            index: one
            for index, one in appended.items()
            if one.replica.state.acknowledged(one.required_offset) is not ErrorCode.NONE
        }
        if not awaited:
            return results
        operation = DelayedProduce(self.turn, results, awaited, request)
        return self._produces.wait(operation, operation.partitions, timeout_ms)

    # --- fetch ----------------------------------------------------------------------------------

    def fetch(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        index: FetchSessionIndex | None = None,
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Read from each partition; return results in their order, later if there are few bytes.

        `index` is that of a fetch session, of which `partitions` lists the dirty ones; the list
        grows by those that become dirty before there are enough bytes. A follower's fetch also
        says up to which offset it has the log, which may commit records.
        """
        if index is not None:
            index.begin(partitions, self._now_ms())
        if params.replica_id != CONSUMER:
            self._follower_fetched(params, partitions)
        return self._reads.fetch(params, partitions, index)

    def _follower_fetched(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        now_ms = self._now_ms()
        for wanted in partitions:
            replica = self._replicas.get(wanted.partition)
            if replica is None:
                continue
            error, moved = replica.follower_fetched(wanted, params, now_ms)
            # Without a move no produce is complete and no consumer sees more: with hundreds of
            # followers' fetches a second this is the common case.
            if moved:
                self._wake(wanted.partition)
            if self._deletes:
                self._deletes.wake(wanted.partition)
            if error is ErrorCode.NONE:
                proposal = replica.state.propose_expansion(params.replica_id)
                if proposal is not None:
                    self.isr.submit(replica, proposal)

    def note_answered(
        self, replica_id: int, partitions: Iterable[FetchPartition], results: Iterable[FetchResult]
    ) -> None:
        """Count the partitions of an answer to a fetch. One that a quota withholds is none."""
        to_follower = replica_id != CONSUMER
        for wanted, result in zip(partitions, results, strict=True):
            replica = self._replicas.get(wanted.partition)
            counts = self._unknown if replica is None else replica.counts
            counts.read(result.error, result.size, to_follower=to_follower)

    # --- offsets --------------------------------------------------------------------------------

    def list_offsets(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Return results in the order of the lookups, later if they must be read from disk."""
        return self._offsets.by_time(lookups, replica_id)

    def offsets_for_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Return the end of each (partition, current leader epoch, leader epoch), in order."""
        return self._offsets.by_leader_epoch(lookups)

    # --- administration -------------------------------------------------------------------------

    def delete_records(
        self, timeout_ms: int, entries: Sequence[tuple[TopicPartition, int]]
    ) -> list[DeletedRecords] | asyncio.Future[list[DeletedRecords]]:
        """Hide the records below each offset; return results when all live replicas follow.

        The results are in the order of the entries, each with the partition's low watermark. After
        `timeout_ms` they are REQUEST_TIMED_OUT: the records are gone at the leader, and will be at
        its followers (row L7, KIP-107).
        """
        results: list[DeletedRecords] = []
        awaited: dict[int, Awaited] = {}
        for index, (partition, offset) in enumerate(entries):
            replica = self._replicas.get(partition)
            if replica is None:
                results.append(DeletedRecords(self._absence(partition)))
                continue
            try:
                start = replica.delete_records(offset)
            except KafkaError as error:
                results.append(DeletedRecords(error.code))
                continue
            results.append(DeletedRecords(ErrorCode.NONE, start))
            awaited[index] = Awaited(replica, start)
            self.log_start_moved(partition)
        operation = DelayedDelete(self.turn, results, awaited, self._brokers.lives)
        if operation.complete_at_once():
            return operation.answer()
        return self._deletes.wait(operation, operation.partitions, timeout_ms)

    def producers(self, partition: TopicPartition) -> tuple[ErrorCode, list[ProducerFacts]]:
        """Return the producers of a partition that this broker leads."""
        replica = self._replicas.get(partition)
        return (self._absence(partition), []) if replica is None else replica.producers()

    def move_log(self, partition: TopicPartition, path: str) -> ErrorCode:
        """Move this broker's replica to another of `log.dirs`; see `LogManager.move`."""
        if self._image.topics.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self._logs.move(partition, path)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def log_copied(self, size: int) -> bool:
        now_ms, throttle = self._now_ms(), self._throttles.moving
        throttle.record(size, now_ms)
        return throttle.is_exceeded(now_ms)

    def log_moved(self, log: PartitionLog) -> None:
        replica = self._replicas.get(log.partition)
        if replica is not None:
            same_end = log.log_end_offset == replica.log.log_end_offset
            invariant(same_end, "a log that has moved has the same records")
            replica.log = log
            self._places.check(replica, self._image)
            self._ack_flusher.request(replica)

    async def log_directories(self) -> list[LogDirectoryFacts]:
        """Return the contents of each of `log.dirs`."""
        return await self._logs.describe()

    def _absence(self, partition: TopicPartition) -> ErrorCode:
        """Return why a partition is not here: its log is unusable, or it is elsewhere, or
        unknown.
        """
        if partition in self._refused:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._image.topics.partition(*partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # --- in-sync replicas -----------------------------------------------------------------------

    async def _shrink_periodically(self) -> None:
        """Propose smaller ISRs, every half lag time, so that a replica leaves after 1 to 1.5 times
        it.
        """
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2000)
            now_ms = self._now_ms()
            slices = Slices()
            for replica in list(self._replicas.values()):
                await slices.rest()
                end = replica.log.log_end_offset
                proposal = replica.state.propose_shrinking(end, now_ms)
                if proposal is not None:
                    self.isr.submit(replica, proposal)
                if replica.advance(now_ms):
                    self._wake(replica.partition)

    def _flushed(self, replica: Partition) -> None:
        """Advance after more of this leader's log has become durable: its own end may have been
        what the high watermark waited for.
        """
        if replica.advance(self._now_ms(), replica.state.broker_id):
            self._wake(replica.partition)

    def _isr_answered(self, replica: Partition) -> None:
        """Advance after a response to a proposal: a smaller ISR needs fewer replicas to commit.

        Wake in any case, for with too few replicas in sync waiting produces have an answer now.
        """
        # It may have left while the controller was asked.
        if self._replicas.get(replica.partition) is replica:
            self.conditions.note(replica)
        replica.advance(self._now_ms())
        self._wake(replica.partition)

    def log_start_moved(self, partition: TopicPartition) -> None:
        """Mark the partition dirty for its readers, and report its log start to its leader.

        No request waits for it, so none is woken.
        """
        replica = self._replicas.get(partition)
        if replica is not None:
            replica.mark_dirty()
            self.fetchers.touch(partition)

    def _wake(self, partition: TopicPartition) -> None:
        """Answer the requests that a change of the partition completes.

        Marked dirty first, so that a Fetch that is answered here reads the change in its session.
        """
        replica = self._replicas.get(partition)
        if replica is not None:
            replica.mark_dirty()
        self._produces.wake(partition)
        self._fetches.wake(partition)
        self._deletes.wake(partition)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
