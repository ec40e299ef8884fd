"""Bugs planted into brokers' replicas: how they follow, cut, append and fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.handler.fetch_sessions import FetchSession
from broker.log.partition_log import Flusher
from broker.log.producers import ProducerStates
from broker.log.segments import Segment
from broker.replication import ReplicaManager
from broker.replication._produced_batches import AckFlusher
from broker.replication.fetcher._fetcher import Fetcher
from broker.replication.partition import Partition, PartitionState
from raftctl.node._registrations import BrokerLifecycle
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from uuid import UUID

    from broker.apis.handler.fetch_sessions import SessionRequest
    from broker.log.batches.record_batch import BatchHeader
    from broker.log.partition_log import PartitionLog
    from broker.log.partition_log._flush import FlushPlan
    from broker.log.producers._producer_state import SentBatch
    from broker.types import TopicPartition
    from raftctl.metadata.image import PartitionImage


def _believe_the_leader(
    state: PartitionState, leader_high_watermark: int, log_end_offset: int
) -> bool:
    moved = leader_high_watermark > state.high_watermark
    state.high_watermark = max(state.high_watermark, leader_high_watermark)
    return moved


def _follow_back(state: PartitionState, leader_high_watermark: int, log_end_offset: int) -> bool:
    state.high_watermark = min(leader_high_watermark, log_end_offset)
    return True


def _cut_when_opened(
    manager: ReplicaManager, partition: TopicPartition, topic_id: UUID
) -> Partition:
    known = manager._replicas.get(partition)
    replica = _host(manager, partition, topic_id)
    if replica is not known:
        replica.log.truncate_to(replica.log.high_watermark)
    return replica


def _keep_first_wants(session: FetchSession, request: SessionRequest) -> None:
    known = {key: cached.wanted for key, cached in session.partitions.items()}
    _update(session, request)
    for key, wanted in known.items():
        if key in session.partitions:
            session.partitions[key].wanted = wanted


def _count_unflushed(replica: Partition, now_ms: int, by: int | None = None) -> bool:
    moved = replica.state.advance_high_watermark(replica.log.log_end_offset, now_ms, by)
    if moved:
        replica._keep_high_watermark()
    return moved


def _never(flusher: AckFlusher, replica: Partition) -> None:
    return None


async def _claim_unflushed(fetcher: Fetcher) -> None:
    return None


def _tell_nobody(lifecycle: BrokerLifecycle, directory_id: UUID) -> None:
    return None


def _start_anew(manager: ReplicaManager, path: str, gone: Sequence[TopicPartition]) -> None:
    for partition in gone:
        topic_id = manager._replicas[partition].topic_id
        manager._drop(partition, topic_id)
        topic = manager._image.topics.by_id(topic_id)
        assert topic is not None
        manager._new_replicas.add(partition, topic_id, topic.partitions[partition.partition])


def _within_reach(
    manager: ReplicaManager, partition: TopicPartition, image: PartitionImage
) -> bool:
    return False


def _take_for_done(
    flusher: Flusher,
    log: PartitionLog,
    plan: FlushPlan,
    begun_at: float,
    done: asyncio.Future[None],
) -> None:
    done.exception()
    log.flushed(plan)
    flusher._resolve(log, log.recovery_point)


def _recover_only(segment: Segment, durable_below: int = 0, *, rewrite: bool = False) -> int:
    return _recover(segment, durable_below)


def _never_a_repetition(states: ProducerStates, header: BatchHeader) -> SentBatch | None:
    return None


_host = ReplicaManager._host
_recover = Segment.recover
_update = FetchSession.update

REPLICAS = (
    node_mutant(
        "high_watermark_beyond_the_log",
        "a follower takes over its leader's high watermark, whatever it has itself",
        ("high_watermark_is_within_the_log",),
        Patch(PartitionState, "follow_high_watermark", _believe_the_leader),
        scenario="follower_catches_up_in_small_steps",
    ),
    node_mutant(
        "high_watermark_goes_back",
        "a follower takes over a high watermark lower than its own",
        ("replica_never_truncates_committed",),
        Patch(PartitionState, "follow_high_watermark", _follow_back),
        scenario="follower_restarts_then_leader_dies",
    ),
    node_mutant(
        "log_is_cut_to_high_watermark_at_restart",
        "a replica that restarts cuts its log at the high watermark it had written down",
        ("new_partition_leader_has_all_committed",),
        Patch(ReplicaManager, "_host", _cut_when_opened),
        scenario="both_replicas_crash",
    ),
    node_mutant(
        "fetch_session_misses_changes",
        "a fetch session reads where it first was told to",
        ("liveness",),
        Patch(FetchSession, "update", _keep_first_wants),
        scenario="both_replicas_crash",
    ),
    node_mutant(
        "leader_counts_what_it_has_not_flushed",
        "with flush.on.ack a leader's own log counts, on its disk or not",
        ("new_partition_leader_has_all_committed", "unseen", "inconsistent-offsets"),
        Patch(Partition, "advance", _count_unflushed),
        Patch(AckFlusher, "request", _never),
        scenario="all_brokers_lose_power",
    ),
    node_mutant(
        "follower_claims_what_it_has_not_flushed",
        "with flush.on.ack a follower fetches on before what it got is on its disk",
        ("new_partition_leader_has_all_committed", "unseen", "inconsistent-offsets"),
        Patch(Fetcher, "_flush", _claim_unflushed),
        scenario="all_brokers_lose_power",
    ),
    node_mutant(
        "failed_flush_is_taken_for_done",
        "with flush.on.ack an fsync that fails is taken for one that did not",
        ("unseen", "inconsistent-offsets", "new_partition_leader_has_all_committed"),
        Patch(Flusher, "_flushed", _take_for_done),
        scenario="syncs_fail_before_the_power",
    ),
    node_mutant(
        "failed_flush_is_forgotten_by_a_restart",
        "what a failed fsync left in memory alone is taken for written after a restart",
        (
            "flushed_record_stays",
            "unseen",
            "inconsistent-offsets",
            # The broker starts without the records, and may lead if nobody else is left.
            "new_partition_leader_has_all_committed",
        ),
        Patch(Segment, "recover", _recover_only),
        scenario="syncs_fail_before_a_restart_and_the_power",
    ),
    node_mutant(
        "repetition_is_appended",
        "a leader appends what a producer sends again",
        ("duplicate",),
        Patch(ProducerStates, "check", _never_a_repetition),
        scenario="acknowledgement_is_lost",
    ),
    node_mutant(
        "failed_directory_is_kept_secret",
        "a broker does not tell the controller of a log directory that failed",
        ("liveness",),
        Patch(BrokerLifecycle, "directory_failed", _tell_nobody),
        scenario="log_directory_of_a_replica_fails",
    ),
    node_mutant(
        "log_is_made_anew_elsewhere",
        "a replica whose log directory failed goes on with an empty log in another one",
        ("seen_record_stays", "inconsistent-offsets", "replica_never_truncates_committed"),
        Patch(ReplicaManager, "_take_offline", _start_anew),
        Patch(ReplicaManager, "_is_out_of_reach", _within_reach),
        scenario="log_directory_of_a_replica_fails",
    ),
)
