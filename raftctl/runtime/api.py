"""What a node may use of the world besides the event loop.

The network seam is the asyncio loop itself (`create_connection`, `create_server`); time for
timeouts is `loop.time()`. Everything else that touches the world goes through a `Runtime`, so that
the same production code runs on a real machine (`raftctl.runtime.real`) and in the deterministic
world (`jepsen.simulator`). `tests/test_tidy.py` forbids reaching past it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

T = TypeVar("T")
_MANY = 16
"""Files that are replaced together, from which on to sync a whole volume is cheaper."""

Buffer = bytes | bytearray | memoryview


class FileRegion(Protocol):
    """Bytes of a file that will be sent later. They outlive `File.close`, but not a truncation:
    what was cut off meanwhile cannot be had any more, whatever was written there since.
    """

    def __len__(self) -> int:
        """How many bytes these are."""

    def read(self, start: int, size: int) -> bytes:
        """At most `size` of them from the one numbered `start`; OSError if they are gone."""


Piece = Buffer | FileRegion
"""A part of a message to be sent."""


class File(Protocol):
    """One open file. Positions are explicit; nothing is durable before `sync` returns.

    Every method raises `OSError` as the operating system does.
    """

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write the buffers at the end, all of them, or raise."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        """Return what a worker must call so that reading these bytes does not wait for the disk.

        None if they are in memory, as far as it is cheap to say. The call may be made at any time
        later, also after `close`, and raises `OSError` as a read does.
        """

    def region(self, position: int, size: int) -> Piece:
        """Return what `read_at` returns, or what stands for it until it is sent."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place; the file grows if they reach past its end."""

    def size(self) -> int:
        """Return the length in bytes, unsynced bytes included."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make the contents and length durable (fdatasync). Blocks: call it on a worker."""

    def close(self) -> None:
        """Release the descriptor; a second call does nothing."""


class DirectoryLock(Protocol):
    """An exclusive lock on a directory, held until `release` or the end of the process."""

    def release(self) -> None:
        """Give the lock up."""


class FileSystem(Protocol):
    """Files below the node's directories. Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`."""

    def exists(self, path: str) -> bool:
        """Return whether a file or directory is there."""

    def is_directory(self, path: str) -> bool:
        """Return whether a directory is there."""

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written or cut, by the wall clock; FileNotFoundError if it is
        absent.
        """

    def read(self, path: str) -> bytes:
        """Return the content of a file of others, such as a certificate; it may be read-only."""

    def is_readable_by_all(self, path: str) -> bool:
        """Return whether every user of the machine may read a file; FileNotFoundError if absent."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; no error if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Move a file or directory, replacing a target file; durable after `sync_directory`."""

    def remove(self, path: str) -> None:
        """Delete one file."""

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all below it."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""

    def sync_volume(self, directory: str) -> bool:
        """Make all files and names of the volume durable that holds a directory; blocks.

        For very many of them that is quicker than one by one. False, with nothing done, where it
        cannot be had.
        """

    def space(self, directory: str) -> tuple[int, int]:
        """Return bytes of the volume of a directory: all, and those free for use. Blocks."""

    def lock_directory(self, path: str) -> DirectoryLock:
        """Take `path/.lock`; raise ConfigError when another process holds it."""


class Worker(Protocol):
    """Runs blocking calls off the event loop, one at a time, in the order submitted."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue the call; the future resolves on the event loop with its result or exception."""

    def pause(self) -> None:
        """Let the event loop go first; a long call awaits this now and then."""

    def close(self) -> None:
        """Stop after what is queued; do not wait."""


class Sender(Protocol):
    """Sends on a connection what may include parts of files, without reading those."""

    def send(self, pieces: Iterable[Piece], start: int) -> int:
        """Send of the pieces, from byte `start` of the first one, what is taken at once.

        Returns how many bytes that is. OSError if the connection or a file fails.
        """

    def close(self) -> None:
        """To be called when the connection is lost."""


@dataclass(frozen=True, slots=True)
class Collections:
    """Collections of one generation of Python's garbage collector."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process has used until now. All is 0 where there is no process, as in a simulation."""

    started_s: float = 0.0
    """Since 1970."""
    cpu_s: float = 0.0
    resident_bytes: int = 0
    virtual_bytes: int = 0
    open_files: int = 0
    open_files_max: int = 0
    threads: int = 0
    read_bytes: int = 0
    """From disks, as are those written; 0 where the system does not count them."""
    written_bytes: int = 0
    collections: tuple[Collections, ...] = ()
    """By generation, the youngest first."""


class Runtime(Protocol):
    """The world as one node sees it."""

    @property
    def files(self) -> FileSystem:
        """The node's disk."""

    @property
    def random(self) -> random.Random:
        """The node's source of chance."""

    @property
    def log(self) -> FilteringBoundLogger:
        """The node's logger; parts bind their context to it."""

    def wall_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for timestamps only, never for timeouts."""

    def uuid(self) -> UUID:
        """Return a fresh random UUID (version 4)."""

    def usage(self) -> ProcessUsage:
        """Return what the process has used; takes some tenths of a millisecond."""

    def idle_s(self) -> float | None:
        """Return for how many seconds the event loop has waited for something to do, since its
        start. None if it is not of this runtime's making.
        """

    def sender(self, transport: asyncio.BaseTransport) -> Sender | None:
        """Return a sender for a connection that can be given parts of files; None for any other.

        It sends past the transport: only while that has nothing in its buffer.
        """

    def worker(self, name: str, *, short_calls: bool = False) -> Worker:
        """Return a new worker; each log directory has one.

        With `short_calls`, the caller would rather wait for a short call than for two threads
        to take turns: as long as calls have been short lately, one may run at once, on the event
        loop's thread. Its future resolves later all the same.
        """


def replace_file(files: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content, durably the new.

    Writes a temporary file, syncs it, renames it over `path` and syncs the directory. Blocks.
    """
    replace_files(files, {path: data})


def replace_files(files: FileSystem, contents: Mapping[str, bytes]) -> None:
    """Replace each of the files as `replace_file` does. After an error it may be repeated."""
    many = len(contents) >= _MANY
    for path, data in contents.items():
        _write_temporary(files, path + ".tmp", data, sync=not many)
    directories = list(dict.fromkeys(path.rpartition("/")[0] for path in contents))
    if many and not files.sync_volume(directories[0]):
        for path in contents:
            _sync(files, path + ".tmp")
    for path in contents:
        files.rename(path + ".tmp", path)
    if not (many and files.sync_volume(directories[0])):
        for directory in directories:
            files.sync_directory(directory)


def _write_temporary(files: FileSystem, path: str, data: bytes, *, sync: bool) -> None:
    if files.exists(path):
        files.remove(path)
    file = files.open(path, create=True)
    try:
        file.append([data])
        if sync:
            file.sync()
    finally:
        file.close()


def _sync(files: FileSystem, path: str) -> None:
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()


def read_file(files: FileSystem, path: str) -> bytes:
    """Return the whole content of a small file; FileNotFoundError if it is not there."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def bind_log(runtime: Runtime, **context: Any) -> FilteringBoundLogger:
    """Return the node's logger with more context, e.g. with `logger="raftctl.quorum"`."""
    return runtime.log.bind(**context)
