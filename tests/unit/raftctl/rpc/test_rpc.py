"""Client and server over loopback: answers, refusals, deadlines and lost connections."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from raftctl.errors import ConfigError, ErrorCode, InvariantViolation, KafkaError
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
)
from raftctl.raft.messages import Epoch, FetchResponse, NodeId, Offset, VoteRequest
from raftctl.rpc import ChannelCounts, RpcClient, RpcRefused, RpcServer, RpcUnreachable, start_http
from raftctl.rpc import _client as client_module
from raftctl.rpc import _server as server_module
from raftctl.rpc._channel import MessageStream
from raftctl.rpc._client import RpcTimedOut
from raftctl.rpc.codec import Failure, FramePacker, FrameUnpacker, Hello
from raftctl.runtime.real import RealRuntime
from tests.unit.raftctl.rpc.test_frames import vote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from raftctl.rpc._server import BatchHandler, Handler

HOST = "127.0.0.1"


def ids(first: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(ErrorCode.NONE, first, 1000)


def never(peer: int, request: object) -> asyncio.Future[object]:
    return asyncio.get_running_loop().create_future()


def replying(function: Callable[[int, Any], Any]) -> Handler:
    """A handler that replies with what the function returns, or its coroutine or future does."""

    def handle(request: object, reply: Callable[[Any], None], peer: int) -> None:
        answer = function(peer, request)
        if asyncio.iscoroutine(answer):
            answer = asyncio.get_running_loop().create_task(answer)
        if asyncio.isfuture(answer):
            answer.add_done_callback(lambda done: reply(done.exception() or done.result()))
        else:
            reply(answer)

    return handle


class World:
    """A server and its clients; all of it is closed at the end of the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.log = io.StringIO()
        self.runtime = RealRuntime(self.log)
        self.port = 0
        self.runner: web.AppRunner | None = None
        self.failures: list[BaseException] = []
        self.server: RpcServer | None = None

    async def serve(
        self,
        functions: dict[type, Callable[[int, Any], Any]],
        handlers: dict[type, Handler] | None = None,
        batch_handlers: dict[type, BatchHandler] | None = None,
    ) -> None:
        server = RpcServer(self.runtime, cluster_id="cluster", node_id=1, fail=self.failures.append)
        self.server = server
        for request_class, function in functions.items():
            server.on(request_class, replying(function))
        for request_class, handler in (handlers or {}).items():
            server.on(request_class, handler)
        for request_class, batch_handler in (batch_handlers or {}).items():
            server.on_batch(request_class, batch_handler)
        application = web.Application()
        server.mount(application)
        self.runner, self.port = await start_http(application, HOST, self.port)
        self.stack.push_async_callback(self.runner.cleanup)

    def client(self, port: int | None = None, **changes: Any) -> RpcClient:
        arguments: dict[str, Any] = {"cluster_id": "cluster", "node_id": 2, "peer_id": 1} | changes
        client = RpcClient(self.runtime, HOST, port or self.port, **arguments)
        self.stack.push_async_callback(client.close)
        return client

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log.getvalue().splitlines()]


@asynccontextmanager
async def new_world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as one:
        yield one


async def test_handlers_answer_at_once_later_or_as_coroutines(world: World) -> None:
    later: dict[int, asyncio.Future[object]] = {}

    def future(peer: int, request: VoteRequest) -> asyncio.Future[object]:
        later[request.epoch] = asyncio.get_running_loop().create_future()
        return later[request.epoch]

    async def coroutine(peer: int, request: BrokerHeartbeatRequest) -> object:
        await asyncio.sleep(0)
        return ids(peer)

    await world.serve(
        {
            AllocateProducerIdsRequest: lambda peer, request: ids(peer + request.broker_id),
            VoteRequest: future,
            BrokerHeartbeatRequest: coroutine,
        }
    )
    client = world.client()
    first = asyncio.create_task(client.call(vote(1), 5000))
    second = asyncio.create_task(client.call(vote(2), 5000))
    assert await client.call(AllocateProducerIdsRequest(7, 1), 5000) == ids(9)
    assert await client.call(BrokerHeartbeatRequest(1, 1, 1, True, False), 5000) == ids(2)
    later[2].set_result(ids(22))
    assert await second == ids(22)
    assert not first.done()
    later[1].set_result(ids(11))
    assert await first == ids(11)


