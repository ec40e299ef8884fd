"""Frames: everything that travels comes back, anything else is refused."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.codec import Columns
from raftctl.errors import ErrorCode
from raftctl.metadata import requests
from raftctl.metadata.requests.kv import KvPutRequest
from raftctl.raft import messages
from raftctl.rpc.codec import (
    QUORUM,
    RPC_CODEC,
    TAGGED,
    Failure,
    FrameError,
    FramePacker,
    FrameUnpacker,
    Hello,
    LoginToken,
)

KINDS = [
    *get_args(messages.Request),
    *get_args(messages.Response),
    *get_args(requests.ControllerRequest),
    *get_args(requests.ControllerResponse),
    Hello,
    Failure,
    LoginToken,
]
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
# Not a number equals nothing, not even what comes back.
st.register_type_strategy(float, st.floats(allow_nan=False))
something = st.one_of([st.builds(kind) for kind in KINDS])


def vote(epoch: int = 1) -> messages.VoteRequest:
    key = messages.ReplicaKey(messages.NodeId(1), UUID(int=5))
    end = messages.OffsetAndEpoch(messages.Offset(7), messages.Epoch(1))
    return messages.VoteRequest(messages.Epoch(epoch), key, end, pre_vote=True)


@given(st.lists(st.tuples(st.integers(0, 2**40), something), min_size=1, max_size=6))
def test_frames_travel_alone_and_together(frames: list[tuple[int, Any]]) -> None:
    packer = FramePacker()
    packed = [packer.pack(correlation_id, message) for correlation_id, message in frames]
    unpacker = FrameUnpacker()
    assert [frame for data in packed for frame in unpacker.unpack(data)] == frames
    assert unpacker.unpack(b"".join(packed)) == frames
    numbers, sent = zip(*frames, strict=True)
    assert packer.pack_all(numbers, sent) == b"".join(packed)


def test_frames_of_one_class_are_a_run_and_many_are_columns() -> None:
    puts = [KvPutRequest(f"key-{number}", b"value") for number in range(9)]
    numbers = [*range(7, 16)]
    sent = FramePacker().pack_all(numbers, puts) + FramePacker().pack(3, vote())
    many, one = FrameUnpacker().unpack_runs(sent)
    assert many.message_class is KvPutRequest
    assert isinstance(many.messages, Columns)
    assert [*many.frames()] == [*zip(numbers, puts, strict=True)]
    assert [*many.part(2, 4).frames()] == [*zip(numbers, puts, strict=True)][2:4]
    assert FramePacker().pack_all(*many) == FramePacker().pack_all(numbers, puts)
    assert (one.message_class, [*one.frames()]) == (messages.VoteRequest, [(3, vote())])


@settings(deadline=None)
@given(st.builds(messages.FetchResponse), st.binary())
def test_a_fetch_is_answered_with_the_records_and_nothing_else_changed(
    response: messages.FetchResponse, batches: bytes
) -> None:
    assert messages.with_batches(response, batches) == replace(response, batches=batches)


def test_every_class_has_one_id() -> None:
    assert RPC_CODEC.to_row(Failure(ErrorCode.NONE, ""))[0] == 91
    classes = {*QUORUM.values(), *TAGGED}
    assert classes == set(KINDS)
    tagged = [vars(one)["TYPE_ID"] for one in TAGGED]
    assert len({*QUORUM, *tagged}) == len(classes)


@given(st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_frame_errors(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        FrameUnpacker().unpack(data)


@given(something, st.data())
def test_damaged_frames_raise_only_frame_errors(message: object, data: st.DataObject) -> None:
    frame = bytearray(FramePacker().pack(3, message))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FrameError):
        FrameUnpacker().unpack(bytes(frame))


@pytest.mark.parametrize(
    "data", [b"", b"\x93\x01", b"\xc0", b"\x90", b"\x91\x01", b"\x92\xa1x\x5a"]
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameUnpacker().unpack(data)


def test_a_frame_cut_short_is_refused_even_after_a_whole_one() -> None:
    frame = FramePacker().pack(1, vote())
    with pytest.raises(FrameError):
        FrameUnpacker().unpack(frame + frame[:-1])
