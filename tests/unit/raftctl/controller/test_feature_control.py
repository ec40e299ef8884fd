"""Features: levels go up, and down where nothing is lost; brokers are unregistered."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.controller import _cluster_control as cluster_control
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    ELR_FEATURE,
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
)
from raftctl.metadata.image import MetadataImage
from raftctl.metadata.image.types import ControllerImage
from raftctl.metadata.records import BROKER_RESOURCE, NO_LEADER, ClientQuotaRecord, FeatureRange
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AdminResponse,
    FeatureUpdate,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import RegisterControllerRequest, RegisterControllerResponse
from raftctl.metadata.requests.kv import KvCloseSessionRequest, KvOpenSessionRequest
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

MIN_ISR = "min.insync.replicas"


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2 and 3 are active; topic t is on 1 and 2."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", (1, 2))
    return cluster


def update(cluster: Cluster, *updates: FeatureUpdate, validate_only: bool = False) -> AdminResponse:
    response = cluster.handle(UpdateFeaturesRequest(updates, validate_only))
    assert isinstance(response, AdminResponse)
    assert bool(response.error) == bool(response.message)
    return response


@pytest.mark.req("C11")
def test_a_level_is_raised_and_lowered(cluster: Cluster) -> None:
    raised = FeatureUpdate(ELR_FEATURE, 1)
    assert update(cluster, raised, validate_only=True).error == ErrorCode.NONE
    assert ELR_FEATURE not in cluster.image.features
    assert update(cluster, raised).error == ErrorCode.NONE
    assert cluster.image.features[ELR_FEATURE] == 1
    before = cluster.image
    assert update(cluster, raised).error == ErrorCode.NONE
    assert cluster.image is before, "it is so already"
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 0)).error == ErrorCode.INVALID_UPDATE_VERSION
    lowered = FeatureUpdate(ELR_FEATURE, 0, SAFE_DOWNGRADE)
    assert update(cluster, lowered).error == ErrorCode.NONE
    assert cluster.image.features[ELR_FEATURE] == 0


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ErrorCode.INVALID_UPDATE_VERSION, FeatureUpdate("no.such.feature", 1)),
        (ErrorCode.INVALID_UPDATE_VERSION, FeatureUpdate(ELR_FEATURE, 2)),
        (ErrorCode.INVALID_UPDATE_VERSION, FeatureUpdate(ELR_FEATURE, -1)),
        (ErrorCode.INVALID_UPDATE_VERSION, FeatureUpdate(ELR_FEATURE, 1, SAFE_DOWNGRADE)),
        (
            ErrorCode.INVALID_UPDATE_VERSION,
            FeatureUpdate(METADATA_VERSION_FEATURE, 0, SAFE_DOWNGRADE),
        ),
        (ErrorCode.INVALID_UPDATE_VERSION, FeatureUpdate(ELR_FEATURE, 1, 4)),
    ],
)
def test_bad_updates_change_nothing_of_the_request(
    cluster: Cluster, error: ErrorCode, wanted: FeatureUpdate
) -> None:
    before = cluster.image
    metadata = FeatureUpdate(METADATA_VERSION_FEATURE, 1, SAFE_DOWNGRADE)
    eligible = FeatureUpdate(ELR_FEATURE, 1)
    good = metadata if wanted.feature == ELR_FEATURE else eligible
    assert update(cluster, good, wanted).error == error
    assert update(cluster, good, good).error == ErrorCode.INVALID_REQUEST
    assert cluster.image is before


@pytest.mark.req("C11")
@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_a_downgrade_that_would_lose_metadata_is_refused(cluster: Cluster, kind: int) -> None:
    entity = (("user", "u"),)
    cluster.append([ClientQuotaRecord(entity, "producer_byte_rate", 1.0)])
    down = FeatureUpdate(METADATA_VERSION_FEATURE, 1, kind)
    response = update(cluster, down)
    assert response.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "client quotas" in response.message
    cluster.append([ClientQuotaRecord(entity, "producer_byte_rate", None)])
    assert update(cluster, down).error == ErrorCode.NONE
    up = FeatureUpdate(METADATA_VERSION_FEATURE, METADATA_VERSION, UPGRADE)
    assert update(cluster, up).error == ErrorCode.NONE


@pytest.mark.req("C11", "Q6")
def test_all_take_a_snapshot_after_a_downgrade(cluster: Cluster) -> None:
    """An older node reads that, and not what the log held before."""

    def written(*updates: FeatureUpdate) -> list[str]:
        request = UpdateFeaturesRequest(updates, False)
        result = cluster.controller.handle(request, cluster.now_ms)
        cluster.append(result.records)
        return [type(one).__name__ for one in result.records]

    down = FeatureUpdate(METADATA_VERSION_FEATURE, METADATA_VERSION - 1, SAFE_DOWNGRADE)
    assert written(down) == ["FeatureLevelRecord", "SnapshotMarkRecord"]
    assert written(down) == [], "it is so already"
    up = FeatureUpdate(METADATA_VERSION_FEATURE, METADATA_VERSION)
    assert written(up) == ["FeatureLevelRecord"]


@pytest.mark.req("C11", "Q10")
def test_open_sessions_keep_the_level_that_knows_them(cluster: Cluster) -> None:
    session = UUID(int=1)
    cluster.handle(KvOpenSessionRequest(session, 1_000))
    down = FeatureUpdate(METADATA_VERSION_FEATURE, 2, SAFE_DOWNGRADE)
    assert "sessions" in update(cluster, down).message
    cluster.handle(KvCloseSessionRequest(session))
    assert update(cluster, down).error == ErrorCode.NONE
    with pytest.raises(KafkaError, match="raise it to 3 first"):
        cluster.handle(KvOpenSessionRequest(session, 1_000))


@pytest.mark.req("C11", "C5")
def test_partitions_follow_when_eligible_leaders_begin_and_end(cluster: Cluster) -> None:
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state("t") == (NO_LEADER, (1,))
    update(cluster, FeatureUpdate(ELR_FEATURE, 1))
    assert cluster.image.config(BROKER_RESOURCE, "")[MIN_ISR] == "1", "so all agree on it"
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1,))
    update(cluster, FeatureUpdate(ELR_FEATURE, 0, SAFE_DOWNGRADE))
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (1,), ())


# --- brokers that differ --------------------------------------------------------------------------

TRANSACTIONS = FeatureRange(TRANSACTION_VERSION_FEATURE, 0, 2)
OLD = (FeatureRange(METADATA_VERSION_FEATURE, 1, METADATA_VERSION), TRANSACTIONS)
OLDER = (FeatureRange(METADATA_VERSION_FEATURE, 1, METADATA_VERSION - 1), TRANSACTIONS)


@pytest.mark.req("C11", "C2")
def test_a_broker_that_cannot_work_with_a_level_is_not_let_in(cluster: Cluster) -> None:
    before = cluster.image
    refused = cluster.register(4, features=OLDER)
    assert (refused.error, refused.broker_epoch) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert f"supports levels 1 to {METADATA_VERSION - 1}" in refused.message
    assert cluster.image is before
    assert cluster.register(4, features=OLD).error == ErrorCode.NONE
    assert cluster.image.brokers[4].features == OLD
    update(cluster, FeatureUpdate(METADATA_VERSION_FEATURE, METADATA_VERSION - 1, SAFE_DOWNGRADE))
    assert cluster.register(5, features=OLDER).error == ErrorCode.NONE


@pytest.mark.req("C11")
def test_a_level_waits_until_every_broker_can_work_with_it(cluster: Cluster) -> None:
    cluster.register(4, features=OLD)
    before = cluster.image
    refused = update(cluster, FeatureUpdate(ELR_FEATURE, 1))
    assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "broker(s) 4: upgrade or unregister" in refused.message
    assert cluster.image is before
    cluster.register(4, features=(*OLD, FeatureRange(ELR_FEATURE, 0, 1)))
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 1)).error == ErrorCode.NONE, "it was upgraded"
    doing_without = FeatureUpdate(ELR_FEATURE, 0, SAFE_DOWNGRADE)
    assert update(cluster, doing_without).error == ErrorCode.NONE


@pytest.mark.req("C11")
def test_a_downgrade_waits_for_brokers_that_need_the_level(cluster: Cluster) -> None:
    newest = FeatureRange(METADATA_VERSION_FEATURE, METADATA_VERSION, METADATA_VERSION + 1)
    cluster.register(4, features=(newest, TRANSACTIONS))
    down = FeatureUpdate(METADATA_VERSION_FEATURE, 1, UNSAFE_DOWNGRADE)
    assert update(cluster, down).error == ErrorCode.INVALID_UPDATE_VERSION
    unregister(cluster, 4)
    assert update(cluster, down).error == ErrorCode.NONE


@pytest.mark.req("T3", "C11")
def test_transactions_of_version_2_are_lowered_and_raised(cluster: Cluster) -> None:
    feature = TRANSACTION_VERSION_FEATURE
    assert cluster.image.features[feature] == 2, "a new cluster begins with them"
    down = FeatureUpdate(feature, 1, SAFE_DOWNGRADE)
    assert update(cluster, down).error == ErrorCode.NONE
    assert cluster.register(4, features=(OLD[0],)).error == ErrorCode.UNSUPPORTED_VERSION
    update(cluster, FeatureUpdate(feature, 0, SAFE_DOWNGRADE))
    assert cluster.register(4, features=(OLD[0],)).error == ErrorCode.NONE
    up = FeatureUpdate(feature, 2)
    assert update(cluster, up).error == ErrorCode.INVALID_UPDATE_VERSION, "broker 4 cannot"
    unregister(cluster, 4)
    assert update(cluster, up).error == ErrorCode.NONE


# --- controllers that differ ----------------------------------------------------------------------

NEW = (FeatureRange(ELR_FEATURE, 0, 1), *OLD)


def register(cluster: Cluster, controller_id: int, features: tuple[FeatureRange, ...]) -> ErrorCode:
    identity = UUID(int=abs(controller_id))
    request = RegisterControllerRequest(controller_id, identity, CLUSTER_ID, features)
    response = cluster.handle(request)
    assert isinstance(response, RegisterControllerResponse)
    assert bool(response.error) == bool(response.message)
    return response.error


@pytest.mark.req("C11")
def test_a_controller_registers_in_the_log_once(cluster: Cluster) -> None:
    assert register(cluster, 101, NEW) == ErrorCode.NONE
    assert cluster.image.controllers[101] == ControllerImage(101, UUID(int=101), NEW)
    before = cluster.image
    assert register(cluster, 101, NEW) == ErrorCode.NONE
    assert cluster.image is before
    assert register(cluster, 101, OLD) == ErrorCode.NONE
    assert len(cluster.image.controllers[101].features) == len(OLD)
    cluster.controller.renounce()
    cluster.claim(before)
    assert cluster.image.controllers[101].features == NEW


@pytest.mark.req("C2")
def test_a_controller_with_another_session_timeout_is_told_so_and_not_refused(
    cluster: Cluster,
) -> None:
    """A broker counts its lease with the timeout of whoever answered it (decision 0016)."""

    def told(*settings: str) -> str:
        request = RegisterControllerRequest(102, UUID(int=102), CLUSTER_ID, NEW, settings)
        response = cluster.handle(request)
        assert isinstance(response, RegisterControllerResponse)
        assert response.error == ErrorCode.NONE
        return response.message

    own = ControllerConfig(cluster_id=CLUSTER_ID, leader_rebalance=False).settings()
    assert "delete.topic.enable=true" in own
    assert told() == "", "an older release tells nothing"
    assert told(*own, "unknown.key=1") == ""
    other = told("broker.session.timeout.ms=3000", "num.partitions=1")
    assert other.startswith("broker.session.timeout.ms=3000 (the active controller has 9000): give")
    assert "fenced broker" in other
    assert "num.partitions" not in other
    assert "fenced broker" not in told("num.partitions=" + "9" * 1_000)
    assert len(told("num.partitions=" + "9" * 1_000)) < 200


@pytest.mark.req("C11")
def test_a_level_waits_until_every_controller_can_work_with_it(cluster: Cluster) -> None:
    register(cluster, 101, NEW)
    register(cluster, 104, OLD)
    before = cluster.image
    refused = update(cluster, FeatureUpdate(ELR_FEATURE, 1))
    assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "controller(s) 104: upgrade or unregister" in refused.message
    assert cluster.image is before
    assert unregister(cluster, 104) == ErrorCode.NONE
    assert sorted(cluster.image.controllers) == [101]
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 1)).error == ErrorCode.NONE
    assert register(cluster, 104, OLD) == ErrorCode.UNSUPPORTED_VERSION
    assert register(cluster, 104, NEW) == ErrorCode.NONE


@pytest.mark.req("C11")
def test_a_voter_that_has_not_registered_is_of_an_older_release(cluster: Cluster) -> None:
    voters = [101, 102]
    config = ControllerConfig(cluster_id=CLUSTER_ID)
    cluster.controller = QuorumController(config, random.Random(1), lambda: voters)
    cluster.claim(MetadataImage())
    register(cluster, 101, NEW)
    refused = update(cluster, FeatureUpdate(ELR_FEATURE, 1))
    assert "controller(s) 102 (has not registered)" in refused.message
    register(cluster, 102, NEW)
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 1)).error == ErrorCode.NONE


@pytest.mark.req("C11")
def test_a_level_without_registrations_forgets_them_and_is_checked_by_what_was_told(
    cluster: Cluster,
) -> None:
    """Down, and up again: no record that the level does not know stands in its log."""
    register(cluster, 101, NEW)
    level = CONTROLLERS_LEVEL - 1
    down = FeatureUpdate(METADATA_VERSION_FEATURE, level, SAFE_DOWNGRADE)
    assert update(cluster, down).error == ErrorCode.NONE
    assert not cluster.image.controllers
    older = (FeatureRange(METADATA_VERSION_FEATURE, 1, level), TRANSACTIONS)
    at = len(cluster.records)
    assert register(cluster, 101, NEW) == register(cluster, 104, older) == ErrorCode.NONE
    assert len(cluster.records) == at
    up = FeatureUpdate(METADATA_VERSION_FEATURE, CONTROLLERS_LEVEL)
    assert "controller(s) 104" in update(cluster, up).message
    assert unregister(cluster, 104) == ErrorCode.NONE
    assert update(cluster, up).error == ErrorCode.NONE
    assert unregister(cluster, 104) == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.req("C11")
def test_a_downgrade_waits_for_controllers_that_need_the_level(cluster: Cluster) -> None:
    newest = FeatureRange(METADATA_VERSION_FEATURE, METADATA_VERSION, METADATA_VERSION + 1)
    register(cluster, 104, (newest, TRANSACTIONS))
    down = FeatureUpdate(METADATA_VERSION_FEATURE, 1, UNSAFE_DOWNGRADE)
    assert "controller(s) 104" in update(cluster, down).message


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("controller_id", "features"),
    [
        (-1, NEW),
        (101, ()),
        (101, (*OLD, OLD[0])),
        (101, (*OLD, FeatureRange("x", 3, 2))),
        (101, (*OLD, *(FeatureRange(f"x{number}", 0, 1) for number in range(1_000)))),
    ],
    ids=["no id", "nothing told", "twice", "upside down", "too many"],
)
def test_a_bad_registration_of_a_controller_is_refused(
    cluster: Cluster, controller_id: int, features: tuple[FeatureRange, ...]
) -> None:
    before = cluster.image
    assert register(cluster, controller_id, features) == ErrorCode.INVALID_REGISTRATION
    assert cluster.image is before


@pytest.mark.req("C11")
def test_a_level_other_than_the_metadatas_forgets_no_controller(cluster: Cluster) -> None:
    register(cluster, 101, NEW)
    before = dict(cluster.image.controllers)
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 1)).error == ErrorCode.NONE
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 0, SAFE_DOWNGRADE)).error == ErrorCode.NONE
    assert dict(cluster.image.controllers) == before


@pytest.mark.req("C11")
def test_to_ask_for_what_is_so_waits_for_nobody_but_must_be_a_question(cluster: Cluster) -> None:
    config = ControllerConfig(cluster_id=CLUSTER_ID)
    cluster.controller = QuorumController(config, random.Random(1), lambda: [101])
    cluster.claim(MetadataImage())
    refused = update(cluster, FeatureUpdate(ELR_FEATURE, 1))
    assert "101 (has not registered)" in refused.message
    assert update(cluster, FeatureUpdate(ELR_FEATURE, 0)).error == ErrorCode.NONE
    for kind in (UPGRADE - 1, UNSAFE_DOWNGRADE + 1):
        refused = update(cluster, FeatureUpdate(ELR_FEATURE, 0, kind))
        assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
        assert "upgrade_type must be 1 to 3" in refused.message


@pytest.mark.req("C11")
def test_a_controller_may_know_one_level_of_a_feature(cluster: Cluster) -> None:
    assert register(cluster, 101, (*NEW, FeatureRange("x", 2, 2))) == ErrorCode.NONE


@pytest.mark.req("C11")
def test_who_is_registered_may_register_again_however_many_there_are(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_control, "CONTROLLERS_MAX", 2)
    for controller_id in (101, 102, 101):
        assert register(cluster, controller_id, NEW) == ErrorCode.NONE
    assert register(cluster, 103, NEW) == ErrorCode.INVALID_REGISTRATION
    assert register(cluster, 102, OLD) == ErrorCode.NONE
    assert unregister(cluster, 101) == ErrorCode.NONE
    assert register(cluster, 103, NEW) == ErrorCode.NONE


# --- unregistered brokers -------------------------------------------------------------------------


def unregister(cluster: Cluster, broker_id: int) -> ErrorCode:
    response = cluster.handle(UnregisterBrokerRequest(broker_id))
    assert isinstance(response, AdminResponse)
    return response.error


@pytest.mark.req("C2")
def test_a_broker_is_forgotten_and_leads_nothing_more(cluster: Cluster) -> None:
    assert unregister(cluster, 9) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert unregister(cluster, 1) == ErrorCode.NONE
    assert sorted(cluster.image.brokers) == [2, 3]
    assert cluster.state("t") == (2, (2,))
    assert unregister(cluster, 1) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.register(1, 1).error == ErrorCode.NONE, "it may come back as somebody else"


@pytest.mark.req("C2")
def test_a_partition_waits_for_an_unregistered_broker_that_alone_has_everything(
    cluster: Cluster,
) -> None:
    cluster.fence(2)
    assert unregister(cluster, 1) == ErrorCode.NONE
    assert cluster.state("t") == (NO_LEADER, (1,))
    cluster.heartbeat(2)
    assert cluster.state("t") == (NO_LEADER, (1,))
