"""Bugs planted into whole nodes: their shells, their controllers and their brokers' partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.log.producers import ProducerStates
from broker.replication import ReplicaManager
from broker.replication.partition import IsrProposal, Partition, PartitionState
from raftctl.controller import QuorumController
from raftctl.controller._cluster_control import ClusterControl
from raftctl.controller.partitions import _partition_change as partition_change
from raftctl.controller.partitions import _partition_reconciler as settling
from raftctl.controller.partitions import _replication_control as replication_control
from raftctl.errors import ErrorCode, KafkaError
from raftctl.loader import MetadataLoader
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, PartitionImage
from raftctl.metadata.image import _delta as delta
from raftctl.metadata.records import NO_LEADER, PartitionChangeRecord, ProducerIdsRecord
from raftctl.metadata.requests.kv import KvPutRequest
from raftctl.node import ControllerService
from raftctl.quorum import RaftDriver
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch
from raftctl.storage import _quorum_state as quorum_state
from raftctl.storage._quorum_state import QuorumStateStore
from raftctl.storage.log import RecordLog
from raftctl.storage.log._record_log import Cut, LogWriter, Write
from tests.mutants.group_catalog import GROUPS
from tests.mutants.lock_catalog import LOCKS
from tests.mutants.mutant import SILENT, Patch, node_mutant
from tests.mutants.outdated_catalog import OUTDATED
from tests.mutants.replica_catalog import REPLICAS
from tests.mutants.security_catalog import SECURITY_MUTANTS
from tests.mutants.simulation_catalog import SIMULATION_MUTANTS
from tests.mutants.transaction_catalog import TRANSACTION_MUTANTS
from tests.mutants.voter_catalog import VOTER_MUTANTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from broker.types import EpochEndOffset, FetchPartition
    from raftctl.codec import Row
    from raftctl.controller._cluster_control import _Heartbeat
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerRequest
    from raftctl.metadata.requests.cluster import AlterPartitionItem, BrokerHeartbeatRequest
    from raftctl.node._controller_service import Reply
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import Offset
    from raftctl.runtime.api import File, FileSystem
    from raftctl.storage.log._record_log import Operation
    from raftctl.storage.log._segment import Segment


# --- what is durable ----------------------------------------------------------------------------


def _replace_without_sync(files: FileSystem, path: str, data: bytes) -> None:
    temporary = path + ".tmp"
    file = files.open(temporary, create=True)
    file.append([data])
    file.close()
    files.rename(temporary, path)


def _write_without_sync(
    writer: LogWriter, operations: Sequence[Operation], end_offset: Offset
) -> None:
    for operation in operations:
        if isinstance(operation, Write):
            writer._file(operation.segment).append(operation.buffers)
        elif isinstance(operation, Cut):
            writer._cut(operation)


def _sync_again(writer: LogWriter, operations: Sequence[Operation], end_offset: Offset) -> None:
    try:
        _perform(writer, operations, end_offset)
    except OSError:
        _perform(writer, [], end_offset)


def _sync_only(log: RecordLog, segment: Segment, file: File) -> None:
    file.sync()


def _forget_state(store: QuorumStateStore) -> QuorumState:
    return QuorumState(Epoch(0), NO_NODE, None)


_perform = LogWriter.perform

DURABLE = (
    node_mutant(
        "vote_is_not_synced",
        "the quorum-state file is written, but not synced",
        ("vote_is_durable_before_it_counts",),
        Patch(quorum_state, "replace_file", _replace_without_sync),
    ),
    node_mutant(
        "metadata_log_is_not_synced",
        "appended records are written, but not synced",
        ("committed_is_durable_on_a_majority",),
        Patch(LogWriter, "perform", _write_without_sync),
    ),
    node_mutant(
        "failed_fsync_is_taken_for_done",
        "an fsync that fails is tried again, which succeeds and writes nothing",
        ("flushed_is_durable", "committed_is_durable_on_a_majority"),
        Patch(LogWriter, "perform", _sync_again),
        scenario="controllers_disks_fail",
    ),
    node_mutant(
        "cache_is_taken_for_durable",
        "recovery does not write again what an fsync that failed had left in the cache",
        ("flushed_is_durable", "committed_is_durable_on_a_majority"),
        Patch(RecordLog, "_make_durable", _sync_only),
        scenario="controllers_disks_fail",
    ),
    node_mutant(
        "vote_is_forgotten_at_restart",
        "a restarted voter does not read its quorum-state file",
        ("epoch_never_goes_back", "one_leader_per_epoch", "no_epoch_is_led_twice"),
        Patch(QuorumStateStore, "load", _forget_state),
        scenario="controllers_restart_amid_elections",
    ),
)

# --- the controller -----------------------------------------------------------------------------


def _answer_at_once(
    service: ControllerService, request: ControllerRequest, reply: Reply, peer_id: int = NO_NODE
) -> None:
    if isinstance(request, KvPutRequest):
        _answer(service, request, reply, peer_id)
        return
    service._puts.decide()
    if not service._controller.active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    result = service._controller.handle(request, service._now_ms())
    reply(result.response_at(service._append(result.records)))


def _publish_at_once(service: ControllerService, high_watermark: int) -> None:
    if service._controller.active:
        high_watermark = service._last_appended + 1
    _on_committed(service, high_watermark)


def _read_uncommitted(driver: RaftDriver, offset: Offset, max_bytes: int) -> list[Batch]:
    return driver.log.batches(offset, max_bytes)


def _replay_without_producer_ids(loader: MetadataLoader, batches: list[Batch]) -> None:
    told = delta._REPLAY[ProducerIdsRecord]
    delta._REPLAY[ProducerIdsRecord] = MetadataDelta._ignore
    try:
        _replay(loader, batches)
    finally:
        delta._REPLAY[ProducerIdsRecord] = told


def _keep_uncommitted(controller: QuorumController) -> None:
    kept = controller.image if controller._uncommitted else EMPTY_IMAGE
    _renounce(controller)
    controller._committed_image = kept


def _claim_kept_image(
    controller: QuorumController,
    epoch: int,
    image: MetadataImage,
    now_ms: int,
    *,
    in_transaction: bool = False,
) -> list[Record]:
    kept = controller._committed_image
    if kept.offset >= 0:
        image = replace(
            kept, offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms
        )
    return _claim(controller, epoch, image, now_ms, in_transaction=in_transaction)


def _keep_leader_epoch(partition: PartitionImage, row: Row) -> PartitionImage:
    return _changed(partition, row)._replace(leader_epoch=partition.leader_epoch)


def _elect_any_replica(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    *,
    unclean: bool = False,
    min_isr: int = 0,
) -> PartitionChangeRecord | None:
    return _elect(topic_id, partition_id, partition, active, unclean=True, min_isr=min_isr)


def _prefer_the_preferred(
    topic_id: UUID,
    partition_id: int,
    partition: PartitionImage,
    active: frozenset[int],
    *,
    unclean: bool = False,
    min_isr: int = 0,
) -> PartitionChangeRecord | None:
    preferred = partition.replicas[0]
    if preferred not in active or partition.leader in (preferred, NO_LEADER):
        return _elect(topic_id, partition_id, partition, active, unclean=unclean, min_isr=min_isr)
    isr = tuple(one for one in partition.replicas if one in active and one in partition.isr)
    isr = isr if preferred in isr else (preferred, *isr)
    return PartitionChangeRecord(topic_id, partition_id, isr=isr, leader=preferred)


def _fence_without_election(
    control: ClusterControl, image: MetadataImage, brokers: Sequence[BrokerImage]
) -> list[Record]:
    return [*_fence(control, image, brokers)[: len(brokers)]]


def _never_refuse(
    image: MetadataImage, sender: int, item: AlterPartitionItem, partition: PartitionImage
) -> ErrorCode:
    return ErrorCode.NONE


def _unfence_at_once(
    control: ClusterControl,
    image: MetadataImage,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
) -> _Heartbeat:
    return _heartbeat_of_fenced(
        control, image, broker, replace(request, want_fence=False, metadata_offset=1 << 60)
    )


_replay = MetadataLoader._replay
_answer = ControllerService.answer
_on_committed = ControllerService.on_committed
_claim = QuorumController.claim
_renounce = QuorumController.renounce
_changed = PartitionImage.changed
_elect = partition_change.elect
_fence = ClusterControl._fence
_heartbeat_of_fenced = ClusterControl._heartbeat_of_fenced

CONTROLLER = (
    node_mutant(
        "controller_answers_before_commit",
        "the controller answers when it has appended",
        ("acknowledged_topic_stays", "producer_ids_are_granted_by_the_log"),
        Patch(ControllerService, "answer", _answer_at_once),
        scenario="controller_is_isolated",
    ),
    node_mutant(
        "controller_publishes_before_commit",
        "the active controller publishes what it has appended",
        ("image_is_committed",),
        Patch(ControllerService, "on_committed", _publish_at_once),
    ),
    node_mutant(
        "standby_skips_a_record",
        "brokers and standbys do not replay what producer ids were given out",
        ("images_agree",),
        Patch(MetadataLoader, "_replay", _replay_without_producer_ids),
    ),
    node_mutant(
        "observer_reads_uncommitted",
        "brokers and standbys replay records above the high watermark",
        ("image_is_committed",),
        Patch(RaftDriver, "read", _read_uncommitted),
    ),
    node_mutant(
        "roll_back_is_forgotten",
        "a controller that lost leadership keeps what was not committed",
        ("images_agree",),
        Patch(QuorumController, "renounce", _keep_uncommitted),
        Patch(QuorumController, "claim", _claim_kept_image),
        scenario="controller_is_isolated",
    ),
    node_mutant(
        "leader_epoch_stays",
        "a new partition leader leads in the old leader epoch",
        (
            "partition_epochs_never_go_back",
            "one_leader_per_leader_epoch",
            "controller_is_sound",
        ),
        Patch(PartitionImage, "changed", _keep_leader_epoch),
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "preferred_replica_leads",
        "a preferred replica that comes back takes over, in sync or not",
        ("new_isr_member_has_all_committed", "new_partition_leader_has_all_committed"),
        Patch(settling, "elect", _prefer_the_preferred),
        scenario="preferred_replica_comes_back_slowly",
    ),
    node_mutant(
        "unclean_election",
        "without an in-sync replica any active one is elected",
        ("new_partition_leader_has_all_committed", "new_isr_member_has_all_committed"),
        Patch(settling, "elect", _elect_any_replica),
        scenario="replicas_leave_until_none_is_left",
    ),
    node_mutant(
        "fenced_broker_leads",
        "a fenced broker keeps what it leads",
        ("leader_is_not_fenced", "controller_is_sound"),
        Patch(ClusterControl, "_fence", _fence_without_election),
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "alter_partition_is_never_refused",
        "the controller believes a deposed leader",
        ("leader_is_in_isr_and_isr_in_replicas", "controller_is_sound"),
        Patch(replication_control, "_refusal", _never_refuse),
        SILENT,
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "unfenced_before_catch_up",
        "a broker is unfenced before it has seen its registration",
        ("unfenced_broker_has_caught_up",),
        Patch(ClusterControl, "_heartbeat_of_fenced", _unfence_at_once),
        scenario="broker_comes_back_slowly",
    ),
)

# --- partitions ---------------------------------------------------------------------------------


def _own_log_only(
    state: PartitionState, log_end_offset: int, now_ms: int, by: int | None = None
) -> bool:
    if not state.is_leader or state.is_under_min_insync or log_end_offset <= state.high_watermark:
        return False
    state.high_watermark = log_end_offset
    return True


def _without_min_isr(
    state: PartitionState, log_end_offset: int, now_ms: int, by: int | None = None
) -> bool:
    required, state.min_insync_replicas = state.min_insync_replicas, 1
    moved = _advance(state, log_end_offset, now_ms, by)
    state.min_insync_replicas = required
    return moved


def _acknowledge_at_once(state: PartitionState, required_offset: int) -> ErrorCode | None:
    return ErrorCode.NONE if state.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _no_limit(replica: Partition, replica_id: int, *, read_committed: bool = False) -> int:
    return replica.log.log_end_offset


def _truncate_to_high_watermark(
    manager: ReplicaManager, replica: Partition, image: PartitionImage
) -> None:
    if image.leader_epoch > replica.state.leader_epoch:
        replica._truncated(replica.log.truncate_to(replica.state.high_watermark))
    _follow(manager, replica, image)


def _never_diverging(replica: Partition, wanted: FetchPartition) -> EpochEndOffset | None:
    return None


def _forget_producers(manager: ReplicaManager, replica: Partition, image: PartitionImage) -> None:
    if image.leader_epoch > replica.state.leader_epoch:
        replica.log.producers = ProducerStates()
    _lead(manager, replica, image)


def _join_at_once(state: PartitionState, replica_id: int) -> IsrProposal | None:
    follower = state.followers.get(replica_id)
    if follower is None or state.proposal is not None or replica_id in state.isr:
        return None
    if not state._may_join(replica_id, follower.broker_epoch):
        return None
    return state._propose((*state.isr, replica_id))


def _minimal_isr(state: PartitionState, isr: tuple[int, ...]) -> IsrProposal:
    proposal = _propose(state, isr)
    state.maximal_isr = isr if len(isr) < len(state.isr) else state.isr
    return proposal


def _nobody_joins(*_arguments: object) -> bool:
    return False


_advance = PartitionState.advance_high_watermark
_follow = ReplicaManager._follow
_lead = ReplicaManager._lead
_propose = PartitionState._propose

PARTITIONS = (
    node_mutant(
        "high_watermark_of_leader_only",
        "a partition's high watermark is its leader's log end",
        ("committed_record_is_on_the_isr",),
        Patch(PartitionState, "advance_high_watermark", _own_log_only),
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "high_watermark_without_min_isr",
        "the high watermark advances with fewer than min.insync.replicas",
        ("high_watermark_waits_for_min_isr",),
        Patch(PartitionState, "advance_high_watermark", _without_min_isr),
        scenario="replicas_leave_until_none_is_left",
    ),
    node_mutant(
        "acknowledged_before_commit",
        "acks=all is answered when the leader has appended",
        ("inconsistent-offsets", "unseen"),
        Patch(PartitionState, "acknowledged", _acknowledge_at_once),
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "consumer_reads_uncommitted",
        "consumers read above the high watermark",
        ("seen_record_stays", "inconsistent-offsets"),
        Patch(Partition, "limit_for", _no_limit),
        SILENT,
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "follower_truncates_to_high_watermark",
        "a follower cuts its log at its high watermark, not where epochs differ",
        ("no_committed_record_is_cut", "new_partition_leader_has_all_committed"),
        Patch(ReplicaManager, "_follow", _truncate_to_high_watermark),
        scenario="replicas_leave_until_none_is_left",
    ),
    node_mutant(
        "partition_divergence_is_not_noticed",
        "a follower keeps a tail that its leader does not have",
        ("committed_record_never_changes",),
        Patch(Partition, "diverging", _never_diverging),
        scenario="partition_leader_is_isolated",
    ),
    node_mutant(
        "producers_forgotten_by_new_leader",
        "a new leader knows no producer",
        ("duplicate",),
        Patch(ReplicaManager, "_lead", _forget_producers),
        scenario="acknowledgement_is_lost",
    ),
    node_mutant(
        "replica_joins_before_catch_up",
        "a follower enters the ISR at its first fetch",
        ("new_isr_member_has_all_committed",),
        Patch(PartitionState, "propose_expansion", _join_at_once),
        scenario="broker_comes_back_slowly",
    ),
    node_mutant(
        "proposed_isr_does_not_count",
        "the high watermark waits for the smaller of two possible ISRs (KIP-497)",
        ("committed_record_never_changes", "committed_record_is_on_the_isr"),
        Patch(PartitionState, "_propose", _minimal_isr),
        Patch(PartitionState, "_about_to_join", _nobody_joins),
        scenario="partition_leader_is_isolated",
    ),
)

NODE_MUTANTS = (
    *DURABLE,
    *CONTROLLER,
    *VOTER_MUTANTS,
    *SIMULATION_MUTANTS,
    *SECURITY_MUTANTS,
    *PARTITIONS,
    *REPLICAS,
    *OUTDATED,
    *LOCKS,
    *GROUPS,
    *TRANSACTION_MUTANTS,
)
