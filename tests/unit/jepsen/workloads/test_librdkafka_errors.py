"""Which errors of a send say that it certainly did not happen; a timeout never does."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from jepsen.workloads.sessions._librdkafka import NOT_COMMITTED, REFUSED, error_of


@pytest.mark.req("J3")
@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FAIL,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    ],
)
def test_what_may_have_been_appended_is_unknown(code: int) -> None:
    assert not error_of(code, "", REFUSED).certain


@pytest.mark.req("J3")
@pytest.mark.parametrize(
    "code",
    [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL, KafkaError._UNKNOWN_PARTITION],
)
def test_what_no_broker_has_seen_has_failed(code: int) -> None:
    assert error_of(code, "", REFUSED).certain


@pytest.mark.req("J3")
def test_a_commit_of_offsets_fails_only_if_its_member_is_none_any_more() -> None:
    assert error_of(KafkaError.ILLEGAL_GENERATION, "", NOT_COMMITTED).certain
    assert not error_of(KafkaError.COORDINATOR_NOT_AVAILABLE, "", NOT_COMMITTED).certain
    assert error_of(KafkaError.COORDINATOR_NOT_AVAILABLE, "a poll", None).certain
