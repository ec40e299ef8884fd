"""The batch and its checksum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.raft.batch import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    PREFIX_BYTES,
    Batch,
    CorruptBatchError,
    decode_batches,
    encode_batch,
    encoded_bytes,
    is_whole_but_for_its_length,
)
from raftctl.raft.messages import Epoch, Offset

batches = st.builds(
    Batch,
    st.integers(0, 2**62).map(Offset),
    st.integers(0, 2**31 - 1).map(Epoch),
    st.integers(1, 2**31 - 1),
    st.integers(-1, 2**62),
    st.booleans(),
    st.binary(max_size=60),
)


@given(st.lists(batches, max_size=4))
def test_round_trip(expected: list[Batch]) -> None:
    data = b"".join(encode_batch(batch) for batch in expected)
    found = list(decode_batches(data))
    assert [batch for _, batch in found] == expected
    for at, batch in found:
        assert next(decode_batches(data, at)) == (at, batch)


@pytest.mark.req("Q12")
@given(batches, st.data())
def test_a_flipped_bit_is_found(batch: Batch, data: st.DataObject) -> None:
    good = encode_batch(batch)
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    bad = bytearray(good)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptBatchError):
        list(decode_batches(bytes(bad)))


@pytest.mark.req("Q12")
@given(batches, batches, st.data())
def test_a_cut_off_batch_is_torn(first: Batch, second: Batch, data: st.DataObject) -> None:
    whole, cut = encode_batch(first), encode_batch(second)
    size = data.draw(st.integers(1, len(cut) - 1))
    found: list[tuple[int, Batch]] = []
    with pytest.raises(CorruptBatchError) as raised:
        found.extend(decode_batches(whole + cut[:size]))
    assert (raised.value.position, raised.value.torn) == (len(whole), True)


@pytest.mark.req("Q12")
@pytest.mark.parametrize("length", [0, HEADER_BYTES - 9, BATCH_BYTES_MAX + 1])
def test_a_length_out_of_bounds_is_corrupt_and_allocates_nothing(length: int) -> None:
    data = length.to_bytes(4, "big") + bytes(HEADER_BYTES)
    with pytest.raises(CorruptBatchError, match="out of bounds") as raised:
        list(decode_batches(data))
    assert not raised.value.torn


def test_a_batch_without_records_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="count 0"):
        list(decode_batches(encode_batch(Batch(Offset(0), Epoch(1), 0, 0, False, b""))))


@given(batches)
def test_a_batch_says_how_long_it_is(batch: Batch) -> None:
    data = encode_batch(batch)
    assert encoded_bytes(data[:PREFIX_BYTES]) == len(data)
    with pytest.raises(CorruptBatchError) as raised:
        encoded_bytes(data[: PREFIX_BYTES - 1])
    assert raised.value.torn


@pytest.mark.parametrize("length", [HEADER_BYTES - PREFIX_BYTES, BATCH_BYTES_MAX])
def test_lengths_at_their_bounds_are_lengths(length: int) -> None:
    assert encoded_bytes(length.to_bytes(4, "big") + bytes(4)) == PREFIX_BYTES + length
    beyond = length + (1 if length == BATCH_BYTES_MAX else -1)
    with pytest.raises(CorruptBatchError, match="out of bounds"):
        encoded_bytes(beyond.to_bytes(4, "big") + bytes(4))


@pytest.mark.req("Q12")
@given(batches, st.integers(0, 2**32 - 1))
def test_a_wrong_length_alone_does_not_hide_a_whole_batch(batch: Batch, length: int) -> None:
    """Only so is damage told from a write that power cut short."""
    data = encode_batch(batch)
    assert is_whole_but_for_its_length(length.to_bytes(4, "big") + data[4:])
    assert not is_whole_but_for_its_length(data[:-1])
    assert not is_whole_but_for_its_length(data + b"\x00")


@pytest.mark.req("Q12")
def test_the_smallest_batch_is_whole_and_less_is_not() -> None:
    data = encode_batch(Batch(Offset(0), Epoch(1), 1, 0, False, b""))
    assert len(data) == HEADER_BYTES
    assert is_whole_but_for_its_length(data)
    for size in range(HEADER_BYTES):
        assert not is_whole_but_for_its_length(bytes(size))


def test_batches_are_read_from_the_first_byte() -> None:
    data = encode_batch(Batch(Offset(5), Epoch(1), 1, 0, False, b"x"))
    assert [at for at, _ in decode_batches(data)] == [0]
    assert list(decode_batches(b"")) == []
