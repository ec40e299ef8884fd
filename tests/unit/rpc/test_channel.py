"""The sending half of a channel: when frames go out, and what a slow or lost peer does to them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from raftctl.metadata.requests import KvGetRequest
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    NodeId,
)
from raftctl.rpc import channel as channel_module
from raftctl.rpc.channel import Channel
from raftctl.rpc.codec import FrameUnpacker


class Socket:
    """Takes messages; while `full`, whoever sends waits until it is not."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        """The correlation ids in each message."""
        self.closed = False
        self.full: asyncio.Future[None] | None = None
        self.error: Exception | None = None
        self._unpacker = FrameUnpacker()

    async def send_bytes(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append([number for number, _ in self._unpacker.unpack(data)])
        if self.full is not None:
            await self.full

    async def close(self, *, code: int, message: bytes) -> None:
        self.closed = True

    def fill(self) -> asyncio.Future[None]:
        self.full = asyncio.get_running_loop().create_future()
        return self.full

    def drain(self) -> None:
        full, self.full = self.full, None
        if full is not None:
            full.set_result(None)


@pytest.fixture
async def socket() -> Socket:
    return Socket()


@pytest.fixture
async def channel(socket: Socket) -> Channel:
    return Channel(cast("Any", socket))


def ordinary() -> KvGetRequest:
    return KvGetRequest("key")


def urgent() -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(Epoch(1), NodeId(1))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_frames_of_a_turn_go_out_together_at_its_end(
    channel: Channel, socket: Socket
) -> None:
    for number in range(3):
        channel.send(number, ordinary())
    assert socket.sent == []
    await asyncio.sleep(0)
    assert socket.sent == [[0, 1, 2]]
    await turns()
    assert socket.sent == [[0, 1, 2]]


async def test_the_quorums_messages_go_at_once_with_all_before_them(
    channel: Channel, socket: Socket
) -> None:
    channel.send(1, ordinary())
    channel.send(2, urgent())
    assert socket.sent == [[1, 2]]
    channel.send(3, ordinary())
    await turns()
    assert socket.sent == [[1, 2], [3]]


async def test_while_a_peer_does_not_read_frames_gather_in_order(
    channel: Channel, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "OUTGOING_BYTES_MAX", 10)
    socket.fill()
    channel.send(1, urgent())
    channel.send(2, ordinary())
    await turns()
    for number in range(3, 6):
        channel.send(number, urgent())
    assert socket.sent == [[1]]
    assert channel.congested
    socket.drain()
    await turns()
    assert socket.sent == [[1], [2, 3, 4, 5]]
    assert not channel.congested
    channel.send(6, urgent())
    assert socket.sent[2:] == [[6]]


@pytest.mark.parametrize("late", [False, True])
async def test_a_lost_connection_drops_what_is_queued(
    channel: Channel, socket: Socket, late: bool
) -> None:
    if late:
        full = socket.fill()
        channel.send(1, urgent())
        channel.send(2, urgent())
        await turns()
        full.set_exception(ConnectionResetError())
        await turns()
    else:
        socket.error = ConnectionResetError()
        channel.send(1, urgent())
    socket.error = socket.full = None
    channel.send(3, urgent())
    await turns()
    assert socket.sent == ([[1]] if late else [])


async def test_closing_sends_what_waits_for_a_slow_peer(channel: Channel, socket: Socket) -> None:
    socket.fill()
    channel.send(1, urgent())
    channel.send(2, ordinary())
    await turns()
    socket.full = None
    await channel.close()
    assert socket.sent == [[1], [2]]
    assert socket.closed
    channel.send(3, urgent())
    assert socket.sent == [[1], [2]]