async def test_answerers_reply_at_once_later_or_refuse(world: World) -> None:
    replies: list[Callable[[Any], None]] = []

    def answer(
        request: AllocateProducerIdsRequest, reply: Callable[[Any], None], peer: int
    ) -> None:
        match request.broker_id:
            case 0:
                reply(ids(peer))
            case 1:
                replies.append(reply)
            case 2:
                reply(KafkaError(ErrorCode.NOT_CONTROLLER))
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "no such broker")

    await world.serve({}, {AllocateProducerIdsRequest: answer})
    client = world.client()
    later = asyncio.create_task(client.call(AllocateProducerIdsRequest(1, 1), 5000))
    assert await client.call(AllocateProducerIdsRequest(0, 1), 5000) == ids(2)
    for broker_id, code in ((2, ErrorCode.NOT_CONTROLLER), (3, ErrorCode.INVALID_REQUEST)):
        with pytest.raises(RpcRefused) as refusal:
            await client.call(AllocateProducerIdsRequest(broker_id, 1), 5000)
        assert refusal.value.code is code
    assert not later.done()
    replies[0](ids(11))
    assert await later == ids(11)


async def test_asking_needs_a_connection_and_tells_the_outcome_once(world: World) -> None:
    await world.serve(
        {
            AllocateProducerIdsRequest: lambda peer, request: ids(peer),
            BrokerHeartbeatRequest: never,
        }
    )
    client = world.client()
    outcomes: asyncio.Queue[Any] = asyncio.Queue()

    async def outcome() -> Any:
        return await asyncio.wait_for(outcomes.get(), 10)

    assert not client.ask(AllocateProducerIdsRequest(1, 1), 5000, outcomes.put_nowait)
    await client.call(AllocateProducerIdsRequest(1, 1), 5000)
    assert client.ask(AllocateProducerIdsRequest(1, 1), 5000, outcomes.put_nowait)
    assert outcomes.empty()
    assert await outcome() == ids(2)
    beat = BrokerHeartbeatRequest(1, 1, 1, True, False)
    assert client.ask(beat, 50, outcomes.put_nowait)
    assert isinstance(await outcome(), RpcTimedOut)
    await client.call(AllocateProducerIdsRequest(1, 1), 5000)
    assert client.ask(beat, 60_000, outcomes.put_nowait)
    await client.close()
    assert isinstance(await outcome(), RpcUnreachable)
    assert outcomes.empty()
    assert not client.ask(beat, 5000, outcomes.put_nowait)


async def test_answerers_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUESTS_MAX", 2)
    replies: asyncio.Queue[Callable[[Any], None]] = asyncio.Queue()
    await world.serve({}, {VoteRequest: lambda request, reply, peer: replies.put_nowait(reply)})
    client = world.client()
    first = asyncio.create_task(client.call(vote(1), 5000))
    (await replies.get())(ids(1))
    assert await first == ids(1)
    calls = [asyncio.create_task(client.call(vote(n), 5000)) for n in range(3)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RpcUnreachable] * 3
    assert "more than 2 requests" in world.log.getvalue()


