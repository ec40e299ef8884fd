"""A disk in memory that can crash: whatever was not synced may be lost, wholly or in part."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, TypeVar

from raftctl.failures import outcome_of
from raftctl.runtime import Content, Directory, MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
D = TypeVar("D", bound="FakeDisk")

CHANGES = ("write", "sync", "name", "sync_directory")
"""Operations that change a disk, besides the creation of a file."""


class Crash(Exception):
    """The power fails; only `FakeDisk.after_crash` may be used from now on."""


class FakeDisk(MemoryDisk):
    """A memory disk on which the power fails after so many operations; directories are made.

    It stays as it is in a crash: `after_crash` returns what the next process finds.
    """

    def __init__(self, operations_left: int | None = None) -> None:
        super().__init__(Random(0))
        self.operations_left = operations_left
        self.error: OSError | None = None

    def step(self, operation: str, path: str) -> None:
        """Counts what changes the disk."""
        if operation in CHANGES:
            self.operation()

    def named(self, path: str) -> None:
        """A new file changes the disk, too."""
        self.operation()

    def operation(self) -> None:
        if self.error is not None:
            raise self.error
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                raise Crash

    def make_directories(self, path: str) -> None:
        """Durable at once, and no operation."""
        here = self._root
        for name in filter(None, path.split("/")):
            entry = here.seen.setdefault(name, Directory())
            assert isinstance(entry, Directory)
            here.durable[name] = entry
            here = entry

    def _parent(self, path: str) -> tuple[Directory, str]:
        self.make_directories(path.rpartition("/")[0])
        return super()._parent(path)

    def names(self, directory: str) -> list[str]:
        return super().names(directory) if self.is_directory(directory) else []

    def file(self, path: str) -> Content:
        """What a file holds now, and what of it is durable."""
        return self._file(path)

    @property
    def files(self) -> dict[str, Content]:
        """All files by their paths."""
        return dict(_below(self._root, ""))

    def forget(self, path: str) -> None:
        """Removes a file whose name was never durable."""
        directory, name = self._parent(path)
        del directory.seen[name]
        directory.durable.pop(name, None)

    def space(self, directory: str) -> tuple[int, int]:
        return 1_000, 10

    def after_kill(self) -> FakeDisk:
        """The disk as the next process finds it when only the process was killed."""
        disk = self.copy_to(FakeDisk())
        disk._unsynced.clear()
        _make_durable(disk._root)
        return disk

    def after_crash(self, random: Random) -> FakeDisk:
        """The disk as the next process finds it."""
        disk = self.copy_to(FakeDisk())
        disk._chance = random
        disk.crash()
        return disk

    def copy_to(self, disk: D) -> D:
        """Puts all that is here on another disk, and returns that."""
        disk._root, disk._unsynced = deepcopy((self._root, self._unsynced))
        return disk


def _below(directory: Directory, path: str) -> Iterator[tuple[str, Content]]:
    for name, entry in directory.seen.items():
        if isinstance(entry, Directory):
            yield from _below(entry, f"{path}/{name}")
        else:
            yield f"{path}/{name}", entry


def _make_durable(directory: Directory) -> None:
    directory.durable = dict(directory.seen)
    for entry in directory.seen.values():
        if isinstance(entry, Directory):
            _make_durable(entry)
        else:
            entry.durable = bytearray(entry.seen)
            entry.unsynced.clear()


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
