"""Configs that change while the cluster runs: every operation and every refusal."""

from __future__ import annotations

import pytest

from raftctl.config import make_config
from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    FeatureLevelRecord,
)
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    ItemOutcome,
)
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

pytestmark = pytest.mark.req("C9")
SET, DELETE = AlterOperation.SET, AlterOperation.DELETE
APPEND, SUBTRACT = AlterOperation.APPEND, AlterOperation.SUBTRACT
Change = tuple[str, int, "str | None"]


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 and 2 are active; topic t has its retention set."""
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.assign("t", (1, 2))
    alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"))
    return cluster


def alter(
    cluster: Cluster,
    kind: int,
    name: str,
    *changes: Change,
    replace: bool = False,
    validate_only: bool = False,
) -> ItemOutcome:
    resource = ConfigAlteration(kind, name, tuple(ConfigChange(*one) for one in changes), replace)
    (outcome,) = cluster.admin(AlterConfigsRequest((resource,), validate_only))
    return outcome


def configs(cluster: Cluster, kind: int = TOPIC_RESOURCE, name: str = "t") -> dict[str, str]:
    return dict(cluster.image.config(kind, name))


def test_incremental_changes_leave_the_rest(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC_RESOURCE, "t", ("segment.ms", SET, "6")) == ItemOutcome()
    assert configs(cluster) == {"retention.ms": "5", "segment.ms": "6"}
    changes: list[Change] = [("retention.ms", DELETE, None), ("segment.ms", SET, "7")]
    assert alter(cluster, TOPIC_RESOURCE, "t", *changes) == ItemOutcome()
    assert configs(cluster) == {"segment.ms": "7"}
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", DELETE, None)) == ItemOutcome()


def test_lists_grow_and_shrink(cluster: Cluster) -> None:
    for operation, value, expected in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
    ]:
        outcome = alter(cluster, TOPIC_RESOURCE, "t", ("cleanup.policy", operation, value))
        assert outcome == ItemOutcome()
        assert configs(cluster)["cleanup.policy"] == expected


def test_configs_replaced_as_a_whole(cluster: Cluster) -> None:
    assert (
        alter(cluster, TOPIC_RESOURCE, "t", ("segment.ms", SET, "6"), replace=True) == ItemOutcome()
    )
    assert configs(cluster) == {"segment.ms": "6"}


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    good = alter(cluster, TOPIC_RESOURCE, "t", ("segment.ms", SET, "6"), validate_only=True)
    bad = alter(cluster, TOPIC_RESOURCE, "t", ("segment.ms", SET, "x"), validate_only=True)
    assert (good.error, bad.error) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    assert cluster.image is before


def test_what_is_the_same_already_is_not_written(cluster: Cluster) -> None:
    before = cluster.image
    assert alter(cluster, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")) == ItemOutcome()
    assert cluster.image is before


@pytest.mark.parametrize(
    ("error", "kind", "name", "change"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2, "u", ("retention.ms", SET, "5")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("retention.ms", SET, "x")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("retention.ms", SET, None)),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("no.such.key", SET, "1")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("", SET, "1")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("retention.ms", APPEND, "5")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("cleanup.policy", APPEND, "burn")),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("retention.ms", SET, "9" * 40_000)),
        (ErrorCode.INVALID_CONFIG, 2, "t", ("max.compaction.lag.ms", SET, "0")),
        (ErrorCode.INVALID_REQUEST, 2, "t", ("retention.ms", 4, "5")),
        (ErrorCode.INVALID_REQUEST, 4, "9", ("log.retention.ms", SET, "5")),
        (ErrorCode.INVALID_REQUEST, 4, "one", ("log.retention.ms", SET, "5")),
        (ErrorCode.INVALID_REQUEST, 4, "", ("node.id", SET, "5")),
        (ErrorCode.INVALID_REQUEST, 4, "1", ("log.retention.ms", SET, "x")),
        (ErrorCode.INVALID_REQUEST, 4, "1", ("min.insync.replicas", SET, "1")),
        (ErrorCode.INVALID_REQUEST, 4, "1", ("leader.replication.throttled.rate", SET, "-1")),
        (ErrorCode.INVALID_CONFIG, 32, "g", ("consumer.session.timeout.ms", SET, "1")),
        (ErrorCode.INVALID_CONFIG, 32, "g", ("no.such.key", SET, "1")),
        (ErrorCode.INVALID_REQUEST, 32, "", ("consumer.session.timeout.ms", SET, "45000")),
        (ErrorCode.INVALID_REQUEST, 8, "1", ("root", SET, "DEBUG")),
    ],
)
def test_bad_input_changes_nothing(
    cluster: Cluster, error: ErrorCode, kind: int, name: str, change: Change
) -> None:
    before = cluster.image
    outcome = alter(cluster, kind, name, ("segment.ms", SET, "6"), change)
    if kind != TOPIC_RESOURCE:
        outcome = alter(cluster, kind, name, change)
    assert outcome.error == error
    assert outcome.message
    assert cluster.image is before


def test_what_is_named_twice_is_refused(cluster: Cluster) -> None:
    changes: list[Change] = [("segment.ms", SET, "6"), ("segment.ms", SET, "7")]
    assert alter(cluster, TOPIC_RESOURCE, "t", *changes).error == ErrorCode.INVALID_REQUEST
    resource = ConfigAlteration(TOPIC_RESOURCE, "t", (ConfigChange("segment.ms", SET, "6"),))
    outcomes = cluster.admin(AlterConfigsRequest((resource, resource)))
    assert [one.error for one in outcomes] == [ErrorCode.INVALID_REQUEST] * 2
    assert configs(cluster) == {"retention.ms": "5"}


def test_brokers_and_groups_have_configs(cluster: Cluster) -> None:
    rate = "leader.replication.throttled.rate"
    assert alter(cluster, BROKER_RESOURCE, "1", (rate, SET, "1000")) == ItemOutcome()
    assert alter(cluster, BROKER_RESOURCE, "", ("log.retention.hours", SET, "2")) == ItemOutcome()
    timeout = ("consumer.session.timeout.ms", SET, "50000")
    assert alter(cluster, GROUP_RESOURCE, "g", timeout) == ItemOutcome()
    assert configs(cluster, BROKER_RESOURCE, "1") == {rate: "1000"}
    assert configs(cluster, BROKER_RESOURCE, "") == {"log.retention.hours": "2"}
    assert configs(cluster, GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "50000"}


def test_a_groups_configs_keep_to_the_bounds_of_the_controllers_file() -> None:
    """`group.consumer.min.*` and `max.*` held only for what the file itself says."""
    file = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "CONTROLLER://localhost:9093",
        "log.dirs": "/data/a",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.max.heartbeat.interval.ms": "9000",
    }
    cluster = Cluster(ControllerConfig.of(make_config(file), CLUSTER_ID))
    session, beat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter(cluster, GROUP_RESOURCE, "g", (session, SET, "6000")) == ItemOutcome()
    for key, value, says in ((session, "5999", "6000 and 60000"), (beat, "9001", "5000 and 9000")):
        refused = alter(cluster, GROUP_RESOURCE, "g", (key, SET, value))
        assert refused.error == ErrorCode.INVALID_CONFIG
        assert says in (refused.message or "")


@pytest.mark.req("C5")
@pytest.mark.parametrize(("kind", "name"), [(TOPIC_RESOURCE, "t"), (BROKER_RESOURCE, "")])
def test_allowing_unclean_elections_elects_at_once(cluster: Cluster, kind: int, name: str) -> None:
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.state("t") == (NO_LEADER, (1,))
    unclean = ("unclean.leader.election.enable", SET, "true")
    assert alter(cluster, kind, name, unclean, validate_only=True) == ItemOutcome()
    assert cluster.state("t") == (NO_LEADER, (1,))
    assert alter(cluster, kind, name, unclean) == ItemOutcome()
    assert cluster.state("t") == (2, (2,))
    assert cluster.partition("t").leader_recovering


@pytest.mark.req("C5")
def test_who_need_not_be_in_sync_any_more_is_not_eligible(cluster: Cluster) -> None:
    """From then on the leader commits alone, and the other one lacks what it commits."""
    cluster.append([FeatureLevelRecord(ELR_FEATURE, 1)])
    alter(cluster, TOPIC_RESOURCE, "t", ("min.insync.replicas", SET, "2"))
    cluster.fence(2)
    assert cluster.partition("t").elr == (2,)
    alter(cluster, TOPIC_RESOURCE, "t", ("min.insync.replicas", SET, "1"))
    assert cluster.partition("t").elr == ()
    assert cluster.state("t") == (1, (1,))
