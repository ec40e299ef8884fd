"""The controller as a whole: claim, append, commit, renounce."""

from __future__ import annotations

import random

import pytest

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.controller._result import ControllerResult
from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.metadata.features import METADATA_VERSION
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import FeatureLevelRecord, NoOpRecord, UserScramCredentialRecord
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    NewTopic,
)
from tests.unit.raftctl.controller.cluster import SESSION_MS, Cluster

pytestmark = pytest.mark.req("C1")


def test_a_new_log_begins_with_its_levels() -> None:
    controller = QuorumController(ControllerConfig(), random.Random(1))
    assert not controller.active
    assert controller.claim(1, EMPTY_IMAGE, 0) == [
        FeatureLevelRecord("metadata.version", METADATA_VERSION),
        FeatureLevelRecord("transaction.version", 2),
    ]
    assert controller.active
    cluster = Cluster()
    cluster.controller.committed(1)
    cluster.controller.renounce()
    records = len(cluster.records)
    cluster.claim(cluster.controller.committed_image)
    assert len(cluster.records) == records


@pytest.mark.req("S3")
def test_a_new_log_has_the_users_of_the_formatting_and_an_old_one_does_not() -> None:
    """KIP-900: brokers that log in by SCRAM need a credential before anything can be changed."""
    user = UserScramCredentialRecord("broker", 2, b"salt", b"stored", b"server", 4096)
    chance = random.Random(1)
    controller = QuorumController(ControllerConfig(), chance, first_records=[user])
    *levels, last = controller.claim(1, EMPTY_IMAGE, 0)
    assert (len(levels), last) == (2, user)
    cluster = Cluster()
    cluster.controller.committed(1)
    controller.renounce()
    assert user not in controller.claim(2, cluster.controller.committed_image, 0)


def test_an_inactive_controller_handles_nothing() -> None:
    controller = QuorumController(ControllerConfig(), random.Random(1))
    with pytest.raises(InvariantViolation):
        controller.handle(BrokerHeartbeatRequest(1, 1, 1, False, False), 0)
    with pytest.raises(InvariantViolation):
        controller.tick(0)
    with pytest.raises(InvariantViolation):
        controller.appended([NoOpRecord()], 0, 0, 0)
    assert controller.deadline_ms() is None


def test_it_is_claimed_once() -> None:
    cluster = Cluster()
    with pytest.raises(InvariantViolation):
        cluster.controller.claim(2, EMPTY_IMAGE, 0)


def test_an_operation_sees_the_one_before_it() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create(NewTopic("a"))
    (result,) = cluster.create(NewTopic("a"))
    assert result.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.controller.committed_image is EMPTY_IMAGE


def test_batches_are_published_when_their_last_record_commits() -> None:
    cluster = Cluster()
    cluster.start(1)
    before = cluster.image
    cluster.create(NewTopic("a", 3, 1))
    first = cluster.image
    cluster.create(NewTopic("b", 3, 1))
    second = cluster.image
    assert [image for _, image in cluster.controller.committed(before.offset)][-1] is before
    assert cluster.controller.committed(first.offset - 1) == []
    assert cluster.controller.committed_image is before

    published = cluster.controller.committed(second.offset)
    assert [image for _, image in published] == [first, second]
    assert published[0][0].image is before
    assert published[1][0].image is first
    assert list(published[0][0].changed_topics) == [cluster.topic("a").topic_id]
    assert cluster.controller.committed_image is second
    assert cluster.image is second


def test_renouncing_goes_back_to_what_is_committed() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.controller.committed(cluster.image.offset)
    before = cluster.image
    cluster.create(NewTopic("a"))
    cluster.tick(SESSION_MS)
    cluster.controller.renounce()
    assert not cluster.controller.active
    assert cluster.image is before
    assert cluster.controller.deadline_ms() is None
    assert cluster.controller.committed(10_000) == []


def test_an_image_says_where_it_stands_in_the_log() -> None:
    cluster = Cluster()
    cluster.now_ms = 77
    cluster.start(1)
    assert cluster.image.offset == len(cluster.records) - 1
    assert (cluster.image.epoch, cluster.image.timestamp_ms) == (1, 77)


def test_records_come_in_order_and_in_the_epoch() -> None:
    cluster = Cluster()
    for offset, epoch in [(0, 1), (5, 2)]:
        with pytest.raises(InvariantViolation):
            cluster.controller.appended([NoOpRecord()], offset, epoch, 0)
    cluster.controller.appended(cluster.controller.idle_records(), 5, 1, 9)
    assert (cluster.image.offset, cluster.image.timestamp_ms) == (5, 9)


def test_an_answer_may_wait_for_its_offset() -> None:
    response = CreateTopicsResponse(ErrorCode.NONE, ())
    assert ControllerResult((), response).response_at(7) is response
    seen: list[int] = []

    def answer(base_offset: int) -> CreateTopicsResponse:
        seen.append(base_offset)
        return response

    assert ControllerResult((), answer).response_at(7) is response
    assert seen == [7]


def test_handling_alone_changes_nothing() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.assign("a", (1,))
    before = cluster.image
    result = cluster.controller.handle(DeleteTopicsRequest((("a", None),)), 0)
    assert len(result.records) == 1
    assert cluster.image is before
