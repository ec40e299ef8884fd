"""Which errors of a send say that it certainly did not happen; a timeout never does."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from jepsen.history import OpType
from jepsen.workloads.librdkafka import sent_or_not


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
    ],
)
def test_what_may_have_been_appended_is_unknown(code: int) -> None:
    assert sent_or_not(code, 1, "").type is OpType.INFO


@pytest.mark.req("J3")
@pytest.mark.parametrize(
    "code",
    [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL, KafkaError._UNKNOWN_PARTITION],
)
def test_what_no_broker_has_seen_has_failed(code: int) -> None:
    assert sent_or_not(code, 1, "").type is OpType.FAIL
