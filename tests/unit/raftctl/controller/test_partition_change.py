"""The rule of elections, as a table: who is active, and what becomes of leader and ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig
from raftctl.controller.partitions._partition_change import change_record, elect
from raftctl.errors import InvariantViolation
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import LEADER_UNCHANGED, NO_LEADER
from raftctl.metadata.requests.cluster import NewTopic
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.req("C5")
TOPIC = UUID(int=1)
REPLICAS = (3, 1, 2)


@pytest.mark.parametrize(
    ("leader", "isr", "active", "new_leader", "new_isr"),
    [
        (1, (1, 2, 3), (1, 2, 3), 1, (1, 2, 3)),
        (1, (1, 2, 3), (1, 2), 1, (1, 2)),
        (1, (1, 2, 3), (2, 3), 3, (2, 3)),
        (1, (1, 2), (2, 3), 2, (2,)),
        (1, (1, 2), (3,), NO_LEADER, (1, 2)),
        (1, (1,), (), NO_LEADER, (1,)),
        (NO_LEADER, (1, 2), (3,), NO_LEADER, (1, 2)),
        (NO_LEADER, (1, 2), (2, 3), 2, (2,)),
        (NO_LEADER, (2, 3), (2, 3), 3, (2, 3)),
    ],
)
def test_elect(
    leader: int,
    isr: tuple[int, ...],
    active: tuple[int, ...],
    new_leader: int,
    new_isr: tuple[int, ...],
) -> None:
    partition = PartitionImage(REPLICAS, isr, leader, 0, 0)
    record = elect(TOPIC, 4, partition, frozenset(active), unclean=False)
    if (leader, isr) == (new_leader, new_isr):
        assert record is None
        return
    assert record is not None
    assert (record.topic_id, record.partition_id) == (TOPIC, 4)
    assert record.leader == (LEADER_UNCHANGED if leader == new_leader else new_leader)
    assert record.isr == (None if isr == new_isr else new_isr)
    assert record.leader_recovering is None


def test_an_unclean_leader_is_alone_and_recovering() -> None:
    partition = PartitionImage(REPLICAS, (1,), 1, 0, 0)
    record = elect(TOPIC, 0, partition, frozenset((2, 3)), unclean=True)
    assert record is not None
    assert (record.leader, record.isr, record.leader_recovering) == (3, (3,), True)


def test_a_clean_leader_is_taken_where_an_unclean_one_is_allowed() -> None:
    partition = PartitionImage(REPLICAS, (1, 2), 1, 0, 0)
    record = elect(TOPIC, 0, partition, frozenset((2, 3)), unclean=True)
    assert record is not None
    assert (record.leader, record.isr, record.leader_recovering) == (2, (2,), None)


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_topic_or_the_whole_cluster_may_allow_unclean_elections(everywhere: bool) -> None:
    defaults = TopicConfig(unclean_leader_election_enable=everywhere)
    cluster = Cluster(ControllerConfig(cluster_id=CLUSTER_ID, topic_defaults=defaults))
    cluster.start(1, 2)
    override = (("unclean.leader.election.enable", str(not everywhere)),)
    cluster.create(NewTopic("default", assignments=((0, (1, 2)),)))
    cluster.create(NewTopic("other", assignments=((0, (1, 2)),), configs=override))
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)
    allowed, refused = ("default", "other") if everywhere else ("other", "default")
    assert cluster.state(allowed) == (2, (2,))
    assert cluster.partition(allowed).leader_recovering
    assert cluster.state(refused) == (NO_LEADER, (1,))

    (result,) = cluster.alter(2, cluster.item(allowed, 2))
    assert result.partition_epoch == cluster.partition(allowed).partition_epoch
    assert not cluster.partition(allowed).leader_recovering


def test_leader_epochs_grow_with_leaders_and_partition_epochs_with_changes() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3))
    seen = []
    for broker_id in (3, 1, 2):
        cluster.fence(broker_id)
        partition = cluster.partition("a")
        seen.append((partition.leader, partition.leader_epoch, partition.partition_epoch))
    assert seen == [(1, 0, 1), (2, 1, 2), (NO_LEADER, 2, 3)]


@pytest.mark.req("C6")
@pytest.mark.parametrize("change", [{"isr": (1, 9)}, {"leader": 3}, {"isr": (), "leader": -1}])
def test_an_unsound_change_never_becomes_a_record(change: Mapping[str, Any]) -> None:
    before = PartitionImage((1, 2, 3), (1, 2), 1, 0, 0)
    with pytest.raises(InvariantViolation):
        change_record(TOPIC, 0, before, before._replace(**change))
