"""Files in memory over another `Runtime`: for programs that shall leave nothing on disk.

What is written is there until the process ends, and there is a limit to it, at which writes fail as
they do on a full disk. All else (clock, randomness, workers, log) is the other runtime's, so that
such a program can be simulated too.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from raftctl.runtime.api import Buffer, Runtime, Sender, Worker

FILE_BYTES = 1024
"""What a file counts for besides its content, so that empty ones are bounded too."""


@dataclass(slots=True, eq=False)
class _Content:
    """The bytes of a file, which outlive its name while it is open."""

    data: bytearray = field(default_factory=bytearray)
    has_name: bool = True
    modified_ms: int = 0


@dataclass(slots=True, eq=False)
class _Directory:
    entries: dict[str, _Content | _Directory] = field(default_factory=dict)

    def contents(self) -> Iterator[_Content]:
        """Of all files below."""
        for entry in self.entries.values():
            if isinstance(entry, _Content):
                yield entry
            else:
                yield from entry.contents()


class MemoryFile:
    """See `raftctl.runtime.api.File`. Nothing is read later than asked for, so nothing is held."""

    def __init__(self, files: MemoryFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content = content
        self._closed = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        """See `File.append`."""
        with self._files.lock:
            data = self._changed()
            self._grow(sum(map(len, buffers)))
            for buffer in buffers:
                data += buffer

    def read_at(self, position: int, size: int) -> bytes:
        """See `File.read_at`."""
        # A view forbids to resize what it looks at, so it must not be there outside the lock.
        with (
            self._files.lock,
            memoryview(self._opened()) as whole,
            whole[position : position + size] as part,
        ):
            return bytes(part)

    def warm(self, position: int, size: int) -> None:
        """Everything is in memory."""

    def region(self, position: int, size: int) -> bytes:
        """Read at once."""
        return self.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        """See `File.write_at`; a gap before the bytes reads as zeros."""
        with self._files.lock:
            seen = self._changed()
            self._grow(position + len(data) - len(seen))
            seen.extend(bytes(max(position - len(seen), 0)))
            seen[position : position + len(data)] = data

    def size(self) -> int:
        """See `File.size`."""
        with self._files.lock:
            return len(self._opened())

    def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        with self._files.lock:
            data = self._changed()
            grown = size - len(data)
            self._grow(grown)
            data.extend(bytes(max(grown, 0)))
            del data[size:]
            if grown < 0 and self._content.has_name:
                self._files.used += grown

    def sync(self) -> None:
        """There is nothing that would survive."""
        with self._files.lock:
            self._opened()

    def close(self) -> None:
        """See `File.close`."""
        self._closed = True

    def _changed(self) -> bytearray:
        self._content.modified_ms = self._files.wall_ms()
        return self._opened()

    def _opened(self) -> bytearray:
        if self._closed:
            raise _error(errno.EBADF, self._path)
        return self._content.data

    def _grow(self, by: int) -> None:
        if by > 0 and self._content.has_name:
            self._files.take(by, self._path)


class MemoryFiles:
    """See `raftctl.runtime.api.FileSystem`. Used from the event loop and from workers."""

    def __init__(self, bytes_max: int, remedy: str, wall_ms: Callable[[], int] = lambda: 0) -> None:
        """At `bytes_max` writes fail with ENOSPC and this sentence, which says what to do.

        `wall_ms` says when files were modified.
        """
        self.wall_ms = wall_ms
        self.lock = threading.Lock()
        """Held for each change; for `MemoryFile` as well."""
        self.used = 0
        """Bytes of all files that have a name, `FILE_BYTES` for each included."""
        self._bytes_max = bytes_max
        self._remedy = remedy
        self._root = _Directory()
        self._locks: set[str] = set()

    def take(self, size: int, path: str) -> None:
        """Count bytes that a file gets; OSError (ENOSPC) if that is more than there may be."""
        if self.used + size > self._bytes_max:
            raise OSError(errno.ENOSPC, f"no memory left for files; {self._remedy}", path)
        self.used += size

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """See `FileSystem.open`."""
        with self.lock:
            directory, name = self._parent(path)
            entry = directory.entries.get(name)
            if isinstance(entry, _Directory):
                raise _error(errno.EISDIR, path)
            if entry is None:
                if not create:
                    raise _error(errno.ENOENT, path)
                self.take(FILE_BYTES, path)
                entry = directory.entries[name] = _Content(modified_ms=self.wall_ms())
            return MemoryFile(self, path, entry)

    def exists(self, path: str) -> bool:
        """See `FileSystem.exists`."""
        with self.lock:
            return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """See `FileSystem.is_directory`."""
        with self.lock:
            return isinstance(self._find(path), _Directory)

    def modified_ms(self, path: str) -> int:
        """See `FileSystem.modified_ms`."""
        with self.lock:
            entry = self._find(path)
            if not isinstance(entry, _Content):
                raise _error(errno.ENOENT, path)
            return entry.modified_ms

    def names(self, directory: str) -> list[str]:
        """See `FileSystem.names`."""
        with self.lock:
            return sorted(self._directory(directory).entries)

    def make_directories(self, path: str) -> None:
        """See `FileSystem.make_directories`."""
        with self.lock:
            here = self._root
            for name in _parts(path):
                entry = here.entries.setdefault(name, _Directory())
                if isinstance(entry, _Content):
                    raise _error(errno.EEXIST, path)
                here = entry

    def rename(self, source: str, target: str) -> None:
        """See `FileSystem.rename`."""
        with self.lock:
            old, old_name = self._parent(source)
            new, new_name = self._parent(target)
            entry, replaced = old.entries.get(old_name), new.entries.get(new_name)
            if entry is None:
                raise _error(errno.ENOENT, source)
            if replaced is entry:
                return
            _check_replaceable(entry, replaced, target)
            if isinstance(replaced, _Content):
                self._forget(replaced)
            del old.entries[old_name]
            new.entries[new_name] = entry

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`. Who has the file open keeps it."""
        with self.lock:
            directory, name = self._parent(path)
            entry = directory.entries.get(name)
            if entry is None:
                raise _error(errno.ENOENT, path)
            if isinstance(entry, _Directory):
                raise _error(errno.EISDIR, path)
            self._forget(entry)
            del directory.entries[name]

    def remove_tree(self, path: str) -> None:
        """See `FileSystem.remove_tree`."""
        with self.lock:
            for content in self._directory(path).contents():
                self._forget(content)
            directory, name = self._parent(path)
            del directory.entries[name]

    def sync_directory(self, path: str) -> None:
        """There is nothing that would survive."""
        with self.lock:
            self._directory(path)

    def sync_volume(self, directory: str) -> bool:
        """There is nothing that would survive."""
        return True

    def space(self, directory: str) -> tuple[int, int]:
        """See `FileSystem.space`."""
        with self.lock:
            self._directory(directory)
            return self._bytes_max, self._bytes_max - self.used

    def lock_directory(self, path: str) -> MemoryLock:
        """See `FileSystem.lock_directory`."""
        with self.lock:
            self._directory(path)
            if path in self._locks:
                raise ConfigError(f"{path} is in use already: give each part one of its own")
            self._locks.add(path)
        return MemoryLock(self._locks, path)

    def _forget(self, content: _Content) -> None:
        content.has_name = False
        self.used -= FILE_BYTES + len(content.data)

    def _find(self, path: str) -> _Content | _Directory | None:
        entry: _Content | _Directory | None = self._root
        for name in _parts(path):
            if not isinstance(entry, _Directory):
                return None
            entry = entry.entries.get(name)
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._find(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        if isinstance(entry, _Content):
            raise _error(errno.ENOTDIR, path)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name


class MemoryLock:
    """See `raftctl.runtime.api.DirectoryLock`."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path
        self._held = True

    def release(self) -> None:
        """See `DirectoryLock.release`."""
        if self._held:
            self._held = False
            self._locks.discard(self._path)


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

    def sender(self, transport: asyncio.BaseTransport) -> Sender | None:
        """See `Runtime.sender`."""
        return self._runtime.sender(transport)

    def worker(self, name: str, *, short_calls: bool = False) -> Worker:
        """See `Runtime.worker`."""
        return self._runtime.worker(name, short_calls=short_calls)


def _check_replaceable(
    entry: _Content | _Directory, replaced: _Content | _Directory | None, target: str
) -> None:
    if isinstance(replaced, _Directory):
        if isinstance(entry, _Content):
            raise _error(errno.EISDIR, target)
        if replaced.entries:
            raise _error(errno.ENOTEMPTY, target)
    elif replaced is not None and isinstance(entry, _Directory):
        raise _error(errno.ENOTDIR, target)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
