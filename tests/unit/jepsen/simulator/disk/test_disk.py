"""What a simulated disk keeps, forgets and refuses; checked against a model of what is durable."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen.simulator.disk import SimDisk, no_fault
from raftctl.errors import ConfigError
from raftctl.runtime.api import read_file, replace_file, replace_files

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem


def make_disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed), lambda detail: None)


def test_a_file_tells_when_it_was_modified() -> None:
    disk = make_disk()
    disk.wall_ms = lambda: 7
    file = disk.open("/a", create=True)
    assert disk.modified_ms("/a") == 7
    disk.wall_ms = lambda: 9
    file.read_at(0, 1)
    assert disk.modified_ms("/a") == 7
    file.append([b"x"])
    assert disk.modified_ms("/a") == 9
    with pytest.raises(FileNotFoundError):
        disk.modified_ms("/none")


def test_files_and_directories_behave_like_posix() -> None:
    disk: FileSystem = make_disk()
    with pytest.raises(FileNotFoundError):
        disk.open("/a/b", create=True)
    disk.make_directories("/a/b")
    disk.make_directories("/a/b")
    with pytest.raises(FileNotFoundError):
        disk.open("/a/b/c")
    file = disk.open("/a/b/c", create=True)
    file.append([b"hello ", bytearray(b"wor"), memoryview(b"ld")])
    file.write_at(0, b"J")
    file.write_at(13, b"!")
    assert file.read_at(0, 100) == b"Jello world\0\0!"
    assert file.read_at(100, 1) == b""
    file.truncate(5)
    file.truncate(7)
    assert (file.size(), file.read_at(3, 10)) == (7, b"lo\0\0")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()
    with pytest.raises(IsADirectoryError):
        disk.open("/a/b")
    with pytest.raises(FileExistsError):
        disk.make_directories("/a/b/c/d")
    assert disk.exists("/a/b/c")
    assert not disk.is_directory("/a/b/c")
    assert disk.is_directory("/a/b")
    disk.rename("/a/b/c", "/a/d")
    assert (disk.names("/a"), disk.names("/a/b")) == (["b", "d"], [])
    with pytest.raises(IsADirectoryError):
        disk.rename("/a/d", "/a/b")
    with pytest.raises(NotADirectoryError):
        disk.rename("/a/b", "/a/d")
    with pytest.raises(IsADirectoryError):
        disk.remove("/a/b")
    disk.rename("/a/b", "/e")
    disk.remove("/a/d")
    with pytest.raises(FileNotFoundError):
        disk.remove("/a/d")
    disk.remove_tree("/a")
    assert disk.names("/") == ["e"]
    with pytest.raises(FileNotFoundError):
        disk.sync_directory("/a")


def test_a_removed_or_replaced_file_stays_readable_for_who_has_it_open() -> None:
    disk = make_disk()
    replace_file(disk, "/state", b"old")
    file = disk.open("/state")
    replace_file(disk, "/state", b"new")
    assert file.read_at(0, 10) == b"old"
    assert read_file(disk, "/state") == b"new"


def test_a_directory_lock_is_exclusive_until_released_or_dead() -> None:
    disk = make_disk()
    disk.make_directories("/data")
    lock = disk.lock_directory("/data")
    with pytest.raises(ConfigError, match="/data"):
        disk.lock_directory("/data")
    lock.release()
    disk.lock_directory("/data")
    lock.release()
    with pytest.raises(ConfigError):
        disk.lock_directory("/data")
    disk.release_locks()
    disk.lock_directory("/data")


def test_a_fault_is_an_error_of_the_operation_it_hits() -> None:
    disk = make_disk()
    file = disk.open("/log", create=True)

    def full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = full
    with pytest.raises(OSError, match="No space left"):
        file.append([b"x"])
    assert file.size() == 0


def test_an_unsynced_name_can_be_lost_although_its_file_was_synced() -> None:
    outcomes = set()
    for seed in range(50):
        disk = make_disk(seed)
        file = disk.open("/log", create=True)
        file.append([b"data"])
        file.sync()
        disk.crash()
        outcomes.add(disk.exists("/log"))
    assert outcomes == {True, False}


def test_an_unsynced_tail_can_be_kept_torn_or_lost() -> None:
    outcomes = set()
    for seed in range(200):
        disk = make_disk(seed)
        file = disk.open("/log", create=True)
        disk.sync_directory("/")
        file.append([b"safe"])
        file.sync()
        file.append([b"TAIL"])
        disk.crash()
        outcomes.add(read_file(disk, "/log"))
    assert {b"safe", b"safeTAIL", b"safeTA", b"safe\0\0\0\0"} <= outcomes
    # A length that is durable before the bytes shows zeros from a sector on, never from a byte.
    assert b"safeTA\0\0" not in outcomes
    assert all(content.startswith(b"safe") for content in outcomes)


def test_a_torn_write_over_old_bytes_leaves_old_or_new_ones() -> None:
    for seed in range(50):
        disk = make_disk(seed)
        file = disk.open("/note", create=True)
        disk.sync_directory("/")
        file.append([b"old!"])
        file.sync()
        file.write_at(0, b"NEW?")
        disk.crash()
        for byte, old, new in zip(read_file(disk, "/note"), b"old!", b"NEW?", strict=True):
            assert byte in (old, new)


def test_what_a_failed_sync_had_to_write_is_seen_and_never_durable() -> None:
    disk = make_disk()
    file = disk.open("/log", create=True)
    disk.sync_directory("/")
    file.append([b"lost"])

    def broken(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = broken
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.fault = no_fault
    file.sync()
    assert read_file(disk, "/log") == b"lost"
    disk.crash()
    assert read_file(disk, "/log") == b""


@given(st.integers(0, 2**32), st.integers(0, 7))
def test_a_replaced_file_is_old_or_new_after_a_crash_at_any_step(seed: int, step: int) -> None:
    disk = make_disk(seed)
    replace_file(disk, "/state", b"old")
    left = step

    def crash_at_step(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError

    disk.fault = crash_at_step
    finished = True
    try:
        replace_file(disk, "/state", b"new")
    except InterruptedError:
        finished = False
    disk.fault = lambda operation, path: None
    disk.crash()
    assert read_file(disk, "/state") in ([b"new"] if finished else [b"old", b"new"])


@given(st.integers(0, 2**32), st.integers(0, 130))
def test_many_replaced_files_are_each_old_or_new_after_a_crash(seed: int, step: int) -> None:
    disk = make_disk(seed)
    paths = [f"/{name}/state" for name in range(20)]
    for path in paths:
        disk.make_directories(path.rpartition("/")[0])
    disk.sync_directory("/")
    replace_files(disk, dict.fromkeys(paths, b"old"))
    left = step

    def crash_at_step(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError

    disk.fault = crash_at_step
    finished = True
    try:
        replace_files(disk, dict.fromkeys(paths, b"new"))
    except InterruptedError:
        finished = False
    disk.fault = no_fault
    disk.crash()
    found = {read_file(disk, path) for path in paths}
    assert found == {b"new"} if finished else found <= {b"old", b"new"}


@dataclass(frozen=True)
class Append:
    data: bytes


@dataclass(frozen=True)
class WriteAt:
    position: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    size: int


@dataclass(frozen=True)
class Sync:
    pass


Step = Append | WriteAt | Truncate | Sync
some_bytes = st.binary(min_size=1, max_size=20)
steps_of_a_file: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(Append, some_bytes),
        st.builds(WriteAt, st.integers(0, 30), some_bytes),
        st.builds(Truncate, st.integers(0, 40)),
        st.just(Sync()),
    ),
    max_size=30,
)


@given(st.integers(0, 2**32), steps_of_a_file)
def test_a_crash_leaves_what_was_synced_where_nothing_changed_since(
    seed: int, steps: list[Step]
) -> None:
    disk = make_disk(seed)
    file = disk.open("/log", create=True)
    disk.sync_directory("/")
    model = bytearray()
    durable = b""
    untouched = 0
    for step in steps:
        before = len(model)
        match step:
            case Append(data):
                file.append([data])
                model += data
                untouched = min(untouched, before)
            case WriteAt(position, data):
                file.write_at(position, data)
                model.extend(bytes(max(0, position - before)))
                model[position : position + len(data)] = data
                untouched = min(untouched, position)
            case Truncate(size):
                file.truncate(size)
                untouched = min(untouched, size, len(model))
                model[size:] = bytes(max(0, size - len(model)))
            case Sync():
                file.sync()
                durable, untouched = bytes(model), len(model)
        assert file.read_at(0, 10_000) == bytes(model)
    disk.crash()
    left = read_file(disk, "/log")
    assert left[:untouched] == durable[:untouched]
    disk.crash()
    assert read_file(disk, "/log") == left


def test_a_disk_that_lies_loses_what_it_says_that_it_has_synced() -> None:
    disk = make_disk()
    disk.make_directories("/d")
    file = disk.open("/d/file", create=True)
    file.append([b"sound"])
    file.sync()
    disk.sync_directory("/d")
    disk.sync_directory("/")
    disk.lies = True
    file.append([b" and not"])
    file.sync()
    disk.open("/d/other", create=True).sync()
    disk.sync_directory("/d")
    assert not disk.sound
    durable = disk.durable("/d")
    assert list(durable) == ["file"]
    assert bytes(durable["file"].durable) == b"sound"
    disk.lies = False
    file.sync()
    disk.sync_directory("/d")
    durable = disk.durable("/d")
    assert list(durable) == ["file", "other"]
    assert bytes(durable["file"].durable) == b"sound and not"


def test_a_copy_that_is_put_back_is_what_the_disk_was_and_may_be_put_back_again() -> None:
    disk = make_disk()
    disk.make_directories("/d/e")
    file = disk.open("/d/e/file", create=True)
    file.append([b"before"])
    saved = disk.copy()
    for _ in range(2):
        again = disk.open("/d/e/file")
        again.append([b" after"])
        again.sync()
        disk.open("/d/new", create=True).close()
        disk.put_back(saved)
        assert disk.names("/d") == ["e"]
        disk.crash()
        assert disk.open("/d/e/file").read_at(0, 100) == b"before"