async def test_requests_that_come_in_numbers_are_answered_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most so many; others between them keep their place, and each is answered for itself."""
    monkeypatch.setattr(server_module, "BATCH_MAX", 3)
    groups: list[list[int]] = []
    held: list[Callable[[Sequence[Any]], None]] = []

    def answer(
        requests: Sequence[AllocateProducerIdsRequest],
        reply: Callable[[Sequence[Any]], None],
    ) -> None:
        numbers = [request.broker_id for request in requests]
        groups.append(numbers)
        if 5 in numbers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "five")
        if 0 in numbers:
            held.append(reply)
        else:
            refusal = KafkaError(ErrorCode.NOT_CONTROLLER)
            reply([refusal if number == 3 else ids(number) for number in numbers])

    await world.serve(
        {VoteRequest: lambda peer, request: ids(len(groups))},
        batch_handlers={AllocateProducerIdsRequest: answer},
    )
    client = world.client()
    assert await client.call(vote(), 5000) == ids(0)
    asked = [AllocateProducerIdsRequest(n, 1) for n in range(6)]
    sent = [*asked[:5], vote(), asked[5]]
    calls = [asyncio.create_task(client.call(request, 5000)) for request in sent]
    outcomes = await asyncio.gather(*calls[3:], return_exceptions=True)
    assert groups == [[0, 1, 2], [3, 4], [5]]
    codes = [each.code if isinstance(each, RpcRefused) else each for each in outcomes]
    assert codes == [ErrorCode.NOT_CONTROLLER, ids(4), ids(2), ErrorCode.INVALID_REQUEST]
    held[0]([ids(n) for n in range(3)])
    assert await asyncio.gather(*calls[:3]) == [ids(n) for n in range(3)]


async def test_frames_of_one_turn_share_a_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.serve({AllocateProducerIdsRequest: lambda peer, request: ids(request.broker_id)})
    client = world.client()
    await client.call(AllocateProducerIdsRequest(0, 1), 5000)
    sent: list[int] = []
    send = MessageStream.send

    def count(self: MessageStream, message: bytes) -> None:
        sent.append(len(message))
        send(self, message)

    monkeypatch.setattr(MessageStream, "send", count)
    calls = [client.call(AllocateProducerIdsRequest(n, 1), 5000) for n in range(300)]
    assert [answer.first for answer in await asyncio.gather(*calls)] == list(range(300))
    assert 2 <= len(sent) <= 6


async def test_large_messages_pass(world: World) -> None:
    answer = FetchResponse(
        ErrorCode.NONE,
        Epoch(1),
        NodeId(1),
        Offset(0),
        Offset(0),
        None,
        None,
        Offset(0),
        bytes(16 * 1024 * 1024),
    )
    await world.serve({VoteRequest: lambda peer, request: answer})
    client = world.client()
    assert await client.call(vote(), 20_000) == answer
    assert await asyncio.gather(*[client.call(vote(), 20_000) for _ in range(3)]) == [answer] * 3


async def test_errors_of_a_handler_reach_the_caller(world: World) -> None:
    def refuse(peer: int, request: object) -> object:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "ask node 3")

    async def refuse_later(peer: int, request: object) -> object:
        return refuse(peer, request)

    def bug(peer: int, request: object) -> object:
        raise InvariantViolation("cannot be")

    await world.serve(
        {
            VoteRequest: refuse,
            BrokerHeartbeatRequest: refuse_later,
            AllocateProducerIdsRequest: bug,
        }
    )
    client = world.client()
    for request in (vote(), BrokerHeartbeatRequest(1, 1, 1, True, False)):
        with pytest.raises(RpcRefused, match="ask node 3") as refused:
            await client.call(request, 5000)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(RpcRefused, match="UNKNOWN_SERVER_ERROR"):
        await client.call(AllocateProducerIdsRequest(1, 1), 5000)
    assert [str(failure) for failure in world.failures] == ["cannot be"]
    assert "rpc_handler_failed" in world.events()
    with pytest.raises(RpcRefused, match="does not answer Hello"):
        await client.call(Hello(1, "cluster", 2), 5000)


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"cluster_id": "other"}, "INCONSISTENT_CLUSTER_ID", "node 1 is of cluster cluster, not"),
        ({"peer_id": 3}, "UNKNOWN_CONTROLLER_ID", "this is node 1, not 3"),
        ({"node_id": -1}, "INVALID_REQUEST", "-1 is no node id"),
    ],
)
async def test_strangers_are_told_why(
    world: World, changes: dict[str, Any], code: str, reason: str
) -> None:
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    with pytest.raises(RpcRefused, match=f"{code}: {reason}"):
        await world.client(**changes).call(vote(), 5000)
    assert "rpc_peer_dropped" in world.events()
    assert await world.client().call(vote(), 5000) == ids(1)


async def test_another_version_is_refused(world: World) -> None:
    await world.serve({})
    client = world.client()
    client._hello = replace(client._hello, version=9)
    with pytest.raises(RpcRefused, match="UNSUPPORTED_VERSION: node 1 speaks version 1, not 9"):
        await client.call(vote(), 5000)


async def test_a_late_answer_is_ignored_and_the_connection_stays(world: World) -> None:
    answers: list[asyncio.Future[object]] = []

    def late(peer: int, request: object) -> asyncio.Future[object]:
        answers.append(never(peer, request))
        return answers[-1]

    await world.serve({VoteRequest: late, AllocateProducerIdsRequest: lambda peer, request: ids(1)})
    client = world.client()
    await client.call(AllocateProducerIdsRequest(1, 1), 5000)
    call = asyncio.create_task(client.call(vote(), 800))
    await asyncio.sleep(0.02)
    await client.call(AllocateProducerIdsRequest(1, 1), 5000)
    with pytest.raises(RpcTimedOut):
        await call
    answers[0].set_result(ids(1))
    assert await client.call(AllocateProducerIdsRequest(1, 1), 5000) == ids(1)
    assert world.events().count("peer_reachable") == 0


async def test_a_silent_connection_is_given_up(world: World) -> None:
    await world.serve({VoteRequest: never})
    client = world.client()
    with pytest.raises(RpcTimedOut):
        await client.call(vote(), 60)
    with pytest.raises(RpcTimedOut):
        await client.call(vote(), 60)
    assert "peer_unreachable" in world.events()


async def test_each_call_ends_at_its_own_deadline_on_a_connection_that_lives(world: World) -> None:
    def some(peer: int, request: VoteRequest) -> object:
        return never(peer, request) if request.pre_vote else ids(1)

    await world.serve({VoteRequest: some})
    client, loop = world.client(), asyncio.get_running_loop()
    answered = replace(vote(), pre_vote=False)
    ended: dict[int, float] = {}

    async def call(timeout_ms: int) -> None:
        with pytest.raises(RpcTimedOut):
            await client.call(vote(), timeout_ms)
        ended[timeout_ms] = loop.time() - began

    await client.call(answered, 5000)
    began = loop.time()
    calls = [asyncio.create_task(call(timeout_ms)) for timeout_ms in (60, 120, 240)]
    await asyncio.sleep(0.02)
    # Something is heard, so the connection is not taken for dead.
    await client.call(answered, 5000)
    await asyncio.wait_for(asyncio.gather(*calls), 5)
    assert list(ended) == [60, 120, 240]
    assert all(took >= timeout_ms / 1000 - 0.05 for timeout_ms, took in ended.items())
    assert "peer_unreachable" not in world.events()


async def test_a_later_deadline_does_not_put_an_earlier_one_off(world: World) -> None:
    await world.serve({VoteRequest: never})
    client, loop = world.client(), asyncio.get_running_loop()
    with pytest.raises(RpcTimedOut):
        await client.call(vote(), 20)
    began = loop.time()
    soon = asyncio.create_task(client.call(vote(), 100))
    await asyncio.sleep(0.02)
    later = asyncio.create_task(client.call(vote(), 60_000))
    with pytest.raises(RpcTimedOut):
        await asyncio.wait_for(soon, 30)
    assert loop.time() - began < 20
    await asyncio.gather(later, return_exceptions=True)


async def test_a_call_that_was_given_up_leaves_nothing_behind(world: World) -> None:
    await world.serve({VoteRequest: never})
    client = world.client()
    calls = [asyncio.create_task(client.call(vote(), 60_000)) for _ in range(3)]
    await asyncio.sleep(0.1)
    link = client._link
    assert link is not None
    assert len(link._pending) == 3
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert link._pending == {}


async def test_pauses_grow_from_loss_to_loss_up_to_a_bound(world: World) -> None:
    client, loop = world.client(port=1), asyncio.get_running_loop()
    for failures in range(20):
        client._back_off()
        pause_s = client._not_before - loop.time()
        longest_s = min(client_module.BACKOFF_S * 2**failures, client_module.BACKOFF_S_MAX)
        assert 0.5 * longest_s - 0.05 <= pause_s <= longest_s


async def test_requests_that_were_answered_are_not_counted_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, later and together: else a connection would end after so many requests."""

    def answer(request: object, reply: Callable[[Any], None], peer: int) -> None:
        reply(ids(1))

    monkeypatch.setattr(server_module, "REQUESTS_MAX", 4)
    await world.serve({}, {VoteRequest: answer})
    client = world.client()
    for _ in range(12):
        assert await client.call(vote(), 5000) == ids(1)
    assert client._hello.connection == 1, "all on one connection"


