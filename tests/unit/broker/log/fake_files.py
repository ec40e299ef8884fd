"""A file system in memory that forgets in a crash what was not synced, and a runtime on it."""

from __future__ import annotations

import asyncio
import errno
import random
import traceback
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import structlog

from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.runtime.api import Buffer, FileSystem

T = TypeVar("T")


class _Node:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = 0


class FakeFile:
    def __init__(self, files: FakeFiles, node: _Node, path: str) -> None:
        self._files = files
        self.path = path
        self._node = node
        self._closed = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        assert not self._closed
        self._files.check(self.path)
        if self._files.full:
            self._node.data += bytes(buffers[0])[:7]
            raise OSError(28, "no space left")
        for piece in buffers:
            self._node.data += piece
        self._node.modified_ms = self._files.now_ms

    def read_at(self, position: int, size: int) -> bytes:
        assert not self._closed
        self._files.check(self.path)
        self._files.reads += 1
        self._files.cold_reads += self._files.cold
        return bytes(self._node.data[position : position + size])

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        if not self._files.cold:
            return None

        def call() -> None:
            self._files.cold = False
            self._files.warmed += 1

        return call

    def region(self, position: int, size: int) -> bytes:
        """Read at once."""
        return self.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self._node.data[position : position + len(data)] = data

    def size(self) -> int:
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        assert not self._closed
        del self._node.data[size:]

    def sync(self) -> None:
        assert not self._closed
        self._files.syncs += 1
        self._files.check(self.path)
        if self._files.broken:
            raise OSError(5, "input/output error")
        self._node.durable = bytes(self._node.data)

    def close(self) -> None:
        self._closed = True


class FakeLock:
    def release(self) -> None:
        """Nothing was taken."""


class FakeFiles:
    """Paths to contents. Directories are durable at once, names after `sync_directory`. The names
    are no longer than those of real file systems.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {}
        self.directories = {"/"}
        self.full = False
        self.now_ms = 0
        """When files are written."""
        self.broken = False
        self.broken_under = "nowhere"
        """Whatever is below this path cannot be used any more."""
        self.reads = 0
        self.cold = False
        """Whether reads wait for the disk until something has been warmed."""
        self.cold_reads = 0
        self.warmed = 0
        self.syncs = 0
        self._durable_names: dict[str, _Node] = {}

    def check(self, path: str) -> None:
        if path.startswith(self.broken_under):
            raise OSError(5, "input/output error", path)

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        self.check(path)
        if path not in self.nodes:
            if not create:
                raise FileNotFoundError(path)
            if path.rpartition("/")[0] not in self.directories:
                raise FileNotFoundError(path)
            self.nodes[path] = _Node()
        return FakeFile(self, self.nodes[path], path)

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def modified_ms(self, path: str) -> int:
        self.check(path)
        return self.nodes[path].modified_ms

    def names(self, directory: str) -> list[str]:
        start = directory.rstrip("/") + "/"
        everything = [*self.nodes, *self.directories]
        return sorted(
            {p.removeprefix(start).split("/")[0] for p in everything if p.startswith(start)}
        )

    def make_directories(self, path: str) -> None:
        _check_name(path)
        while path:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        _check_name(target)
        if source in self.nodes:
            self.nodes[target] = self.nodes.pop(source)
            return
        for names in (self.nodes, self._durable_names):
            for path in [p for p in names if p.startswith(source + "/")]:
                names[target + path.removeprefix(source)] = names.pop(path)
        self.directories = {
            target + p.removeprefix(source) if (p + "/").startswith(source + "/") else p
            for p in self.directories
        }

    def remove(self, path: str) -> None:
        del self.nodes[path]

    def remove_tree(self, path: str) -> None:
        for names in (self.nodes, self._durable_names):
            for inside in [p for p in names if p.startswith(path + "/")]:
                del names[inside]
        self.directories = {p for p in self.directories if not (p + "/").startswith(path + "/")}

    def sync_directory(self, path: str) -> None:
        def here(name: str) -> bool:
            return name.rpartition("/")[0] == path

        kept = {p: n for p, n in self._durable_names.items() if not here(p)}
        self._durable_names = kept | {p: n for p, n in self.nodes.items() if here(p)}

    def sync_volume(self, directory: str) -> bool:
        return False

    def space(self, directory: str) -> tuple[int, int]:
        self.check(directory)
        return 1_000, 10

    def lock_directory(self, path: str) -> FakeLock:
        return FakeLock()

    def crash(self, chance: random.Random) -> None:
        """Loses unsynced names, and of each file's unsynced tail all but a part."""
        self.nodes = dict(self._durable_names)
        for node in self.nodes.values():
            if node.data.startswith(node.durable):
                kept = node.data[: chance.randint(len(node.durable), len(node.data))]
                zeroed = chance.randint(len(node.durable), len(kept))
                node.data = (
                    kept[:zeroed] + bytes(len(kept) - zeroed) if chance.random() < 0.3 else kept
                )
            else:
                node.data = bytearray(node.durable)
            node.durable = bytes(node.data)


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
        self.log = structlog.wrap_logger(
            None, processors=[self._keep], wrapper_class=structlog.make_filtering_bound_logger(0)
        )

    def _keep(self, _logger: object, _method: str, event: Any) -> Any:
        if event.get("exc_info"):
            event["exc_info"] = traceback.format_exc()
        self.events.append((event.pop("event"), dict(event)))
        raise structlog.DropEvent

    def wall_ms(self) -> int:
        return self.now_ms

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def sender(self, transport: asyncio.BaseTransport) -> None:
        """What is sent comes from memory."""

    def worker(self, name: str, *, short_calls: bool = False) -> FakeWorker:
        return FakeWorker()


def _check_name(path: str) -> None:
    if len(path.rpartition("/")[2]) > 255:
        raise OSError(errno.ENAMETOOLONG, "file name too long", path)
