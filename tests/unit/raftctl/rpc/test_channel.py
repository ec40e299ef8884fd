"""A channel: when frames go out, what a slow or lost peer does to them, how they come in."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import aiohttp
import pytest

from raftctl.metadata.requests.kv import KvGetRequest, KvPutRequest
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    NodeId,
)
from raftctl.rpc import Channel
from raftctl.rpc import _channel as channel_module
from raftctl.rpc.codec import FrameError, FramePacker, FrameUnpacker, Run
from tests.unit.raftctl.rpc.transport import Transport


class Socket:
    """The WebSocket as aiohttp has it: tells what came another way, until it is closed."""

    def __init__(self) -> None:
        self.closed = False
        self.messages: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def receive(self) -> aiohttp.WSMessage:
        return await self.messages.get()

    async def close(self, *, code: int, message: bytes) -> None:
        self.closed = True


class Peer:
    """The other end of the connection."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.socket = Socket()
        self.channel = Channel(cast("Any", self.socket), self.transport, masks=False)
        self._unpacker = FrameUnpacker()

    @property
    def sent(self) -> list[list[int]]:
        """The correlation ids in each message, of all so far."""
        unpacker = FrameUnpacker()
        messages = self.transport.messages()
        return [[number for number, _ in unpacker.unpack(data)] for data in messages]


@pytest.fixture
async def peer() -> Peer:
    return Peer()


def ordinary() -> KvGetRequest:
    return KvGetRequest("key")


def urgent() -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(Epoch(1), NodeId(1))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_frames_of_a_turn_go_out_together_at_its_end(peer: Peer) -> None:
    for number in range(3):
        peer.channel.send(number, ordinary())
    assert peer.sent == []
    await asyncio.sleep(0)
    assert peer.sent == [[0, 1, 2]]
    await turns()
    assert peer.sent == [[0, 1, 2]]


async def test_the_quorums_messages_go_at_once_with_all_before_them(peer: Peer) -> None:
    peer.channel.send(1, ordinary())
    peer.channel.send(2, urgent())
    assert peer.sent == [[1, 2]]
    peer.channel.send(3, ordinary())
    await turns()
    assert peer.sent == [[1, 2], [3]]


async def test_many_frames_go_at_once_with_all_before_them(peer: Peer) -> None:
    peer.channel.send(1, ordinary())
    peer.channel.send_all(range(2, 22), [KvPutRequest(f"{n}", b"v") for n in range(20)])
    assert peer.sent == [list(range(1, 22))]


async def test_while_a_peer_does_not_read_frames_gather_in_order(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "OUTGOING_BYTES_MAX", 10)
    channel = peer.channel
    peer.transport.fill()
    channel.send(1, urgent())
    channel.send(2, ordinary())
    await turns()
    for number in range(3, 6):
        channel.send(number, urgent())
    assert peer.sent == []
    assert channel.congested
    peer.transport.drain()
    assert peer.sent == [[1, 2, 3, 4, 5]]
    assert not channel.congested
    channel.send(6, urgent())
    assert peer.sent[1:] == [[6]]


async def test_nothing_is_received_from_a_peer_that_does_not_read(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "OUTGOING_BYTES_MAX", 10)
    taken: list[int] = []

    def echo(runs: list[Run]) -> None:
        for number, message in (frame for run in runs for frame in run.frames()):
            taken.append(number)
            peer.channel.send(number, message)

    assert not peer.transport.reading
    running = asyncio.create_task(peer.channel.run(echo))
    await turns()
    assert peer.transport.reading
    peer.transport.fill()
    for number in range(2):
        peer.transport.receive(FramePacker().pack(number, ordinary()))
    assert not peer.transport.reading
    peer.transport.drain()
    await turns()
    assert peer.transport.reading
    assert taken == [0, 1]
    running.cancel()


@pytest.mark.parametrize("late", [False, True])
async def test_a_lost_connection_drops_what_is_queued(peer: Peer, late: bool) -> None:
    if late:
        peer.transport.fill()
        peer.channel.send(1, urgent())
    peer.transport.lose()
    peer.channel.send(2, urgent())
    await turns()
    assert peer.sent == []
    await peer.channel.close()


async def test_closing_sends_what_waits_for_a_slow_peer(peer: Peer) -> None:
    peer.transport.fill()
    peer.channel.send(1, urgent())
    peer.channel.send(2, ordinary())
    closing = asyncio.create_task(peer.channel.close())
    await turns()
    assert not peer.socket.closed
    peer.transport.drain()
    await closing
    assert peer.sent == [[1, 2]]
    assert peer.socket.closed
    peer.channel.send(3, urgent())
    assert peer.sent == [[1, 2]]


async def test_frames_are_taken_in_the_turn_in_which_they_arrive(peer: Peer) -> None:
    taken: list[int] = []

    def take(runs: list[Run]) -> None:
        taken.extend(number for run in runs for number in run.correlation_ids)

    running = asyncio.create_task(peer.channel.run(take))
    await turns()
    peer.transport.receive(FramePacker().pack_all([4, 5], [ordinary(), ordinary()]))
    assert taken == [4, 5]
    # What comes another way than usual is no less a message.
    odd = aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, FramePacker().pack(6, ordinary()), None)
    peer.socket.messages.put_nowait(odd)
    await turns()
    assert taken == [4, 5, 6]
    peer.socket.messages.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None))
    await running


async def test_what_is_no_frame_ends_the_run(peer: Peer) -> None:
    running = asyncio.create_task(peer.channel.run(lambda frames: None))
    await turns()
    peer.transport.receive(b"\xc1")
    peer.transport.receive(FramePacker().pack(1, ordinary()))
    with pytest.raises(FrameError):
        await running


async def test_what_the_taker_raises_ends_the_run(peer: Peer) -> None:
    def take(runs: list[Run]) -> None:
        raise KeyError(runs[0].correlation_ids[0])

    running = asyncio.create_task(peer.channel.run(take))
    await turns()
    peer.transport.receive(FramePacker().pack(7, ordinary()))
    with pytest.raises(KeyError, match="7"):
        await running


async def test_a_run_that_is_cancelled_is_cancelled(peer: Peer) -> None:
    running = asyncio.create_task(peer.channel.run(lambda frames: None))
    await turns()
    peer.transport.receive(b"\xc1")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_idle_peer_is_asked_and_then_given_up(peer: Peer) -> None:
    running = asyncio.create_task(peer.channel.run(lambda frames: None, heartbeat_s=0.001))
    async with asyncio.timeout(10):
        await peer.transport.aborted.wait()
    assert peer.transport.written.startswith(b"\x89\x00")
    running.cancel()
