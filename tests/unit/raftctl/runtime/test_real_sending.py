"""Parts of files on sockets: what arrives, and what happens to the file meanwhile."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.runtime.real import SENT_FROM_FILE_BYTES, RealFileSystem, RealSender, make_sender

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.runtime.api import FileRegion, Piece
    from raftctl.runtime.real import RealFile

pytestmark = pytest.mark.req("L9")
CONTENT = random.Random(1).randbytes(1 << 20)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    opened = RealFileSystem().open(str(tmp_path / "file"), create=True)
    opened.append([CONTENT])
    yield opened
    opened.close()


def part(file: RealFile, position: int, size: int) -> FileRegion:
    found = file.region(position, size)
    assert not isinstance(found, bytes | bytearray | memoryview)
    return found


def connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    return accepted, client


def received(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += client.recv(1 << 20)
    return bytes(data)


def test_what_is_small_is_read_and_nothing_reaches_past_the_end(file: RealFile) -> None:
    small = SENT_FROM_FILE_BYTES - 1
    assert file.region(5, small) == CONTENT[5 : 5 + small]
    tail = part(file, len(CONTENT) - SENT_FROM_FILE_BYTES, 1 << 30)
    assert len(tail) == SENT_FROM_FILE_BYTES
    assert tail.read(10, 1 << 30) == CONTENT[10 - SENT_FROM_FILE_BYTES :]


def test_a_part_outlives_the_closing_of_its_file_and_its_removal(
    file: RealFile, tmp_path: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    parts = [part(file, at, 50_000) for at in (0, 100_000)]
    file.close()
    (tmp_path / "file").unlink()
    assert [one.read(0, 50_000) for one in parts] == [CONTENT[:50_000], CONTENT[100_000:150_000]]
    assert len(os.listdir("/proc/self/fd")) == before
    parts.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_what_was_cut_off_is_refused_even_if_other_bytes_stand_there_now(file: RealFile) -> None:
    found = part(file, 500_000, 100_000)
    file.truncate(550_000)
    file.append([bytes(200_000)])
    with pytest.raises(OSError, match="cut off before it was sent"):
        found.read(0, 1)
    sender, client = connection()
    with sender, client:
        by = RealSender(sender.fileno())
        with pytest.raises(OSError, match="cut off before it was sent"):
            by.send([found], 0)
        by.close()
    assert part(file, 600_000, 100_000).read(0, 10) == bytes(10)


def test_a_file_that_somebody_else_made_shorter_is_refused(file: RealFile, tmp_path: Path) -> None:
    found = part(file, 500_000, 100_000)
    os.truncate(tmp_path / "file", 500_000)
    with pytest.raises(OSError, match="cut off before it was sent"):
        found.read(0, 1)


@pytest.mark.parametrize("start", [0, 3])
def test_buffers_and_parts_arrive_in_order(file: RealFile, start: int) -> None:
    sender, client = connection()
    pieces: list[Piece] = [
        b"head",
        bytearray(b"er"),
        part(file, 7, 90_000),
        b"-",
        part(file, 0, 70_000),
        b"end",
    ]
    whole = b"header" + CONTENT[7:90_007] + b"-" + CONTENT[:70_000] + b"end"
    with sender, client:
        by = RealSender(sender.fileno())
        assert by.send(pieces, start) == len(whole) - start
        assert received(client, len(whole) - start) == whole[start:]
        by.close()


def test_a_full_connection_takes_a_part_of_it_and_then_the_rest(file: RealFile) -> None:
    sender, client = connection()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
    pieces: list[Any] = [b"first", part(file, 0, len(CONTENT))]
    with sender, client:
        by = RealSender(sender.fileno())
        sent = by.send(pieces, 0)
        assert 5 < sent < len(CONTENT)
        assert by.send(pieces[1:], sent - 5) == 0
        got = received(client, sent)
        while sent < len(CONTENT) + 5:
            more = by.send(pieces[1:], sent - 5)
            got += received(client, more)
            sent += more
        assert got == b"first" + CONTENT
        by.close()


def test_many_buffers_are_sent_with_several_calls() -> None:
    sender, client = connection()
    pieces = [bytes([n % 256]) for n in range(3_000)]
    with sender, client:
        by = RealSender(sender.fileno())
        sent = 0
        while sent < len(pieces):
            sent += by.send(pieces[sent:], 0)
        assert received(client, len(pieces)) == b"".join(pieces)
        by.close()


async def test_only_plain_connections_have_a_sender() -> None:
    class Encrypted(asyncio.Transport):
        pass

    sender, client = connection()
    with sender, client:
        assert make_sender(asyncio.Transport()) is None
        assert make_sender(Encrypted({"socket": sender, "sslcontext": object()})) is None
        plain = make_sender(asyncio.Transport({"socket": sender}))
        assert plain is not None
        plain.close()
