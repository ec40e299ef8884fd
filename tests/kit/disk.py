"""A disk in memory that can crash: whatever was not synced may be lost, wholly or in part."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from raftctl.errors import ConfigError
from raftctl.failures import outcome_of
from raftctl.storage.log import _segment as segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from raftctl.runtime.api import Buffer, DirectoryLock

T = TypeVar("T")


class Crash(Exception):
    """The power fails; only `FakeDisk.after_crash` may be used from now on."""


class FakeFile:
    """Content as the process sees it, and as the platters hold it."""

    def __init__(self, disk: FakeDisk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.current = bytearray()
        self.durable = b""

    def append(self, buffers: Sequence[Buffer]) -> None:
        self.disk.operation()
        for buffer in buffers:
            self.current += buffer

    def warm(self, position: int, size: int) -> None:
        """Everything is in memory."""

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self.current[position : position + size])

    def region(self, position: int, size: int) -> bytes:
        """Read at once."""
        return self.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self.disk.operation()
        self.current[position : position + len(data)] = data

    def size(self) -> int:
        return len(self.current)

    def truncate(self, size: int) -> None:
        self.disk.operation()
        del self.current[size:]

    def sync(self) -> None:
        self.disk.operation()
        self.durable = bytes(self.current)

    def close(self) -> None:
        pass

    def after_crash(self, random: Random) -> bytes:
        """What survives: synced bytes, and of an unsynced tail some bytes, or sectors and zeros."""
        current = bytes(self.current)
        if not current.startswith(self.durable):
            return random.choice([self.durable, current])
        tail = current[len(self.durable) :]
        kept = random.randint(0, len(tail))
        if random.random() < 0.5:
            return self.durable + tail[:kept]
        # The length is durable, but not all sectors are.
        start = len(self.durable)
        kept = max(0, (start + kept) // segment.SECTOR_BYTES * segment.SECTOR_BYTES - start)
        return self.durable + tail[:kept] + bytes(len(tail) - kept)


class FakeDisk:
    """Implements `FileSystem` for one flat set of paths."""

    def __init__(self, operations_left: int | None = None) -> None:
        self.files: dict[str, FakeFile] = {}
        self.durable_names: dict[str, FakeFile] = {}
        self.directories: set[str] = set()
        self.operations_left = operations_left
        self.error: OSError | None = None

    def operation(self) -> None:
        if self.error is not None:
            raise self.error
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                raise Crash

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(path)
            self.operation()
            self.files[path] = FakeFile(self, path)
        return self.files[path]

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def modified_ms(self, path: str) -> int:
        return 0

    def names(self, directory: str) -> list[str]:
        prefix = directory + "/"
        return sorted(path[len(prefix) :] for path in self.files if path.startswith(prefix))

    def make_directories(self, path: str) -> None:
        self.directories.add(path)

    def rename(self, source: str, target: str) -> None:
        self.operation()
        self.files[target] = self.files.pop(source)

    def remove(self, path: str) -> None:
        self.operation()
        del self.files[path]

    def remove_tree(self, path: str) -> None:
        for name in self.names(path):
            self.remove(f"{path}/{name}")

    def sync_directory(self, path: str) -> None:
        self.operation()
        for name in [*self.durable_names, *self.files]:
            if not name.startswith(path + "/"):
                continue
            if name in self.files:
                self.durable_names[name] = self.files[name]
            else:
                del self.durable_names[name]

    def sync_volume(self, directory: str) -> bool:
        return False

    def space(self, directory: str) -> tuple[int, int]:
        return 1_000, 10

    def lock_directory(self, path: str) -> DirectoryLock:
        raise ConfigError(f"{path} cannot be locked")

    def after_kill(self) -> FakeDisk:
        """The disk as the next process finds it when only the process was killed."""
        disk = FakeDisk()
        disk.directories = set(self.directories)
        for path, old in sorted(self.files.items()):
            file = disk.files[path] = disk.durable_names[path] = FakeFile(disk, path)
            file.current = bytearray(old.current)
            file.durable = bytes(old.current)
        return disk

    def after_crash(self, random: Random) -> FakeDisk:
        """The disk as the next process finds it."""
        disk = FakeDisk()
        disk.directories = set(self.directories)
        names = self.files if random.random() < 0.5 else self.durable_names
        for path, old in sorted(names.items()):
            file = FakeFile(disk, path)
            file.durable = old.after_crash(random)
            file.current = bytearray(file.durable)
            disk.files[path] = disk.durable_names[path] = file
        return disk


class StepWorker:
    """A `Worker` whose calls run when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def pause(self) -> None:
        """Nobody waits for the interpreter here."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            result, error = outcome_of(call)
            if future.done():  # whoever waited has given up
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.calls.append(run)
        return future

    async def run_all(self) -> None:
        """Runs what is queued and lets the loop deliver the results."""
        calls, self.calls = self.calls, []
        for run in calls:
            run()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def close(self) -> None:
        pass
