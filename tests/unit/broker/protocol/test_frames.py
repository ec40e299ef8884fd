"""Cutting a byte stream into frames."""

from __future__ import annotations

from unittest import mock

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol import FrameReader
from broker.protocol._frames import RECEIVE_BYTES
from broker.protocol.codec import MalformedError
from raftctl.errors import InvariantViolation

BUFFER = 1024
"""In place of `RECEIVE_BYTES`: else most of the time went into frames received byte by byte."""
READS = st.integers(1, 50) | st.integers(100, 2 * BUFFER)
SIZES = st.one_of(
    st.integers(8, 200),
    st.integers(BUFFER - 10, BUFFER + 10),
    st.just(BUFFER + 500),
)


@pytest.mark.req("N3")
@mock.patch("broker.protocol._frames.RECEIVE_BYTES", BUFFER)
@given(st.lists(SIZES, max_size=8), st.lists(READS, min_size=1))
def test_frames_come_out_as_they_went_in(sizes: list[int], reads: list[int]) -> None:
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader = FrameReader(4 * BUFFER)
    found, position, turn = [], 0, 0
    while position < len(stream):
        into = reader.writable()
        count = min(len(into), reads[turn % len(reads)], len(stream) - position)
        into[:count] = stream[position : position + count]
        reader.received(count)
        position, turn = position + count, turn + 1
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
    assert found == frames
    assert not reader.partial


@pytest.mark.parametrize("size", [-1, 0, 7, 1001])
def test_a_length_out_of_bounds_is_malformed(size: int) -> None:
    reader = FrameReader(1000)
    reader.writable()[:4] = size.to_bytes(4, "big", signed=True)
    reader.received(4)
    with pytest.raises(MalformedError):
        reader.next()


def test_memory_is_not_taken_for_a_length_alone_beyond_one_frame() -> None:
    reader = FrameReader(1 << 20)
    reader.writable()[:4] = (1 << 20).to_bytes(4, "big")
    reader.received(4)
    assert reader.next() is None
    assert len(reader.writable()) == 1 << 20
    assert reader.partial


def test_receiving_while_whole_frames_wait_is_a_bug() -> None:
    reader = FrameReader(RECEIVE_BYTES)
    into = reader.writable()
    into[:4] = (RECEIVE_BYTES - 4).to_bytes(4, "big")
    reader.received(RECEIVE_BYTES)
    with pytest.raises(InvariantViolation):
        reader.writable()


@pytest.mark.req("N3")
def test_once_all_is_taken_the_whole_buffer_is_there_again() -> None:
    """Else one frame after the other would be received in two parts."""
    reader = FrameReader(RECEIVE_BYTES)
    frame = b"x" * (RECEIVE_BYTES // 2 + 1)
    for _ in range(3):
        into = reader.writable()
        assert len(into) == RECEIVE_BYTES
        received = len(frame).to_bytes(4, "big") + frame
        into[: len(received)] = received
        reader.received(len(received))
        assert reader.next() == frame
        assert reader.next() is None


def test_memory_is_taken_only_for_what_was_received() -> None:
    before = psutil.Process().memory_info().rss
    readers = [FrameReader(RECEIVE_BYTES) for _ in range(200)]
    for reader in readers:
        reader.writable()[:100] = bytes(100)
        reader.received(100)
    assert psutil.Process().memory_info().rss - before < 200 * RECEIVE_BYTES / 4
