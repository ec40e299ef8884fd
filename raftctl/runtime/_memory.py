"""Files in memory: a disk that forgets in a crash, and one that is bounded and never crashes.

Contents and names are durable separately, as POSIX has it. `File.sync` saves the bytes and length
of a file but not the name it was created under; `sync_directory` saves the names in one directory,
so a new directory is lost unless its parent is synced too. In a crash each unsynced write survives
wholly, in part or not at all, independently of the others; of the unsynced changes of names a
prefix survives, whole, as with a journal. Simulated nodes and tests run on such a disk.

`MemoryFiles` keeps what is written until the process ends, and has a limit at which writes fail as
they do on a full disk. With `MemoryRuntime` a program leaves nothing on disk; all else (clock,
randomness, workers, log) is the other runtime's, so that such a program can be simulated too.
Sources: POSIX fsync; Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from raftctl.errors import ConfigError
from raftctl.runtime.api import DirectoryLock, File, FileSystem

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from raftctl.runtime.api import Buffer, Piece, ProcessUsage, Runtime, Sender, Worker

FILE_BYTES = 1024
"""What a file counts for besides its content, so that empty ones are bounded too."""
SECTOR_BYTES = 512
"""What is written wholly or not at all."""
LOCK_NAME = ".lock"


@dataclass(slots=True)
class Write:
    """A change of a file: bytes at a position, or a cut there when `data` is None."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Perform the write on `content`."""
        if self.data is None:
            del content[self.position :]
            return
        if self.position > len(content):
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data


@dataclass(slots=True, eq=False)
class Content:
    """A file: its bytes as programs see them, as a crash leaves them, and the difference.

    It outlives its name while it is open.
    """

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)
    modified_ms: int = 0
    has_name: bool = True

    def change(self, write: Write) -> None:
        """Write what readers see at once; a crash may take it back until `sync`."""
        write.apply(self.seen)
        self.unsynced.append(write)

    def sync(self) -> None:
        """Make everything written so far durable."""
        for write in self.unsynced:
            self.make_durable(write)
        self.unsynced.clear()

    def make_durable(self, write: Write) -> None:
        """Perform the write on what a crash leaves."""
        write.apply(self.durable)

    def crash(self, random: random.Random) -> None:
        """Keep what was synced and, by chance, some of what was not: whole, torn or none."""
        for write in self.unsynced:
            fate = random.random()
            if fate < 1 / 3:
                continue
            if fate < 2 / 3 and write.data:
                write = self._torn(write.position, write.data, random)
            self.make_durable(write)
        self.unsynced.clear()
        self.seen = bytearray(self.durable)

    def _torn(self, position: int, data: bytes, random: random.Random) -> Write:
        """A write cut short, or one whose length is on disk before all sectors are: zeros then."""
        kept = random.randint(0, len(data))
        if random.random() >= 0.5:
            return Write(position, data[:kept])
        kept = max(0, (position + kept) // SECTOR_BYTES * SECTOR_BYTES - position)
        # A sector that was there before keeps what it had.
        old = bytes(self.durable[position + kept : position + len(data)])
        return Write(position, data[:kept] + old + bytes(len(data) - kept - len(old)))

    def fail_sync(self) -> None:
        """Forget what is unsynced, as Linux does: readers see it, but it counts as clean now."""
        self.unsynced.clear()


@dataclass(slots=True, eq=False)
class Directory:
    """A directory: names as programs see them and as a crash leaves them."""

    seen: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)


Entry = Content | Directory


@dataclass(slots=True)
class Naming:
    """An unsynced change of names, made whole or not at all; None removes a name."""

    changes: list[tuple[Directory, str, Entry | None]]

    def apply(self) -> None:
        """Make the changes of names durable."""
        for directory, name, entry in self.changes:
            if entry is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = entry

    def touches(self, directory: Directory) -> bool:
        """Whether a change is in this directory."""
        return any(changed is directory for changed, _, _ in self.changes)


