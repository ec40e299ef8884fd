"""Producer ids: blocks that never overlap, whoever asks and whoever is the active controller."""

from __future__ import annotations

import pytest

from raftctl.errors import ErrorCode
from raftctl.integers import LONG_MAX
from raftctl.metadata.records import ProducerIdsRecord
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C10")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2)
    return cluster


def allocate(cluster: Cluster, broker_id: int) -> AllocateProducerIdsResponse:
    epoch = cluster.image.brokers[broker_id].broker_epoch
    response = cluster.handle(AllocateProducerIdsRequest(broker_id, epoch))
    assert isinstance(response, AllocateProducerIdsResponse)
    return response


def test_blocks_follow_one_another(cluster: Cluster) -> None:
    blocks = [allocate(cluster, broker_id) for broker_id in (1, 2, 1)]
    assert [(block.first, block.count) for block in blocks] == [
        (0, 1_000),
        (1_000, 1_000),
        (2_000, 1_000),
    ]
    assert cluster.image.next_producer_id == 3_000


def test_a_committed_block_is_not_given_again_after_a_failover(cluster: Cluster) -> None:
    allocate(cluster, 1)
    cluster.controller.committed(len(cluster.records))
    allocate(cluster, 1)
    cluster.controller.renounce()
    cluster.claim(cluster.controller.committed_image)
    assert allocate(cluster, 2).first == 1_000


def test_only_a_current_incarnation_gets_ids(cluster: Cluster) -> None:
    for broker_id, error in [
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, ErrorCode.STALE_BROKER_EPOCH),
    ]:
        response = cluster.handle(AllocateProducerIdsRequest(broker_id, 0))
        assert response == AllocateProducerIdsResponse(error, -1, 0)


def test_ids_end(cluster: Cluster) -> None:
    cluster.append([ProducerIdsRecord(1, 0, LONG_MAX - 1_000)])
    assert allocate(cluster, 1).error == ErrorCode.NONE
    assert allocate(cluster, 1).error == ErrorCode.UNKNOWN_SERVER_ERROR