async def test_who_has_answered_is_soon_asked_again_after_a_loss(world: World) -> None:
    """Pauses grow from loss to loss, but only as long as nobody answers in between."""
    client = world.client(port=1)
    for _ in range(10):
        client._back_off()
    client.answered()
    client._back_off()
    assert client._not_before - asyncio.get_running_loop().time() <= client_module.BACKOFF_S


async def test_nobody_there_is_unreachable_soon_and_told_once(world: World) -> None:
    await world.serve({})
    assert world.runner is not None
    await world.runner.cleanup()
    client = world.client()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(4):
        with pytest.raises(RpcUnreachable, match=f"{HOST}:{world.port}"):
            await client.call(vote(), 5000)
    assert 0.03 < loop.time() - begin < 2
    assert world.events() == ["peer_unreachable"]
    with pytest.raises(RpcTimedOut):
        await client.call(vote(), 1)  # waits for its turn to connect, but not past its deadline


async def test_calls_fail_when_the_connection_ends_and_the_next_reconnects(world: World) -> None:
    forever: list[asyncio.Future[object]] = []
    arrived = asyncio.Event()

    def wait(peer: int, request: object) -> asyncio.Future[object]:
        forever.append(never(peer, request))
        if len(forever) == 3:
            arrived.set()
        return forever[-1]

    await world.serve({VoteRequest: wait})
    client = world.client()
    calls = [asyncio.create_task(client.call(vote(), 5000)) for _ in range(3)]
    await arrived.wait()
    assert world.runner is not None
    await world.runner.cleanup()
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, RpcUnreachable)
    assert not any(future.cancelled() for future in forever)
    await world.serve({VoteRequest: lambda peer, request: ids(4)})
    assert await client.call(vote(), 5000) == ids(4)


