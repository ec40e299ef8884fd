"""What leaves a connection when, and what becomes of parts of files that cannot leave."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.log.partition_log import _opening as opening
from broker.log.segments import Limits
from broker.protocol.versions import ApiKey
from broker.server._connection import CHUNK_BYTES, Outbox
from broker.types import FetchPartition, FetchResult, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.real import RealFileSystem
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.logs import batches_in
from tests.unit.broker.replication.world import eventually
from tests.unit.broker.server.fakes import FakeBroker, connected, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from raftctl.runtime.api import Piece
    from raftctl.runtime.real import RealFile

pytestmark = pytest.mark.req("L9")
CONTENT = random.Random(2).randbytes(8 << 20)
FETCH = ApiKey.FETCH
VERSIONS = ApiKey.API_VERSIONS


class Pipe(asyncio.Transport):
    """A transport that keeps what it is given until somebody drains it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = bytearray()
        self.outbox: Outbox | None = None
        self.low: int | None = None
        self.calls = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert high < CHUNK_BYTES
        self.low = low

    def write(self, data: Any) -> None:
        self.kept += data
        self.calls += 1
        if self.outbox is not None:
            self.outbox.is_writable = len(self.kept) <= 64 * 1024

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return len(self.kept)

    def is_closing(self) -> bool:
        return False

    def drain(self) -> bytes:
        data, self.kept = bytes(self.kept), bytearray()
        assert self.outbox is not None
        self.outbox.is_writable = True
        return data


class Part:
    """A part of a file that counts what is read of it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.read_bytes = 0

    def __len__(self) -> int:
        return len(self._content)

    def read(self, start: int, size: int) -> bytes:
        data = self._content[start : start + size]
        self.read_bytes += len(data)
        return data


class Stingy:
    """A sender that takes a few bytes each time, and now and then none."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._chance = random.Random(3)
        self.closed = False
        self.sent = bytearray()

    def send(self, pieces: Any, start: int) -> int:
        assert not self._pipe.kept
        whole = b"".join(p if isinstance(p, bytes) else p.read(0, len(p)) for p in pieces)
        data = whole[start : start + self._chance.choice((0, 1, 50_000, 200_000))]
        self.sent += data
        return len(data)

    def close(self) -> None:
        self.closed = True


def new_outbox(pipe: Pipe, sender: Stingy | None = None) -> Outbox:
    pipe.outbox = Outbox(pipe, lambda _: sender)
    return pipe.outbox


def test_buffers_leave_at_once_even_if_the_transport_must_keep_them() -> None:
    pipe = Pipe()
    outbox = new_outbox(pipe)
    outbox.put([b"a", b"", b"b" * 100_000])
    outbox.send()
    outbox.put([b"c"])
    outbox.send()
    assert (outbox.size, pipe.drain()) == (0, b"a" + b"b" * 100_000 + b"c")


def test_a_part_of_a_file_is_read_only_as_far_as_the_connection_takes_it() -> None:
    pipe, part = Pipe(), Part(CONTENT[:1_000_000])
    outbox = new_outbox(pipe)
    outbox.put([b"head", part, b"tail"])
    outbox.send()
    assert part.read_bytes <= CHUNK_BYTES
    assert outbox.size == 1_000_008 - 4 - part.read_bytes
    got = bytearray()
    while outbox.size:
        got += pipe.drain()
        outbox.send()
    assert got + pipe.drain() == b"head" + CONTENT[:1_000_000] + b"tail"


def test_what_surrounds_a_part_of_a_file_leaves_with_it() -> None:
    """Each call of a transport of TLS is a record and a send."""
    pipe = Pipe()
    outbox = new_outbox(pipe)
    outbox.put([b"head", Part(CONTENT[:1000]), b"between", Part(CONTENT[:2000]), b"tail"])
    outbox.send()
    assert pipe.calls == 1
    assert pipe.drain() == b"head" + CONTENT[:1000] + b"between" + CONTENT[:2000] + b"tail"


def test_a_sender_and_the_transport_take_turns_without_losing_the_order() -> None:
    pipe = Pipe()
    sender = Stingy(pipe)
    outbox = new_outbox(pipe, sender)
    pieces: list[Piece] = []
    for n in range(5):
        pieces += [b"x" * n, Part(CONTENT[n * 300_000 : (n + 1) * 300_000]), b"y"]
    outbox.put(pieces)
    outbox.send()
    whole = b"".join(b"x" * n + CONTENT[n * 300_000 : (n + 1) * 300_000] + b"y" for n in range(5))
    sizes = [outbox.size]
    while outbox.size:
        sender.sent += pipe.drain()
        outbox.send()
        sizes.append(outbox.size)
    assert sender.sent + pipe.drain() == whole
    assert sizes == sorted(sizes, reverse=True)
    # Else it would not be told that the sender's turn has come.
    assert pipe.low == 0
    outbox.close()
    assert sender.closed


# --- with a broker and real files -------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RealFile]:
    opened = RealFileSystem().open(str(tmp_path / "file"), create=True)
    opened.append([CONTENT])
    yield opened
    opened.close()