class MemoryFile(File):
    """An open file of a `MemoryDisk`; see `raftctl.runtime.api.File`."""

    def __init__(self, disk: MemoryDisk, path: str, content: Content) -> None:
        self._disk = disk
        self.path = path
        self._content = content
        self._closed = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        with self._disk.lock:
            self._use("write")
            self._write(len(self._content.seen), b"".join(buffers))

    def read_at(self, position: int, size: int) -> bytes:
        with self._disk.lock:
            self._use("read")
            return self._read(position, size)

    def _read(self, position: int, size: int) -> bytes:
        return bytes(self._content.seen[position : position + size])

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        """Return None: everything is in memory."""

    def region(self, position: int, size: int) -> Piece:
        """Read at once, so that no file is held."""
        return self.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        """See `File.write_at`; a gap before the bytes reads as zeros."""
        with self._disk.lock:
            self._use("write")
            self._write(position, bytes(data))

    def _write(self, position: int, data: bytes) -> None:
        """Write, as write(2) does, the bytes that find space; an error says that some did not."""
        grown = max(position + len(data) - len(self._content.seen), 0)
        fits = len(data) - grown + self._disk.fitting(self._content, self.path, grown)
        self._disk.change(self._content, Write(position, data[:fits]))
        if fits < len(data):
            raise error_of(errno.ENOSPC, self.path)

    def size(self) -> int:
        with self._disk.lock:
            self._use("size")
            return len(self._content.seen)

    def truncate(self, size: int) -> None:
        """See `File.truncate`; a file that gets longer has zeros there."""
        with self._disk.lock:
            self._use("write")
            grown = size - len(self._content.seen)
            self._disk.resize(self._content, self.path, grown)
            change = Write(size, None) if grown <= 0 else Write(size - grown, bytes(grown))
            self._disk.change(self._content, change)

    def sync(self) -> None:
        """See `File.sync`. After an error the unsynced bytes stay as they are and are lost."""
        with self._disk.lock:
            try:
                self._use("sync")
            except OSError:
                self._disk.sync_failed(self._content)
                raise
            self._disk.sync_content(self._content)

    def close(self) -> None:
        self._closed = True

    def _use(self, operation: str) -> None:
        if self._closed:
            raise error_of(errno.EBADF, self.path)
        self._disk.step(operation, self.path)
        if operation == "write":
            self._content.modified_ms = self._disk.wall_ms()


class MemoryLock(DirectoryLock):
    """See `raftctl.runtime.api.DirectoryLock`."""

    def __init__(self, locks: dict[str, MemoryLock], path: str) -> None:
        self._locks = locks
        self._path = path
        locks[path] = self

    def release(self) -> None:
        """See `DirectoryLock.release`; a second call does nothing."""
        if self._locks.get(self._path) is self:
            del self._locks[self._path]


