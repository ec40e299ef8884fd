"""Files in memory behave as those on a disk do, up to a limit."""

from __future__ import annotations

import errno
import io
import time
from typing import TYPE_CHECKING

import pytest

from raftctl.errors import ConfigError
from raftctl.runtime import MemoryFiles, MemoryRuntime
from raftctl.runtime._memory import FILE_BYTES
from raftctl.runtime.api import FileSystem, Runtime, read_file, replace_file
from raftctl.runtime.real import RealFileSystem, RealRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.req("P2")
LIMIT = 100_000


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest) -> FileSystem:
    """Both, so that what a test expects is what a disk does."""
    return RealFileSystem() if request.param == "disk" else MemoryFiles(LIMIT, "ask for more")


@pytest.fixture
def root(files: FileSystem, tmp_path: Path) -> str:
    path = str(tmp_path / "a" / "b")
    files.make_directories(path)
    return path


def write(files: FileSystem, path: str, *content: bytes) -> None:
    file = files.open(path, create=True)
    file.append(content)
    file.sync()
    file.close()


def test_a_file_tells_when_it_was_modified(files: FileSystem, root: str) -> None:
    if isinstance(files, MemoryFiles):
        files.wall_ms = lambda: int(time.time() * 1000)
    before_ms = int(time.time() * 1000)
    write(files, f"{root}/f", b"content")
    # A file system's clock may be a tick behind.
    assert before_ms - 50 <= files.modified_ms(f"{root}/f") <= time.time() * 1000
    with pytest.raises(FileNotFoundError):
        files.modified_ms(f"{root}/none")


def test_a_file_of_others_is_read_whole(files: FileSystem, root: str) -> None:
    write(files, f"{root}/f", b"content")
    assert files.read(f"{root}/f") == b"content"
    with pytest.raises(FileNotFoundError):
        files.read(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        files.is_readable_by_all(f"{root}/none")


def test_a_file_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(b"content")
    path.chmod(0o440)
    files = RealFileSystem()
    assert files.read(str(path)) == b"content"
    assert not files.is_readable_by_all(str(path))
    path.chmod(0o444)
    assert files.is_readable_by_all(str(path))


def test_a_file_has_what_was_written(files: FileSystem, root: str) -> None:
    file = files.open(f"{root}/f", create=True)
    file.append([b"hello ", memoryview(b"world"), bytearray()])
    file.write_at(13, b"!")
    file.write_at(0, b"H")
    assert file.read_at(0, 99) == b"Hello world\0\0!"
    assert file.read_at(6, 5) == b"world"
    assert file.read_at(99, 5) == b""
    assert file.region(6, 3) == b"wor"
    file.truncate(5)
    file.truncate(7)
    file.append([b"."])
    assert (file.size(), file.read_at(0, 99)) == (8, b"Hello\0\0.")
    file.sync()
    file.close()
    assert read_file(files, f"{root}/f") == b"Hello\0\0."


def test_names_move_and_go(files: FileSystem, root: str) -> None:
    write(files, f"{root}/old", b"1")
    files.make_directories(f"{root}/d/e")
    write(files, f"{root}/d/f", b"2")
    replace_file(files, f"{root}/new", b"3")
    files.rename(f"{root}/old", f"{root}/new")
    files.rename(f"{root}/d", f"{root}/moved")
    assert files.names(root) == ["moved", "new"]
    assert read_file(files, f"{root}/new") == b"1"
    assert read_file(files, f"{root}/moved/f") == b"2"
    assert files.is_directory(f"{root}/moved/e")
    assert not files.is_directory(f"{root}/new")
    held = files.open(f"{root}/new")
    files.remove(f"{root}/new")
    files.remove_tree(f"{root}/moved")
    assert held.read_at(0, 9) == b"1"
    held.close()
    assert files.names(root) == []
    assert not files.exists(f"{root}/moved/f")


@pytest.mark.parametrize(
    "act",
    [
        lambda files, root: files.open(f"{root}/none"),
        lambda files, root: files.open(f"{root}/none/f", create=True),
        lambda files, root: files.open(f"{root}/d"),
        lambda files, root: files.names(f"{root}/none"),
        lambda files, root: files.names(f"{root}/f"),
        lambda files, root: files.make_directories(f"{root}/f"),
        lambda files, root: files.rename(f"{root}/none", f"{root}/f"),
        lambda files, root: files.rename(f"{root}/f", f"{root}/d"),
        lambda files, root: files.rename(f"{root}/d", f"{root}/f"),
        lambda files, root: files.rename(f"{root}/empty", f"{root}/d"),
        lambda files, root: files.remove(f"{root}/none"),
        lambda files, root: files.remove(f"{root}/d"),
        lambda files, root: files.remove_tree(f"{root}/none"),
        lambda files, root: files.sync_directory(f"{root}/none"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    act: Callable[[FileSystem, str], object], files: FileSystem, root: str
) -> None:
    write(files, f"{root}/f", b"1")
    files.make_directories(f"{root}/d/inner")
    files.make_directories(f"{root}/empty")
    with pytest.raises(OSError, match=root):
        act(files, root)
    assert files.names(root) == ["d", "empty", "f"]
    assert read_file(files, f"{root}/f") == b"1"


def test_a_directory_is_locked_once(files: FileSystem, root: str) -> None:
    held = files.lock_directory(root)
    with pytest.raises(ConfigError, match="in use"):
        files.lock_directory(root)
    held.release()
    held.release()
    files.lock_directory(root).release()


def test_a_closed_file_is_closed() -> None:
    files = MemoryFiles(LIMIT, "")
    file = files.open("/f", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="/f"):
        file.append([b"1"])


def test_what_is_full_says_so_and_keeps_what_it_has() -> None:
    files = MemoryFiles(LIMIT, "ask for more")
    file = files.open("/f", create=True)
    room = LIMIT - FILE_BYTES
    file.append([bytes(room - 1)])
    for grow in (
        lambda: file.append([b"1", b"2"]),
        lambda: file.write_at(room - 1, b"12"),
        lambda: file.truncate(room + 1),
        lambda: files.open("/g", create=True),
    ):
        with pytest.raises(OSError, match="no memory left for files; ask for more") as raised:
            grow()
        assert raised.value.errno == errno.ENOSPC
    assert (file.size(), files.names("/")) == (room - 1, ["f"])
    assert files.space("/") == (LIMIT, 1)


def test_what_is_removed_or_replaced_or_cut_makes_room() -> None:
    files = MemoryFiles(LIMIT, "")
    files.make_directories("/d")
    for path in ("/a", "/b", "/d/c"):
        write(files, path, bytes(1000))
    files.rename("/a", "/b")
    file = files.open("/b")
    file.truncate(10)
    assert files.used == 2 * FILE_BYTES + 1010
    files.remove_tree("/d")
    files.remove("/b")
    file.append([bytes(2 * LIMIT)])  # it has no name any more, and is gone when it is closed
    file.truncate(0)
    assert files.used == 0


def test_the_rest_of_the_world_is_as_it_was() -> None:
    real = RealRuntime(io.StringIO())
    runtime: Runtime = MemoryRuntime(real, MemoryFiles(LIMIT, ""))
    assert runtime.random is real.random
    assert runtime.log is real.log
    assert runtime.uuid().version == 4
    real.close()