@asynccontextmanager
async def serving(file: RealFile, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeBroker]:
    """Every Fetch is answered with the content of the file."""

    def fetch(*_: object) -> list[FetchResult]:
        return [FetchResult(ErrorCode.NONE, 1, 1, 0, [file.region(0, file.size())])]

    async with running("t") as broker:
        monkeypatch.setattr(broker.replicas, "fetch", fetch)
        yield broker


def fetch_message(offset: int = 0) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 30}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 30,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [{"log_start_offset": -1, **partition}]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def records_of(answer: dict[str, Any]) -> bytes:
    return bytes(answer["responses"][0]["partitions"][0]["records"])


async def test_records_are_sent_from_the_file_without_being_read(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[int]()
    pread = os.pread

    def noted(descriptor: int, size: int, position: int) -> bytes:
        reads.append(size)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", noted)
    async with serving(file, monkeypatch) as broker, connected(broker) as client:
        for _ in range(3):
            assert records_of(await client.ask(FETCH, 11, fetch_message())) == CONTENT
        # What a full socket could not take at once was read; how much that is the system decides.
        assert sum(reads) < 3 * len(CONTENT) * 0.9


async def test_what_a_log_hands_out_is_sent_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opening.create_log(
        RealFileSystem(), str(tmp_path), TopicPartition("t", 0), TopicConfig(segment_bytes=300_000)
    )
    for n in range(10):
        log.append_as_leader(make_batch([CONTENT[n * 50_000 : (n + 1) * 50_000]]), 0, 0)
    limits = Limits(max_bytes=1 << 20, up_to_offset=9, min_one=True)

    def fetch(
        _: object, partitions: list[FetchPartition], dirty: object = None
    ) -> list[FetchResult]:
        records = log.to_send(partitions[0].fetch_offset, **limits)
        return [FetchResult(ErrorCode.NONE, 9, 9, 0, records)]

    sent = list[int]()
    sendfile = os.sendfile

    def noted(out: int, source: int, position: int, size: int) -> int:
        sent.append(sendfile(out, source, position, size))
        return sent[-1]

    monkeypatch.setattr(os, "sendfile", noted)
    async with running("t") as broker, connected(broker) as client:
        monkeypatch.setattr(broker.replicas, "fetch", fetch)
        for offset, ends_at in ((0, 5), (5, 9)):
            found = records_of(await client.ask(FETCH, 11, fetch_message(offset)))
            assert found == log.read(offset, **limits)[0]
            assert [b.base_offset for b in batches_in([found])] == list(range(offset, ends_at))
    assert len(sent) >= 2
    assert sum(sent) > 50_000
    log.close()


async def test_answers_keep_their_order_while_a_slow_client_is_sent_a_file(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(file, monkeypatch) as broker, connected(broker) as client:
        sent = [client.send(FETCH, 11, fetch_message()), client.send(VERSIONS, 0, {})]
        sent += [client.send(FETCH, 11, fetch_message()), client.send(VERSIONS, 0, {})]
        for number, correlation_id in enumerate(sent):
            key, version = ((FETCH, 11), (VERSIONS, 0))[number % 2]
            answered, answer = await client.receive(key, version)
            assert answered == correlation_id
            if key == FETCH:
                assert records_of(answer) == CONTENT


async def test_a_log_that_is_cut_before_it_is_sent_ends_the_connection(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(file, monkeypatch) as broker:
        found = broker.replicas.fetch

        def fetch_and_cut(*_: Any) -> Any:
            results = found(*_)
            file.truncate(len(CONTENT) - 1)
            file.append([b"?"])
            return results

        monkeypatch.setattr(broker.replicas, "fetch", fetch_and_cut)
        async with connected(broker) as client:
            client.send(FETCH, 11, fetch_message())
            assert len(await client.reader.read(-1)) < 1_000
        reasons = [event["reason"] for event in broker.events("connection_closed")]
        assert len(reasons) == 1
        assert "cut off before it was sent" in reasons[0]
        monkeypatch.setattr(broker.replicas, "fetch", found)
        async with connected(broker) as client:
            now = records_of(await client.ask(FETCH, 11, fetch_message()))
            assert now == CONTENT[:-1] + b"?"


async def test_a_client_that_leaves_in_the_middle_lets_the_file_go(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(file, monkeypatch) as broker:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            async with connected(broker) as client:
                client.send(FETCH, 11, fetch_message())
                await client.reader.readexactly(100)
                client.writer.transport.abort()
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert broker.failures == []


async def test_who_asks_and_then_only_listens_gets_the_whole_answer(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(file, monkeypatch) as broker, connected(broker) as client:
        client.send(FETCH, 11, fetch_message())
        await client.reader.readexactly(100)
        client.writer.write_eof()
        got = await client.reader.read(-1)
        assert len(got) > len(CONTENT) - 100


async def test_a_bad_frame_after_a_fetch_ends_the_connection_after_the_answer(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(file, monkeypatch) as broker, connected(broker) as client:
        client.send(FETCH, 11, fetch_message())
        client.writer.write(b"\xff\xff\xff\xff")
        assert records_of((await client.receive(FETCH, 11))[1]) == CONTENT
        assert await client.ended()
        assert len(broker.events("connection_closed")) == 1
