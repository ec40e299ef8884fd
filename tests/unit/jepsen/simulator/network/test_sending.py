"""Parts of simulated files on simulated connections, sent by the outbox that brokers use."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING

import pytest

from broker.server._connection import Outbox
from jepsen.simulator.disk._disk import SimFile
from jepsen.simulator.network import SimSender
from jepsen.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jepsen.simulator.world import SimRuntime

pytestmark = pytest.mark.req("J1", "L9")

CONTENT = random.Random(1).randbytes(1_500_000)
PATH = "/data/file"
PORT = 9092
BYTES_PER_S = 2_000_000.0
"""Of the link to the client: what does not fit its window waits in the outbox."""
WHOLE = b"head" + CONTENT[7:] + b"-" + CONTENT[:300_000] + b"tail"


class Server(asyncio.Protocol):
    """Sends parts of a file to whoever connects."""

    def __init__(self, runtime: SimRuntime, file: SimFile, errors: list[OSError]) -> None:
        self._runtime = runtime
        self._file = file
        self._errors = errors
        self._outbox: Outbox | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._outbox = Outbox(transport, self._runtime.sender)
        first, second = self._file.region(7, 1 << 30), self._file.region(0, 300_000)
        self._outbox.put([b"head", first, b"-", second, b"tail"])
        self._send()

    def pause_writing(self) -> None:
        assert self._outbox is not None
        self._outbox.is_writable = False

    def resume_writing(self) -> None:
        assert self._outbox is not None
        self._outbox.is_writable = True
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        assert self._outbox is not None
        self._outbox.close()
        self._outbox = None

    def _send(self) -> None:
        assert self._outbox is not None
        try:
            self._outbox.send()
        except OSError as error:
            self._errors.append(error)
            self._transport.abort()
        else:
            if not self._outbox.size:
                self._transport.close()


def received(
    seed: int, meanwhile: Callable[[World, SimFile], None] = lambda *_: None
) -> tuple[bytes, list[OSError]]:
    """What a client gets, and what the server is told; `meanwhile` is called in the middle."""
    errors: list[OSError] = []
    got = bytearray()
    files: list[SimFile] = []

    async def serve(runtime: SimRuntime) -> None:
        runtime.files.make_directories("/data")
        file = runtime.files.open(PATH, create=True)
        file.append([CONTENT])
        assert isinstance(file, SimFile)
        files.append(file)
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Server(runtime, file, errors), "server", PORT)
        await asyncio.sleep(3600)

    async def read(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        try:
            while data := await reader.read(50_000):
                got.extend(data)
        finally:
            writer.close()

    async def story(world: World) -> None:
        world.start("server", serve)
        world.network.link("server", "client").bytes_per_s = BYTES_PER_S
        await asyncio.sleep(0.1)
        client = world.start("client", read).done
        await asyncio.sleep(0.2)
        assert 0 < len(got) < 1_000_000
        meanwhile(world, files[0])
        await asyncio.wait([client], timeout=5)

    with World(seed, tolerated=(ConnectionResetError,)) as world:
        world.run(story(world))
    return bytes(got), errors


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_client_gets_all_in_order(seed: int) -> None:
    assert received(seed) == (WHOLE, [])


def test_what_is_closed_and_removed_meanwhile_is_sent_all_the_same() -> None:
    def remove(world: World, file: SimFile) -> None:
        file.close()
        world.node("server").disk.remove(PATH)

    assert received(1, remove) == (WHOLE, [])


def test_what_is_cut_meanwhile_is_not_sent_even_if_other_bytes_stand_there_now() -> None:
    def cut(world: World, file: SimFile) -> None:
        size = len(CONTENT) // 2
        file.truncate(size)
        file.append([bytes(len(CONTENT) - size)])

    got, errors = received(2, cut)
    assert len(got) < len(WHOLE)
    assert WHOLE.startswith(got)
    assert [one.errno for one in errors] == [errno.ESTALE]


def test_a_server_that_is_killed_in_the_middle_sends_no_more() -> None:
    got, errors = received(3, lambda world, _: world.kill("server"))
    assert 0 < len(got) < len(WHOLE)
    assert WHOLE.startswith(got)
    assert errors == []


def test_a_connection_that_is_reset_ends_the_sending() -> None:
    got, errors = received(
        4, lambda world, _: world.network.reset_between(world.node("server"), world.node("client"))
    )
    assert WHOLE.startswith(got)
    assert len(got) < len(WHOLE)
    assert len(errors) <= 1


def test_bytes_never_overtake_what_the_transport_has_yet_to_send() -> None:
    class Full:
        def get_write_buffer_size(self) -> int:
            return 1

    transport: Any = Full()
    with pytest.raises(AssertionError, match="has something to send"):
        SimSender(transport, random.Random(1)).send([b"x"], 0)
