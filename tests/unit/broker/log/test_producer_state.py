"""Sequence checks of idempotent producers, and taking them back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.batches.record_batch import SEQUENCE_MAX, BatchHeader, parse_header
from broker.log.producers import ProducerStates
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import make_batch


def header(
    sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 1, offset: int = 0
) -> BatchHeader:
    batch = make_batch(
        [b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        base_offset=offset,
    )
    return parse_header(batch)


def send(states: ProducerStates, batch: BatchHeader) -> None:
    assert states.check(batch) is None
    states.note(batch)


def refused(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        states.check(batch)
    return raised.value.code


@pytest.mark.req("T1")
def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    states = ProducerStates()
    send(states, header(0, count=3))
    send(states, header(3, offset=3))
    assert refused(states, header(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.req("T1")
def test_each_of_the_last_five_batches_is_recognised_with_its_offset() -> None:
    states = ProducerStates()
    for number in range(7):
        send(states, header(number * 2, count=2, offset=number * 10))
    for number in range(2, 7):
        found = states.check(header(number * 2, count=2))
        assert found is not None
        assert (found.base_offset, found.last_offset) == (number * 10, number * 10 + 1)
    assert refused(states, header(2, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(states, header(12, count=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.req("T1")
def test_epochs_fence_older_ones_and_begin_at_zero() -> None:
    states = ProducerStates()
    send(states, header(0, epoch=3))
    assert refused(states, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(states, header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(states, header(0, epoch=4))
    assert refused(states, header(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.req("T1")
def test_after_the_largest_sequence_comes_zero() -> None:
    states = ProducerStates()
    send(states, header(SEQUENCE_MAX - 1, count=2))
    assert refused(states, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(states, header(0))


@pytest.mark.req("T1")
def test_an_unknown_producer_may_begin_anywhere() -> None:
    send(ProducerStates(), header(41))


def test_below_the_high_watermark_a_rebuild_is_asked_for() -> None:
    states = ProducerStates()
    for number in range(4):
        send(states, header(number, offset=number))
    states.prune_undo(2)
    assert states.truncate_to(2)
    assert not states.truncate_to(1)
    states.rebuild([header(0)])
    send(states, header(1, offset=1))


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 40), settled=st.integers(0, 40))
def test_taking_back_equals_never_having_noted(seed: int, cut: int, settled: int) -> None:
    chance = random.Random(seed)
    batches, sequences = [], {1: 0, 2: 0, 3: 0}
    epochs = dict.fromkeys(sequences, 0)
    for offset in range(40):
        producer = chance.choice(list(sequences))
        if chance.random() < 0.1:
            epochs[producer] += 1
            sequences[producer] = 0
        batch = header(
            sequences[producer], epoch=epochs[producer], producer_id=producer, offset=offset
        )
        sequences[producer] += 1
        batches.append(batch)
    whole, part = ProducerStates(), ProducerStates()
    whole.rebuild(batches)
    whole.prune_undo(min(settled, cut))
    part.rebuild(batches[:cut])
    assert whole.truncate_to(cut)
    assert [whole.get(p) for p in sequences] == [part.get(p) for p in sequences]
    assert len(whole) == len(part)


@pytest.mark.req("T1")
def test_who_has_a_batch_that_may_be_taken_back_does_not_expire() -> None:
    states = ProducerStates()
    send(states, header(0))
    send(states, header(1, offset=1))
    states.prune_undo(1)
    assert states.expire(10**15) == 0
    assert states.truncate_to(1)
    assert refused(states, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.expire(10**15) == 1
