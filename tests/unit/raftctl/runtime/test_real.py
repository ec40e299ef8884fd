"""The real runtime: files survive partial writes, locks exclude, workers keep order."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import json
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.errors import ConfigError, KafkaError
from raftctl.runtime import real
from raftctl.runtime.api import FileSystem, Runtime, Worker, read_file, replace_file, replace_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_it_is_what_the_seam_promises(tmp_path: Path) -> None:
    runtime: Runtime = real.RealRuntime(io.StringIO())
    files: FileSystem = runtime.files
    worker: Worker = runtime.worker("w")
    worker.close()
    assert files.names(str(tmp_path)) == []
    assert abs(runtime.wall_ms() - time.time() * 1000) < 1000
    assert runtime.uuid().version == 4
    assert runtime.random.random() != real.RealRuntime(io.StringIO()).random.random()


def test_file_reads_back_what_was_written(tmp_path: Path) -> None:
    files = real.RealFileSystem()
    path = str(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        files.open(path)
    file = files.open(path, create=True)
    file.append([b"hello ", bytearray(b""), memoryview(b"world")])
    file.append([str(index % 10).encode() for index in range(3000)])  # more than IOV_MAX
    file.sync()
    assert file.size() == 11 + 3000
    assert file.read_at(0, 15) == b"hello world0123"
    assert file.read_at(3009, 100) == b"89"
    assert file.read_at(9999, 1) == b""
    file.write_at(6, b"earth")
    file.truncate(11)
    file.append([b"!"])
    assert file.read_at(0, 99) == b"hello earth!"
    file.close()
    file.close()
    assert read_file(files, path) == b"hello earth!"


def test_append_continues_after_a_partial_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def three_bytes(descriptor: int, buffers: Sequence[Any], position: int) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:3], position)

    monkeypatch.setattr(os, "pwritev", three_bytes)
    file = real.RealFileSystem().open(str(tmp_path / "file"), create=True)
    file.append([b"ab", b"cdefghij", b"k"])
    assert file.read_at(0, 99) == b"abcdefghijk"
    file.close()


def test_append_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = real.RealFileSystem().open(str(tmp_path / "file"), create=True)
    file.append([b"before"])

    def full_after_one(descriptor: int, buffers: Sequence[Any], position: int) -> int:
        if position > 6:
            raise OSError(errno.ENOSPC, "disk full")
        return os.pwrite(descriptor, bytes(buffers[0])[:1], position)

    monkeypatch.setattr(os, "pwritev", full_after_one)
    with pytest.raises(OSError, match="disk full"):
        file.append([b"after"])
    assert file.read_at(0, 99) == b"before"
    file.close()


def test_directories(tmp_path: Path) -> None:
    files = real.RealFileSystem()
    folder = str(tmp_path / "a" / "b")
    files.make_directories(folder)
    files.make_directories(folder)
    replace_file(files, folder + "/z", b"1")
    replace_file(files, folder + "/z", b"2")
    files.open(folder + "/y", create=True).close()
    files.rename(folder + "/y", folder + "/x")
    assert files.names(folder) == ["x", "z"]
    assert read_file(files, folder + "/z") == b"2"
    files.remove(folder + "/x")
    assert files.is_directory(folder)
    assert not files.is_directory(folder + "/z")
    files.remove_tree(folder)
    assert not files.exists(folder)


@pytest.mark.req("Q3")
def test_a_sync_has_asked_the_disk_when_it_returns_and_tells_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the very file, or of the directory that has its name: nothing else is durable."""
    synced: list[int] = []
    fails = False

    def sync(descriptor: int) -> None:
        if fails:
            raise OSError(errno.EIO, "Input/output error")
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync)
    files = real.RealFileSystem()
    path = str(tmp_path / "file")
    file = files.open(path, create=True)
    file.append([b"data"])
    assert synced == []
    file.sync()
    assert synced == [os.stat(path).st_ino]
    files.sync_directory(str(tmp_path))
    assert synced == [os.stat(path).st_ino, os.stat(tmp_path).st_ino]
    fails = True
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    with pytest.raises(OSError, match="Input/output"):
        files.sync_directory(str(tmp_path))
    file.close()


def test_many_files_are_replaced_with_one_sync_of_the_volume_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = real.RealFileSystem()
    contents = {str(tmp_path / f"{number}"): b"%d" % number for number in range(50)}
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    replace_files(files, contents)
    assert {path: read_file(files, path) for path in contents} == contents
    assert files.names(str(tmp_path)) == sorted(str(number) for number in range(50))
    assert synced == []
    with pytest.raises(FileNotFoundError):
        files.sync_volume(str(tmp_path / "missing"))


