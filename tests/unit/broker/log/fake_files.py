"""A disk in memory for a broker: full, broken or cold when a test says so; a runtime on it."""

from __future__ import annotations

import asyncio
import errno
import random
import traceback
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import structlog

from raftctl.errors import KafkaError
from raftctl.loggers import Level, LogLevels
from raftctl.runtime import Content, Directory, MemoryDisk, MemoryFile
from raftctl.runtime.api import ProcessUsage
from tests.kit.disk import FakeDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.runtime.api import FileSystem

T = TypeVar("T")


class FakeFile(MemoryFile):
    """An open file, which may have to be warmed before it is read."""

    def __init__(self, disk: FakeFiles, path: str, content: Content) -> None:
        super().__init__(disk, path, content)
        self._files = disk

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        if not self._files.cold:
            return None

        def call() -> None:
            self._files.cold = False
            self._files.warmed += 1

        return call


class FakeFiles(FakeDisk):
    """A disk whose directories must be made. Names are no longer than those of real disks."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        """When files are written."""
        self.wall_ms = lambda: self.now_ms
        self.full = False
        self.broken = False
        self.broken_under = "nowhere"
        """Whatever is below this path cannot be used any more."""
        self.reads = 0
        self.cold = False
        """Whether reads wait for the disk until something has been warmed."""
        self.cold_reads = 0
        self.warmed = 0
        self.syncs = 0

    def step(self, operation: str, path: str) -> None:
        super().step(operation, path)
        self.syncs += operation == "sync"
        self.reads += operation == "read"
        self.cold_reads += operation == "read" and self.cold
        if operation in ("open", "read", "write", "sync"):
            self.check(path)
        if operation == "sync" and self.broken:
            raise OSError(errno.EIO, "input/output error")

    def check(self, path: str) -> None:
        if path.startswith(self.broken_under):
            raise OSError(errno.EIO, "input/output error", path)

    def fitting(self, content: Content, path: str, grown: int) -> int:
        return min(grown, 7) if self.full else grown

    def _new_file(self, path: str, content: Content) -> FakeFile:
        return FakeFile(self, path, content)

    def _parent(self, path: str) -> tuple[Directory, str]:
        return MemoryDisk._parent(self, path)

    def modified_ms(self, path: str) -> int:
        self.check(path)
        return super().modified_ms(path)

    def space(self, directory: str) -> tuple[int, int]:
        self.check(directory)
        return super().space(directory)

    def make_directories(self, path: str) -> None:
        self.check(path)
        _check_name(path)
        super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        _check_name(target)
        super().rename(source, target)

    def crash_by(self, chance: random.Random) -> None:
        """Loses what is not durable, as `chance` has it."""
        self._chance = chance
        self.crash()


class FakeWorker:
    """Runs each call on the next turn of the event loop, in order."""

    def pause(self) -> None:
        """Nobody waits for the interpreter here."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            # It runs even if nobody waits any more, as a real worker's call does.
            try:
                result = call()
            except (OSError, KafkaError) as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        loop.call_soon(run)
        return future

    def close(self) -> None:
        """Nothing to stop."""


class FakeRuntime:
    """One node's world: files in memory, seeded randomness, a wall clock that a test sets."""

    def __init__(self, files: FakeFiles | None = None, seed: int = 0) -> None:
        self.files: FileSystem = files or FakeFiles()
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.log = LogLevels(Level.TRACE).logger(None, [self._keep])

    def _keep(self, _logger: object, _method: str, event: Any) -> Any:
        if event.get("exc_info"):
            event["exc_info"] = traceback.format_exc()
        self.events.append((event.pop("event"), dict(event)))
        raise structlog.DropEvent

    def wall_ms(self) -> int:
        return self.now_ms

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def usage(self) -> ProcessUsage:
        return ProcessUsage()

    def idle_s(self) -> None:
        """Nobody measures."""

    def sender(self, transport: asyncio.BaseTransport) -> None:
        """What is sent comes from memory."""

    def worker(self, name: str, *, short_calls: bool = False) -> FakeWorker:
        return FakeWorker()


def _check_name(path: str) -> None:
    if len(path.rpartition("/")[2]) > 255:
        raise OSError(errno.ENAMETOOLONG, "file name too long", path)