async def test_a_closed_client_says_so(world: World) -> None:
    await world.serve({VoteRequest: never})
    client = world.client()
    call = asyncio.create_task(client.call(vote(), 5000))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(RpcUnreachable):
        await call
    with pytest.raises(RpcUnreachable, match="closed"):
        await client.call(vote(), 5000)


async def test_bad_frames_cost_only_their_own_connection(world: World) -> None:
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    good = world.client()
    await good.call(vote(), 5000)
    hello = FramePacker().pack(0, Hello(1, "cluster", 5))
    bad_openings = [b"\xff", b"GET / HTTP/1.1", FramePacker().pack(1, vote()), hello + b"\xc1"]
    async with aiohttp.ClientSession() as session:
        for opening in bad_openings:
            socket = await session.ws_connect(f"http://{HOST}:{world.port}/rpc")
            await socket.send_bytes(opening)
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == aiohttp.WSCloseCode.PROTOCOL_ERROR
        socket = await session.ws_connect(f"http://{HOST}:{world.port}/rpc")
        await socket.send_str("hello")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        answer = await session.get(f"http://{HOST}:{world.port}/rpc")
        assert answer.status == 400
    assert world.events() == ["rpc_peer_dropped"] * 5
    assert await good.call(vote(), 5000) == ids(1)


async def test_a_peer_that_says_nothing_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HELLO_TIMEOUT_S", 0.05)
    await world.serve({})
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://{HOST}:{world.port}/rpc") as socket,
    ):
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
    assert "no hello in time" in world.log.getvalue()


async def test_requests_that_wait_are_bounded_on_both_sides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.serve({VoteRequest: never})
    monkeypatch.setattr(client_module, "CALLS_MAX", 8)
    client = world.client()
    calls = [asyncio.create_task(client.call(vote(), 5000)) for _ in range(8)]
    await asyncio.sleep(0.1)
    with pytest.raises(RpcUnreachable, match="too many calls"):
        await client.call(vote(), 5000)
    monkeypatch.setattr(client_module, "CALLS_MAX", 1024)
    monkeypatch.setattr(server_module, "REQUESTS_MAX", 8)
    with pytest.raises(RpcUnreachable):
        await client.call(vote(), 5000)
    await asyncio.gather(*calls, return_exceptions=True)
    assert "more than 8 requests" in world.log.getvalue()


