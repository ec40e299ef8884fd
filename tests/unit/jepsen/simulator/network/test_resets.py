"""Connections that end in the middle of what is sent, and such as the network has forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import Fault
from jepsen.simulator.faults import PlannedNemesis
from jepsen.simulator.network import Link, sockets_of
from jepsen.simulator.network._connection import NOTIFIED
from jepsen.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1")

PORT = 80
PACE_S = 0.1
WHOLE = bytes(range(100))


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


class Talk:
    """A client sends to a server at its pace; each notes what it gets and how its side ends."""

    def __init__(self, world: World, *, answers: bool = False) -> None:
        self.world = world
        self.answers = answers
        self.got: list[bytes] = []
        """What the server has read of each connection."""
        self.ends: list[str] = []
        """How each connection ended for the server."""
        self.lost: list[float] = []
        """When the client heard of the end of a connection."""
        self.sent: list[int] = []
        """How much the client has sent on each connection."""

    def start(self) -> None:
        self.world.start("server", self._serve)
        self.world.start("client", self._send)

    async def _serve(self, runtime: SimRuntime) -> None:
        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = len(self.got)
            self.got.append(b"")
            self.ends.append("")
            try:
                while data := await reader.read(1 << 16):
                    self.got[number] += data
                    if self.answers:
                        writer.write(data[:1])
                self.ends[number] = "end"
            except ConnectionResetError:
                self.ends[number] = "reset"
            finally:
                writer.close()

        await asyncio.start_server(read, "server", PORT)
        await asyncio.sleep(10_000)

    async def _send(self, runtime: SimRuntime) -> None:
        while True:
            reader, writer = await asyncio.open_connection("server", PORT)
            hearing = asyncio.ensure_future(self._hear(reader))
            self.sent.append(0)
            while not hearing.done():
                writer.write(WHOLE)
                self.sent[-1] += len(WHOLE)
                await asyncio.sleep(PACE_S)
            writer.close()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionResetError:
            self.lost.append(self.world.elapsed_s)


def test_a_link_that_resets_does_so_within_a_segment_and_tells_whom_it_tells_in_turn() -> None:
    link = Link()
    assert link.resets_within(1_000) is None
    link.reset_every(250)
    found = [link.resets_within(100) for _ in range(9)]
    assert [None if one is None else one.after_bytes for one in found] == [
        *(None, None, 50),
        *(None, None, 50),
        *(None, None, 50),
    ]
    told = [(one.notifies_sender, one.notifies_receiver) for one in found if one is not None]
    assert sorted(told) == [(False, True), (True, False), (True, True)]
    link.reset_every(None)
    assert link.resets_within(1_000) is None


@pytest.mark.parametrize("turn", range(len(NOTIFIED)))
def test_a_reset_cuts_what_is_sent_and_nothing_comes_after_the_gap(world: World, turn: int) -> None:
    talk = Talk(world)
    talk.start()
    world.run(0.5)
    link = world.network.link("client", "server")
    link.resets = turn
    link.reset_every(250)
    world.run(0.5)
    link.reset_every(None)
    world.run(1.0)
    assert link.resets == turn + 1
    told = NOTIFIED[link.resets % len(NOTIFIED)]
    first = talk.got[0]
    assert len(first) % len(WHOLE) == 50
    assert first == (WHOLE * 20)[: len(first)]
    if "sender" in told:
        assert talk.lost[0] <= 0.85
    else:
        # It hears of the reset when it sends the next time.
        assert talk.lost[0] == pytest.approx(0.85, abs=0.1)
    assert talk.ends[0] == ("reset" if "receiver" in told else "")
    assert len(talk.got) == 2
    assert len(talk.got[1]) > 10 * len(WHOLE) / 2


def test_who_is_not_told_of_a_reset_learns_it_by_sending(world: World) -> None:
    """The server has half of a request, and the client is gone: the connection is half open."""
    talk = Talk(world)
    talk.start()
    link = world.network.link("client", "server")
    world.run(0.55)
    link.resets = 1
    link.reset_every(50)
    world.run(0.1)
    link.reset_every(None)
    assert NOTIFIED[link.resets % len(NOTIFIED)] == ("sender",)
    world.run(60.0)
    assert talk.ends[0] == ""
    server = world.node("server").process
    assert server is not None
    first = next(iter(sockets_of(server).endpoints.values()))
    assert first.send(memoryview(b"are you there?")) == 14
    world.run(0.1)
    assert talk.ends[0] == "reset"


def test_forgotten_connections_are_silent_and_refused_when_the_network_answers(
    world: World,
) -> None:
    talk = Talk(world, answers=True)
    talk.start()
    world.run(1.0)
    flows = world.network.forget_between(world.node("client"), world.node("server"))
    assert len(flows) == 2
    before = len(talk.got[0])
    world.run(5.0)
    assert (talk.lost, talk.ends, len(talk.got)) == ([], [""], 1)
    assert len(talk.got[0]) == before
    for flow in flows:
        flow.refuse()
    world.run(1.0)
    assert talk.lost == [pytest.approx(6.0, abs=0.01)]
    assert len(talk.got) == 2
    assert talk.got[1]
    # The server has sent nothing meanwhile, so nobody has told it.
    assert talk.ends[0] == ""


def test_a_new_connection_works_while_old_ones_are_forgotten(world: World) -> None:
    talk = Talk(world)
    talk.start()
    world.run(1.0)
    world.network.forget_between(world.node("server"), world.node("client"))
    world.kill("client")
    world.start("client", talk._send)
    world.run(1.0)
    assert talk.ends == ["", ""]
    assert len(talk.got[1]) > 5 * len(WHOLE)


@pytest.mark.parametrize("kind", ["reset", "half_open", "bandwidth"])
def test_the_nemesis_does_it_and_undoes_it(world: World, kind: str) -> None:
    talk = Talk(world, answers=True)
    amounts = {"reset": 150.0, "bandwidth": 500.0}

    async def story() -> None:
        talk.start()
        await asyncio.sleep(1)
        nemesis = PlannedNemesis(
            world,
            ["client", "server"],
            start=lambda name: None,
            power_off=world.power_off,
            guard=lambda fault: True,
        )
        pair = ("client", "server")
        await nemesis.run((Fault(kind, 0, 2_000, pair, amounts.get(kind, 0.0)),))

    world.run(story())
    received = sum(map(len, talk.got))
    assert received < (20 if kind == "half_open" else 31) * len(WHOLE)
    ended = len(talk.lost)
    assert (ended > 5) == (kind == "reset")
    world.run(10.0)
    assert sum(map(len, talk.got)) > received + 90 * len(WHOLE)
    assert len(talk.lost) - ended <= 1