def test_a_locked_directory_is_refused_with_its_name(tmp_path: Path) -> None:
    files = real.RealFileSystem()
    lock = files.lock_directory(str(tmp_path))
    with pytest.raises(ConfigError, match=f"log.dirs: {tmp_path} is in use"):
        files.lock_directory(str(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    files.lock_directory(str(tmp_path)).release()


async def test_worker_runs_in_order_off_the_loop() -> None:
    worker = real.RealWorker("disk")
    seen: list[int] = []
    threads = set()

    def call(number: int) -> int:
        seen.append(number)
        threads.add(threading.current_thread().name)
        return number * 2

    futures = [worker.submit(partial(call, number)) for number in range(500)]
    futures[10].cancel()
    results = await asyncio.gather(*futures[:10], *futures[11:])
    assert results == [number * 2 for number in range(500) if number != 10]
    assert seen == list(range(500))
    assert threads == {"disk"}
    worker.close()


async def test_worker_hands_exceptions_over_and_bounds_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = real.RealWorker("disk")

    def fail() -> None:
        raise OSError(errno.EIO, "no disk")

    with pytest.raises(OSError, match="no disk"):
        await worker.submit(fail)
    monkeypatch.setattr(real, "WORKER_CALLS_MAX", 1)
    gate = threading.Event()
    first = worker.submit(gate.wait)
    with pytest.raises(KafkaError, match="takes no calls"):
        worker.submit(fail)
    gate.set()
    assert await first
    worker.close()
    with pytest.raises(KafkaError):
        worker.submit(fail)


async def test_short_calls_run_at_once_while_they_are_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread would cost more than they do; but a disk that stalls holds the loop up once only."""
    clock = [0.0]
    monkeypatch.setattr("raftctl.runtime.real.time.perf_counter", lambda: clock[0])
    worker = real.RealWorker("disk", short_calls=True)
    threads: list[str] = []

    def call(took_s: float) -> None:
        threads.append(threading.current_thread().name)
        clock[0] += took_s

    async def run(took_s: float, count: int) -> list[bool]:
        """Whether each ran on the thread."""
        threads.clear()
        for _ in range(count):
            await worker.submit(partial(call, took_s))
        return [name == "disk" for name in threads]

    assert (await run(0.0001, 100))[:1] == [True], "nothing is known of the disk yet"
    assert await run(0.0001, 1) == [False]
    future = worker.submit(partial(call, 0.0001))
    told: list[object] = []
    future.add_done_callback(told.append)
    assert told == [], "whoever submitted has gone on before it hears"
    await future
    assert await run(1.0, 2) == [False, True]
    assert all(await run(0.0001, 20))
    assert (await run(0.0001, 200))[-1:] == [False]
    worker.close()


async def test_a_short_call_that_fails_tells_so_later_and_none_overtakes_another() -> None:
    worker = real.RealWorker("disk", short_calls=True)
    for _ in range(100):
        await worker.submit(lambda: None)
    gate = threading.Event()
    worker._average_s = 1.0
    first = worker.submit(gate.wait)
    worker._average_s = 0.0
    seen: list[bool] = []
    second = worker.submit(lambda: seen.append(first.done()))
    assert seen == [], "it waits for the one before it"
    gate.set()
    await asyncio.gather(first, second)
    assert len(seen) == 1

    def fail() -> None:
        raise OSError(errno.EIO, "no disk")

    failing = worker.submit(fail)
    with pytest.raises(OSError, match="no disk"):
        await failing
    worker.close()


def test_two_logs_share_nothing() -> None:
    one, two = io.StringIO(), io.StringIO()
    first = real.RealRuntime(one, "info", node_id=1)
    second = real.RealRuntime(two, "debug", node_id=2)
    first.log.debug("hidden")
    first.log.bind(part="raft").info("shown", epoch=3)
    second.log.debug("shown_too")
    [line] = [json.loads(text) for text in one.getvalue().splitlines()]
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "shown", "level": "info", "node_id": 1, "part": "raft", "epoch": 3}
    assert json.loads(two.getvalue())["node_id"] == 2


def test_a_terminal_gets_key_value_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    real.make_log(stream, "info", node_id=1).warning("disk_slow", sync_ms=120)
    assert "disk_slow" in stream.getvalue()
    assert "sync_ms" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_no_color_is_heeded_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    real.make_log(stream, "info").warning("disk_slow", sync_ms=120)
    assert ("\x1b" in stream.getvalue()) == coloured


def test_what_is_not_in_memory_is_read_by_whoever_calls_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "file")
    file = real.RealFileSystem().open(path, create=True)
    file.append([bytes(300_000)])
    assert file.warm(0, 300_000) is None
    assert file.warm(300_000, 10) is None
    cold_from, read, advised = 200_000, list[int](), list[tuple[int, int]]()
    preadv, pread = os.preadv, os.pread

    def cold(descriptor: int, buffers: list[bytearray], position: int, flags: int) -> int:
        if position >= cold_from:
            raise BlockingIOError
        return preadv(descriptor, buffers, position, flags)

    def noted(descriptor: int, size: int, position: int) -> bytes:
        read.append(position)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "preadv", cold)
    assert file.warm(0, 150_000) is None
    call, unused = file.warm(150_000, 60_000), file.warm(0, 1 << 30)
    assert call is not None
    assert unused is not None
    descriptors = len(os.listdir("/proc/self/fd"))
    file.close()
    monkeypatch.setattr(os, "pread", noted)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, at, size, __: advised.append((at, size)))
    call()
    # It asks for what follows too, and waits only for what is wanted.
    assert advised == [(150_000, 131_072), (281_072, 131_072)]
    assert read == [150_000, 209_999]
    del call, unused
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1


def test_a_file_system_that_cannot_say_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = real.RealFileSystem().open(str(tmp_path / "file"), create=True)
    file.append([bytes(100_000)])

    def refuse(*_arguments: object) -> int:
        raise OSError(95, "not supported")

    assert not isinstance(file.region(0, 100_000), bytes)
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.warm(0, 100) is None
    # Then nothing is sent from the file either: that would wait where nobody may.
    assert file.region(0, 100_000) == bytes(100_000)
    file.close()