async def test_a_server_that_talks_nonsense_is_unreachable(world: World) -> None:
    async def nonsense(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(b"\xff\xff")
        await socket.receive()
        return socket

    application = web.Application()
    application.router.add_get("/rpc", nonsense)
    runner, port = await start_http(application, HOST, 0)
    world.stack.push_async_callback(runner.cleanup)
    with pytest.raises(RpcUnreachable):
        await world.client(port).call(vote(), 5000)


async def test_connections_are_opened_through_the_loop_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    loop = asyncio.get_running_loop()
    opened: list[tuple[Any, ...]] = []
    create_connection = loop.create_connection

    async def spy(factory: Any, *arguments: Any, **more: Any) -> Any:
        opened.append((*arguments, more))
        return await create_connection(factory, *arguments, **more)

    monkeypatch.setattr(loop, "create_connection", spy)
    await world.client().call(vote(), 5000)
    assert opened == [(HOST, world.port, {})]


async def test_a_port_in_use_is_one_line_with_key_and_remedy(world: World) -> None:
    await world.serve({})
    with pytest.raises(ConfigError, match=f"listeners: {HOST}:{world.port} cannot be bound"):
        await start_http(web.Application(), HOST, world.port)


class Peer:
    """A peer that speaks frame by frame, and answers pings when it is told to."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, correlation_id: int, message: object) -> object:
        """Sends one frame; returns the answer's object."""
        await self.socket.send_bytes(FramePacker().pack(correlation_id, message))
        return await self.hear()

    async def hear(self) -> object:
        """The next object, the payload of a ping, or None at the end of the connection."""
        message = await self.socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            [(_, found)] = FrameUnpacker().unpack(message.data)
            return found
        return bytes(message.data) if message.type is aiohttp.WSMsgType.PING else None


@asynccontextmanager
async def peer(world: World, client: int = 0, connection: int = 0) -> AsyncIterator[Peer]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://{HOST}:{world.port}/rpc", autoping=False) as socket,
    ):
        found = Peer(socket)
        await found.say(0, Hello(1, "cluster", 2, 1, client, connection))
        yield found


@pytest.mark.req("Q11")
async def test_what_was_sent_before_a_fence_is_refused_until_the_peer_is_known_to_live(
    world: World,
) -> None:
    request = AllocateProducerIdsRequest(0, 0)
    await world.serve(
        {VoteRequest: lambda peer, request: ids(1)},
        {AllocateProducerIdsRequest: lambda request, reply, peer: reply(ids(2))},
    )
    assert world.server is not None
    async with peer(world) as before:
        assert await before.say(1, request) == ids(2)
        world.server.fence({AllocateProducerIdsRequest: ErrorCode.NOT_CONTROLLER})
        world.server.fence({AllocateProducerIdsRequest: ErrorCode.NOT_CONTROLLER})
        first, second = await before.hear(), await before.hear()
        assert isinstance(first, bytes)
        assert isinstance(second, bytes)
        refused = await before.say(2, request)
        assert isinstance(refused, Failure)
        assert refused.error is ErrorCode.NOT_CONTROLLER
        assert await before.say(3, vote()) == ids(1), "other classes are answered"
        await before.socket.pong(first)
        assert isinstance(await before.say(4, request), Failure), "an answer to an older ping"
        await before.socket.pong(second)
        assert await before.say(5, request) == ids(2)
        async with peer(world) as after:
            assert await after.say(1, request) == ids(2), "it was opened after the fence"


@pytest.mark.req("Q11")
async def test_a_client_that_connects_again_ends_its_older_connections(world: World) -> None:
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    async with peer(world, 7, 0) as first, peer(world, 8, 0) as other, peer(world, 7, 1) as second:
        assert await first.hear() is None
        assert await second.say(1, vote()) == ids(1)
        assert await other.say(1, vote()) == ids(1)
        async with peer(world, 7, 0) as late:
            assert await late.hear() is None
        assert await second.say(2, vote()) == ids(1)


async def test_a_client_counts_its_connections(world: World) -> None:
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    client = world.client()
    await client.call(vote(), 5000)
    assert world.runner is not None
    await world.runner.cleanup()
    with pytest.raises(RpcUnreachable):
        await client.call(vote(), 5000)
    await world.serve({VoteRequest: lambda peer, request: ids(1)})
    await client.call(vote(), 5000)
    assert world.server is not None
    (connection,) = world.server._connections
    assert connection.number >= 1


@pytest.mark.req("O1")
async def test_a_client_counts_what_it_asks_and_what_it_gets(world: World) -> None:
    counts = ChannelCounts()
    await world.serve({AllocateProducerIdsRequest: lambda peer, request: ids(7)})
    client = world.client(counts=counts)
    for _ in range(3):
        await client.call(AllocateProducerIdsRequest(1, 1), 5_000)
    assert (counts.requests.count, counts.responses.count) == (3, 3)
    sent, received = counts.outgoing.count, counts.incoming.count
    assert 3 * 4 < sent < 1_000
    assert 3 * 4 < received < 1_000
    await client.call(AllocateProducerIdsRequest(1, 1), 5_000)
    assert counts.outgoing.count - sent == pytest.approx(sent / 3, abs=1)
    assert counts.incoming.count - received == pytest.approx(received / 3, abs=1)
