"""The batch and its checksum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.raft.batch import (
    BATCH_BYTES_MAX,
    HEADER_BYTES,
    Batch,
    CorruptBatchError,
    decode_batches,
    encode_batch,
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
