"""What brokers and administrators do in order, judged by the invariants alone.

No test here says what is to come of it: `Cluster` has everything checked after each event. Planted
bugs show that this is enough (`tests/mutants/controller_invariant_edits.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig
from raftctl.metadata.features import ELR_FEATURE, METADATA_VERSION_FEATURE, supported_ranges
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import NO_LEADER, TOPIC_RESOURCE, FeatureRange
from raftctl.metadata.requests.admin import (
    PREFERRED_ELECTION,
    UPGRADE,
    AlterConfigsRequest,
    AlterOperation,
    AlterReassignmentsRequest,
    ConfigAlteration,
    ConfigChange,
    CreatePartitionsRequest,
    ElectLeadersRequest,
    FeatureUpdate,
    NewPartitions,
    Reassignment,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    DirectoryAssignment,
    NewTopic,
    RegisterControllerRequest,
)
from raftctl.metadata.requests.kv import (
    KvCloseSessionRequest,
    KvDeleteRequest,
    KvGuardedWriteRequest,
    KvLockRequest,
    KvOpenSessionRequest,
    KvPutRequest,
    KvUnlockRequest,
)
from raftctl.metadata.requests.security import (
    AclBinding,
    AclFilter,
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    QuotaAlteration,
    ScramDeletion,
    ScramUpsertion,
)
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, ENDPOINTS, SESSION_MS, Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("C1", "C2", "C5", "C6", "C7")
A, B = UUID(int=11), UUID(int=12)


def directory(broker_id: int) -> UUID:
    return UUID(int=100 + broker_id)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three active brokers with a topic of three partitions; at the end comes one more tick."""
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        cluster.register(broker_id, directories=(directory(broker_id),))
        cluster.heartbeat(broker_id)
    cluster.assign("t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    yield cluster
    cluster.tick(cluster.now_ms)


def alter_isr(cluster: Cluster, *isr: int) -> None:
    leader = cluster.partition("t").leader
    cluster.alter(leader, cluster.item("t", *isr))


def reassign(cluster: Cluster, *replicas: int) -> None:
    moved = Reassignment("t", 0, tuple(replicas) or None)
    cluster.admin(AlterReassignmentsRequest((moved,)))


def enable_elr(cluster: Cluster, min_isr: str = "2") -> None:
    cluster.handle(UpdateFeaturesRequest((FeatureUpdate(ELR_FEATURE, 1, UPGRADE),)))
    change = ConfigChange("min.insync.replicas", AlterOperation.SET, min_isr)
    cluster.admin(AlterConfigsRequest((ConfigAlteration(TOPIC_RESOURCE, "t", (change,)),)))


# --- brokers --------------------------------------------------------------------------------------


def test_brokers_are_fenced_one_by_one(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    for broker_id in (3, 2, 1):
        cluster.heartbeat(broker_id)


def test_all_brokers_are_silent(cluster: Cluster) -> None:
    cluster.tick(SESSION_MS)
    cluster.heartbeat(2)


def test_a_broker_is_silent_and_another_is_not(cluster: Cluster) -> None:
    for now_ms in range(1_000, 2 * SESSION_MS, 1_000):
        cluster.tick(now_ms)
        cluster.heartbeat(1)


def test_a_broker_stops_in_order(cluster: Cluster) -> None:
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.register(1, 1)
    cluster.heartbeat(1)


def test_a_broker_is_replaced_after_a_crash(cluster: Cluster) -> None:
    cluster.tick(SESSION_MS)
    cluster.register(1, 1)
    cluster.heartbeat(1)


def test_the_same_incarnation_registers_again(cluster: Cluster) -> None:
    cluster.register(1, rack="r", directories=(directory(1),))
    cluster.heartbeat(1)


def test_a_broker_is_unregistered(cluster: Cluster) -> None:
    cluster.handle(UnregisterBrokerRequest(2))
    cluster.register(2, 1)
    cluster.heartbeat(2)


def test_registrations_are_refused(cluster: Cluster) -> None:
    cluster.register(4, directories=(directory(1),))
    cluster.register(5, endpoints=(*ENDPOINTS, *ENDPOINTS))
    cluster.heartbeat(1)


def test_features_of_nodes_are_refused(cluster: Cluster) -> None:
    """Levels above those that a node supports, and ranges that contain no level."""
    newer = FeatureRange(ELR_FEATURE, 0, 1)
    old = tuple(known for known in supported_ranges() if known != newer)
    cluster.register(4, features=old)
    cluster.register(-1, features=old)
    cluster.register(5, features=(FeatureRange("f", 2, 1), *old))
    cluster.register(6, features=(*old, *old))
    cluster.register(7, features=(FeatureRange(METADATA_VERSION_FEATURE, 1, 1),))
    enable_elr(cluster)
    cluster.handle(UnregisterBrokerRequest(4))
    cluster.handle(RegisterControllerRequest(9, A, CLUSTER_ID, old))
    cluster.handle(RegisterControllerRequest(-1, A, CLUSTER_ID, old))
    cluster.handle(RegisterControllerRequest(10, A, CLUSTER_ID, (FeatureRange("f", 2, 1), *old)))
    enable_elr(cluster)


def test_ids_of_producers_are_given_out_once(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        epoch = cluster.image.brokers[broker_id].broker_epoch
        cluster.handle(AllocateProducerIdsRequest(broker_id, epoch))


def test_the_next_controller_goes_on(cluster: Cluster) -> None:
    image = cluster.image
    cluster.controller.committed(image.offset)
    cluster.controller.renounce()
    cluster.controller.invariants()
    cluster.claim(image)
    cluster.tick(cluster.now_ms + SESSION_MS)


def test_a_controller_balances_leaders_until_it_renounces() -> None:
    cluster = Cluster(ControllerConfig(cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS))
    cluster.start(1, 2)
    cluster.assign("t", (1, 2), (1, 2))
    cluster.fence(1)
    cluster.heartbeat(1)
    for _ in range(40):
        cluster.tick(cluster.now_ms + SESSION_MS - 1)
        cluster.heartbeat(1)
        cluster.heartbeat(2)
    cluster.controller.committed(cluster.image.offset)
    cluster.controller.renounce()
    cluster.controller.invariants()


def test_what_is_not_committed_is_dropped(cluster: Cluster) -> None:
    committed = cluster.image
    cluster.controller.committed(committed.offset)
    cluster.create(NewTopic("u", 1, 1))
    assert cluster.image is not committed
    cluster.controller.renounce()
    cluster.controller.invariants()
    del cluster.records[committed.offset + 1 :]
    cluster.claim(committed)


# --- partitions -----------------------------------------------------------------------------------


def test_isrs_shrink_and_grow(cluster: Cluster) -> None:
    cluster.start(4)
    for isr in ((1, 2), (1,), (1, 3), (1, 2, 3), (2, 3), (1, 1), (1, 4)):
        alter_isr(cluster, *isr)


def test_an_isr_below_the_minimum_has_eligible_leaders(cluster: Cluster) -> None:
    enable_elr(cluster)
    alter_isr(cluster, 1)
    cluster.fence(1)
    cluster.fence(2)
    cluster.heartbeat(2)
    cluster.heartbeat(1)


def test_a_leader_that_recovers_is_fenced(cluster: Cluster) -> None:
    """It becomes an eligible leader: without it, the ISR is empty."""
    alter_isr(cluster, 1)
    unclean = ConfigChange("unclean.leader.election.enable", AlterOperation.SET, "true")
    cluster.admin(AlterConfigsRequest((ConfigAlteration(TOPIC_RESOURCE, "t", (unclean,)),)))
    cluster.fence(1)
    assert cluster.partition("t").leader_recovering
    enable_elr(cluster)
    cluster.fence(3)
    cluster.fence(2)
    assert cluster.state("t") == (NO_LEADER, ())
    cluster.heartbeat(2)
    assert cluster.state("t") == (2, (2,))


def test_the_minimum_is_lowered(cluster: Cluster) -> None:
    enable_elr(cluster, "3")
    alter_isr(cluster, 1, 2)
    enable_elr(cluster, "1")


def test_a_crash_takes_eligibility(cluster: Cluster) -> None:
    enable_elr(cluster, "3")
    alter_isr(cluster, 1, 2)
    cluster.fence(3)
    cluster.tick(SESSION_MS)
    cluster.register(3, 1)


def test_a_partition_moves(cluster: Cluster) -> None:
    cluster.start(4)
    reassign(cluster, 4, 1)
    cluster.alter(1, cluster.item("t", 1, 2, 3, 4))
    reassign(cluster, 2, 3)
    cluster.fence(2)


def test_a_move_is_cancelled(cluster: Cluster) -> None:
    cluster.start(4)
    reassign(cluster, 4, 1)
    reassign(cluster)


def test_a_partition_does_not_move_away(cluster: Cluster) -> None:
    cluster.handle(AlterReassignmentsRequest((Reassignment("t", 0, ()),)))


def test_preferred_leaders_come_back(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.heartbeat(1)
    cluster.handle(ElectLeadersRequest(PREFERRED_ELECTION, (("t", 0),)))
    alter_isr(cluster, *(2, 3, 1))
    cluster.handle(ElectLeadersRequest(PREFERRED_ELECTION, (("t", 0), ("t", 0), ("t", 1))))


def test_directories_fail(cluster: Cluster) -> None:
    topic_id = cluster.topic("t").topic_id
    for broker_id in (1, 2):
        epoch = cluster.image.brokers[broker_id].broker_epoch
        where = DirectoryAssignment(topic_id, 0, directory(broker_id))
        cluster.handle(AssignReplicasToDirsRequest(broker_id, epoch, (where,)))
    reassign(cluster, 1, 3)
    epoch, offset = cluster.image.brokers[1].broker_epoch, cluster.image.offset
    failed = (directory(1),)
    cluster.handle(BrokerHeartbeatRequest(1, epoch, offset, False, False, failed))


def test_topics_come_and_go(cluster: Cluster) -> None:
    cluster.create(NewTopic("u", 3, 2, configs=(("retention.ms", "1"),)), NewTopic("v", 1, 3))
    cluster.fence(3)
    cluster.create(NewTopic("w", assignments=((0, (3, 1)), (1, (2, 3)))))
    cluster.create(NewTopic("x", assignments=((0, (1, 1)),)))
    cluster.create(NewTopic("..", 1, 1))
    cluster.delete(("u", None), ("t", None))
    cluster.create(NewTopic("u", 1, 1))


def test_requests_are_for_too_many_partitions() -> None:
    config = ControllerConfig(CLUSTER_ID, SESSION_MS, request_partitions_max=3)
    cluster = Cluster(config)
    cluster.start(1)
    pair = ((0, (1,)), (1, (1,)))
    cluster.create(NewTopic("t", assignments=pair), NewTopic("u", assignments=pair))
    cluster.admin(CreatePartitionsRequest((NewPartitions("t", 9),)))


def test_the_first_image_is_sound() -> None:
    EMPTY_IMAGE.invariants()


# --- keys and values, security --------------------------------------------------------------------


def test_sessions_own_keys_and_locks(cluster: Cluster) -> None:
    for session_id in (A, B):
        cluster.handle(KvOpenSessionRequest(session_id, 1_000))
        cluster.handle(KvLockRequest("lock", session_id, b"here"))
        key = f"key-{session_id}"
        cluster.handle(KvGuardedWriteRequest(key, b"v", session_id=session_id))
    cluster.handle(KvGuardedWriteRequest(f"key-{A}", b"w", session_id=B))
    cluster.handle(KvDeleteRequest(f"key-{B}"))
    holder = cluster.image.coordination.queue("lock")[0].token
    cluster.handle(KvUnlockRequest("lock", holder))
    cluster.handle(KvCloseSessionRequest(B))
    cluster.tick(1_000)


def test_keys_are_counted(cluster: Cluster) -> None:
    for value in (b"1", b"333", b""):
        cluster.handle(KvPutRequest("key", value))
    cluster.handle(KvDeleteRequest("key"))


def test_a_session_opens_after_a_failover(cluster: Cluster) -> None:
    cluster.handle(KvOpenSessionRequest(A, 1_000))
    image = cluster.image
    cluster.controller.committed(image.offset)
    cluster.controller.renounce()
    cluster.claim(image)
    cluster.tick(cluster.now_ms + 1_000)


def test_rules_and_credentials_are_removed_once(cluster: Cluster) -> None:
    binding = AclBinding(2, "t", 3, "User:a", "*", 3, 3)
    cluster.handle(CreateAclsRequest((binding, binding)))
    every = AclFilter(1, None, 1, None, None, 1, 1)
    cluster.handle(DeleteAclsRequest((every, every)))
    added = ScramUpsertion("u", 1, 4_096, b"salt", b"p" * 32)
    cluster.handle(AlterScramRequest((), (added,)))
    cluster.handle(AlterScramRequest((ScramDeletion("u", 1),), ()))
    cluster.handle(AlterScramRequest((ScramDeletion("u", 1),), ()))


def test_sessions_expire_one_by_one(cluster: Cluster) -> None:
    for session_id, timeout_ms in ((A, 1_000), (B, 2_000)):
        cluster.handle(KvOpenSessionRequest(session_id, timeout_ms))
    cluster.tick(1_000)
    cluster.handle(KvCloseSessionRequest(B))
    cluster.handle(KvOpenSessionRequest(B, 60_000))
    cluster.tick(2_000)


def test_entries_and_quotas_are_stored_once(cluster: Cluster) -> None:
    reading, writing = (AclBinding(2, "t", 3, "User:a", "*", each, 3) for each in (3, 4))
    cluster.handle(CreateAclsRequest((reading, writing)))
    for entity in ((("user", "u"), ("user", "v")), (("user", "u"), ("client-id", "c"))):
        for value in (1.0, 0.0, float("inf")):
            changes = (("producer_byte_rate", value),)
            cluster.handle(AlterClientQuotasRequest((QuotaAlteration(entity, changes),)))
    twice = (("producer_byte_rate", 2.0), ("producer_byte_rate", 3.0))
    cluster.handle(AlterClientQuotasRequest((QuotaAlteration((("user", "u"),), twice),)))
