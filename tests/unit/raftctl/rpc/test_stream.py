"""Messages out of the bytes of a transport: whole, in pieces, masked; the rest is not touched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.rpc._channel import MessageStream
from tests.unit.raftctl.rpc.transport import Transport

MESSAGE_BYTES_MAX = 100_000


class Streamed:
    """A stream over a transport, and what came of it."""

    def __init__(self, *, masks: bool = False) -> None:
        self.transport = Transport()
        self.messages: list[bytes] = []
        self.writable = 0
        self.pongs: list[bytes] = []
        self.stream = MessageStream(
            self.transport,
            masks=masks,
            message_bytes_max=MESSAGE_BYTES_MAX,
            on_message=lambda message: self.messages.append(bytes(message)),
            on_writable=self._on_writable,
            on_pong=self.pongs.append,
        )

    def _on_writable(self) -> None:
        self.writable += 1


def masked(frame: bytes, size: int, key: bytes) -> bytes:
    """The frame as a client sends it that masks with this key."""
    begin = len(frame) - size
    stream = int.from_bytes((key * (size // 4 + 1))[:size], "big")
    payload = (int.from_bytes(frame[begin:], "big") ^ stream).to_bytes(size, "big")
    return bytes((frame[0], frame[1] | 0x80)) + frame[2:begin] + key + payload


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 125, 126, 300, 65_535, 65_536]), min_size=1, max_size=4),
    st.booleans(),
    st.binary(min_size=4, max_size=4),
    st.lists(st.integers(1, 70_000), max_size=12),
)
def test_messages_survive_however_their_bytes_arrive(
    sizes: list[int], masks: bool, key: bytes, pieces: list[int]
) -> None:
    sender, receiver = Streamed(), Streamed()
    messages = [bytes(range(256)) * (size // 256) + bytes(range(size % 256)) for size in sizes]
    for message in messages:
        before = len(sender.transport.written)
        sender.stream.send(message)
        if masks:
            written = sender.transport.written
            frame = masked(written[before:], len(message), key)
            sender.transport.written = written[:before] + frame
    data = sender.transport.written
    for size in pieces:
        piece, data = data[:size], data[size:]
        receiver.transport.feed(piece)
    receiver.transport.feed(data)
    assert receiver.messages == messages
    assert receiver.transport.before.data == b""


@pytest.mark.parametrize("size", [5, 200, 70_000])
def test_a_client_sends_a_key_that_changes_nothing_and_a_message_is_one_write(size: int) -> None:
    sender, receiver = Streamed(masks=True), Streamed()
    sender.stream.send(b"x" * size)
    assert sender.transport.written[1] & 0x80
    assert sender.transport.writes == 1
    receiver.transport.feed(sender.transport.written)
    assert receiver.messages == [b"x" * size]


def test_pings_and_closing_are_left_to_who_was_there_before() -> None:
    streamed = Streamed()
    ping, close = b"\x89\x02hi", b"\x88\x02\x03\xe8"
    message = b"\x82\x01x"
    streamed.transport.feed(ping[:1])
    streamed.transport.feed(ping[1:] + message + close[:3])
    assert streamed.messages == [b"x"]
    assert streamed.transport.before.data == ping
    streamed.transport.feed(close[3:])
    assert streamed.transport.before.data == ping + close


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(b"\x81\x01x", id="text"),
        pytest.param(b"\x02\x01x\x80\x01y", id="in pieces"),
        pytest.param(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), id="too large"),
        pytest.param(b"\xff\xff", id="nonsense"),
    ],
)
def test_after_what_is_unusual_all_is_left_to_who_was_there_before(odd: bytes) -> None:
    streamed = Streamed()
    streamed.transport.feed(b"\x82\x01a" + odd + b"\x82\x01b")
    streamed.transport.feed(b"\x82\x01c")
    assert streamed.messages == [b"a"]
    assert streamed.transport.before.data == odd + b"\x82\x01b\x82\x01c"


def test_who_was_there_before_hears_all_else_of_the_transport() -> None:
    streamed = Streamed()
    streamed.transport.fill()
    assert streamed.stream.full
    streamed.transport.drain()
    assert not streamed.stream.full
    assert streamed.writable == 1
    streamed.stream.eof_received()
    streamed.transport.lose()
    assert streamed.transport.before.events == ["pause", "resume", "eof", "lost"]
    assert streamed.writable == 2
    with pytest.raises(ConnectionResetError):
        streamed.stream.send(b"x")