class MemoryDisk(FileSystem):
    """See `raftctl.runtime.api.FileSystem`. Used from the event loop and from workers.

    A subclass makes operations fail (`step`), or bounds the disk (`fitting`, `resize`, `dropped`).
    """

    content: ClassVar[type[Content]] = Content
    """What new files are."""

    def __init__(
        self, random: random.Random | None, wall_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`random` decides what a crash leaves; without it nothing is kept for one.

        `wall_ms` says when files were modified, by the clock of the machine.
        """
        self._chance = random
        self.wall_ms = wall_ms
        self.lock = threading.RLock()
        """Held during each operation; for `MemoryFile` as well."""
        self._root = Directory()
        self._unsynced: list[Naming] = []
        self._locks: dict[str, MemoryLock] = {}

    # --- what subclasses may change ---------------------------------------------------------------

    def step(self, operation: str, path: str) -> None:
        """Called before an operation: write, read, size, sync, open, name or sync_directory.

        An OSError makes the operation fail before it has any effect.
        """

    def fitting(self, content: Content, path: str, grown: int) -> int:
        """Return by how many bytes, at most `grown`, a write may make the file longer."""
        return grown

    def resize(self, content: Content, path: str, grown: int) -> None:
        """Called before a file is cut or, if `grown` is positive, made longer; may refuse that."""

    def named(self, path: str) -> None:
        """Called before a file is created; may refuse that."""

    def dropped(self, content: Content) -> None:
        """A file has lost its name."""
        content.has_name = False

    def sync_content(self, content: Content) -> None:
        """Make the content durable."""
        content.sync()

    def sync_failed(self, content: Content) -> None:
        """A sync has failed: what was to become durable is lost."""
        content.fail_sync()

    def _new_file(self, path: str, content: Content) -> MemoryFile:
        return MemoryFile(self, path, content)

    # --- FileSystem -------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        with self.lock:
            self.step("open", path)
            directory, name = self._parent(path)
            entry = directory.seen.get(name)
            if isinstance(entry, Directory):
                raise error_of(errno.EISDIR, path)
            if entry is None:
                if not create:
                    raise error_of(errno.ENOENT, path)
                self.named(path)
                entry = self.content(modified_ms=self.wall_ms())
                self._name([(directory, name, entry)])
            return self._new_file(path, entry)

    def exists(self, path: str) -> bool:
        with self.lock:
            return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        with self.lock:
            return isinstance(self._find(path), Directory)

    def modified_ms(self, path: str) -> int:
        with self.lock:
            return self._file(path).modified_ms

    def read(self, path: str) -> bytes:
        with self.lock:
            self.step("open", path)
            return bytes(self._file(path).seen)

    def is_readable_by_all(self, path: str) -> bool:
        """Return False: there are no users."""
        with self.lock:
            self._file(path)
            return False

    def names(self, directory: str) -> list[str]:
        with self.lock:
            return sorted(self._directory(directory).seen)

    def make_directories(self, path: str) -> None:
        with self.lock:
            self.step("name", path)
            here = self._root
            for name in _parts(path):
                entry = here.seen.get(name)
                if entry is None:
                    entry = Directory()
                    self._name([(here, name, entry)])
                if not isinstance(entry, Directory):
                    raise error_of(errno.EEXIST, path)
                here = entry

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            self.step("name", source)
            old, old_name = self._parent(source)
            new, new_name = self._parent(target)
            entry, replaced = old.seen.get(old_name), new.seen.get(new_name)
            if entry is None:
                raise error_of(errno.ENOENT, source)
            if replaced is entry:
                return
            _check_replaceable(entry, replaced, target)
            if isinstance(replaced, Content):
                self.dropped(replaced)
            self._name([(old, old_name, None), (new, new_name, entry)])

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`; an open file keeps its content."""
        with self.lock:
            self.step("name", path)
            directory, name = self._parent(path)
            entry = directory.seen.get(name)
            if entry is None:
                raise error_of(errno.ENOENT, path)
            if isinstance(entry, Directory):
                raise error_of(errno.EISDIR, path)
            self.dropped(entry)
            self._name([(directory, name, None)])

    def remove_tree(self, path: str) -> None:
        """See `FileSystem.remove_tree`: names first from the leaves up."""
        with self.lock:
            self.step("name", path)
            doomed = self._directory(path)
            for name in sorted(doomed.seen):
                child = f"{path}/{name}"
                if isinstance(doomed.seen[name], Directory):
                    self.remove_tree(child)
                else:
                    self.remove(child)
            directory, name = self._parent(path)
            self._name([(directory, name, None)])

    def sync_directory(self, path: str) -> None:
        with self.lock:
            self.step("sync_directory", path)
            directory = self._directory(path)
            waiting: list[Naming] = []
            for naming in self._unsynced:
                if naming.touches(directory):
                    naming.apply()
                else:
                    waiting.append(naming)
            self._unsynced = waiting

    def sync_volume(self, directory: str) -> bool:
        """Return False: each file and directory is synced by itself."""
        return False

    def space(self, directory: str) -> tuple[int, int]:
        """Return a size as large as any, always half free."""
        return 1 << 40, 1 << 39

    def lock_directory(self, path: str) -> MemoryLock:
        with self.lock:
            self.open(f"{path}/{LOCK_NAME}", create=True).close()
            if path in self._locks:
                raise ConfigError(f"{path} is in use already: stop its user, or name another")
            return MemoryLock(self._locks, path)

    # --- crashes ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose what is not durable, but for a part of it: the power fails, and comes back."""
        assert self._chance is not None
        self._locks.clear()
        survivors = self._chance.randint(0, len(self._unsynced))
        for naming in self._unsynced[:survivors]:
            naming.apply()
        self._unsynced.clear()
        _crash_below(self._root, self._chance)

    # --- content, names and paths -----------------------------------------------------------------

    def change(self, content: Content, write: Write) -> None:
        """Perform a write, or a cut, for which there is room."""
        if self._chance is not None:
            content.change(write)
        else:
            write.apply(content.seen)

    def _name(self, changes: list[tuple[Directory, str, Entry | None]]) -> None:
        for directory, name, entry in changes:
            if entry is None:
                directory.seen.pop(name, None)
            else:
                directory.seen[name] = entry
        if self._chance is not None:
            self._unsynced.append(Naming(changes))

    def _find(self, path: str) -> Entry | None:
        entry: Entry | None = self._root
        for name in _parts(path):
            if not isinstance(entry, Directory):
                return None
            entry = entry.seen.get(name)
        return entry

    def _file(self, path: str) -> Content:
        entry = self._find(path)
        if not isinstance(entry, Content):
            raise error_of(errno.ENOENT, path)
        return entry

    def _directory(self, path: str) -> Directory:
        entry = self._find(path)
        if entry is None:
            raise error_of(errno.ENOENT, path)
        if isinstance(entry, Content):
            raise error_of(errno.ENOTDIR, path)
        return entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name


class MemoryFiles(MemoryDisk):
    """Files up to a limit, which last as long as the process: nothing is kept for a crash."""

    def __init__(self, bytes_max: int, remedy: str, wall_ms: Callable[[], int] = lambda: 0) -> None:
        """At `bytes_max` writes fail with ENOSPC and the sentence `remedy`."""
        super().__init__(None, wall_ms)
        self.used = 0
        """Bytes of all files that have a name, `FILE_BYTES` for each included."""
        self._bytes_max = bytes_max
        self._remedy = remedy

    def fitting(self, content: Content, path: str, grown: int) -> int:
        """Return all of it, or fail with ENOSPC: no file gets a part of a write."""
        self.resize(content, path, grown)
        return grown

    def resize(self, content: Content, path: str, grown: int) -> None:
        """Count the bytes, which may be negative; OSError (ENOSPC) if there is no room."""
        if content.has_name:
            self._take(grown, path)

    def named(self, path: str) -> None:
        """Count the file."""
        self._take(FILE_BYTES, path)

    def dropped(self, content: Content) -> None:
        """Count the file no more, though it may be open still."""
        super().dropped(content)
        self.used -= FILE_BYTES + len(content.seen)

    def _take(self, size: int, path: str) -> None:
        if size > 0 and self.used + size > self._bytes_max:
            raise OSError(errno.ENOSPC, f"no memory left for files; {self._remedy}", path)
        self.used += size

    def space(self, directory: str) -> tuple[int, int]:
        with self.lock:
            self._directory(directory)
            return self._bytes_max, self._bytes_max - self.used


class MemoryRuntime:
    """Another runtime with these files in the place of its own."""

    def __init__(self, runtime: Runtime, files: MemoryFiles) -> None:
        self.files = files
        self._runtime = runtime

    @property
    def random(self) -> random.Random:
        """See `Runtime.random`."""
        return self._runtime.random

    @property
    def log(self) -> FilteringBoundLogger:
        """See `Runtime.log`."""
        return self._runtime.log

    def wall_ms(self) -> int:
        """See `Runtime.wall_ms`."""
        return self._runtime.wall_ms()

    def uuid(self) -> UUID:
        """See `Runtime.uuid`."""
        return self._runtime.uuid()

    def usage(self) -> ProcessUsage:
        """See `Runtime.usage`."""
        return self._runtime.usage()

    def idle_s(self) -> float | None:
        """See `Runtime.idle_s`."""
        return self._runtime.idle_s()

    def sender(self, transport: asyncio.BaseTransport) -> Sender | None:
        """See `Runtime.sender`."""
        return self._runtime.sender(transport)

    def worker(self, name: str, *, short_calls: bool = False) -> Worker:
        """See `Runtime.worker`."""
        return self._runtime.worker(name, short_calls=short_calls)


def _check_replaceable(entry: Entry, replaced: Entry | None, target: str) -> None:
    if isinstance(replaced, Directory):
        if isinstance(entry, Content):
            raise error_of(errno.EISDIR, target)
        if replaced.seen:
            raise error_of(errno.ENOTEMPTY, target)
    elif replaced is not None and isinstance(entry, Directory):
        raise error_of(errno.ENOTDIR, target)


def _crash_below(directory: Directory, random: random.Random) -> None:
    directory.seen = dict(directory.durable)
    for name in sorted(directory.seen):
        entry = directory.seen[name]
        if isinstance(entry, Directory):
            _crash_below(entry, random)
        else:
            entry.crash(random)


def error_of(number: int, path: str) -> OSError:
    """The error of a file, as the operating system words it."""
    return OSError(number, os.strerror(number), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
