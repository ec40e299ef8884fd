"""The disk of a simulated node: a memory disk that fails, hangs, takes time and loses its power.

What a crash leaves is decided by `raftctl.runtime.MemoryDisk`; here is what happens to a disk, and
when. Every decision is drawn from the random source of the disk's node.
"""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jepsen.simulator._errno import os_error
from jepsen.simulator.disk._content import SimContent
from raftctl.runtime import Content, Directory, MemoryDisk, MemoryFile

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from jepsen.simulator.disk._content import DurableFile

SYNC_MIN_S = 0.000_1
SYNC_MAX_S = 0.002
SLOW_CALL_CHANCE = 0.05
"""The share of slow calls on a slow disk: the others find their bytes in memory."""
HANGING = {
    "hung_writes": ("write", "sync", "name", "sync_directory"),
    "hung_disk": ("write", "sync", "name", "sync_directory", "read", "open"),
}
"""The operations that hang, by kind of fault; reads from memory do not where only writes hang."""
CHANGES = ("write", "sync", "open", "name", "sync_directory")
"""Operations at which the power may go: those that change a disk, and those recovery begins by."""


class PowerCut(BaseException):
    """The power is gone in the middle of a call: nothing of the process runs any further."""


@dataclass(frozen=True, slots=True)
class SavedDisk:
    """A copy of all that was on a disk."""

    root: Directory


class SimRegion:
    """A part of a file, to be sent; see `raftctl.runtime.api.FileRegion`.

    Unlike on a real machine no part is too small for it: simulated records are.
    """

    def __init__(self, file: SimFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size
        self._cuts = file.cuts

    def __len__(self) -> int:
        """How many bytes these are."""
        return self._size

    def read(self, start: int, size: int) -> bytes:
        """Return the bytes, also after the file was closed or removed; OSError (ESTALE) once it was
        cut.
        """
        data = self._file.peek(self._position + start, min(size, self._size - start))
        if self._file.cuts != self._cuts or not data:
            raise os_error(errno.ESTALE, f"{self._file.path}: cut off before it was sent")
        return data


class SimFile(MemoryFile):
    """An open file of a `SimDisk`."""

    def __init__(self, disk: SimDisk, path: str, content: Content) -> None:
        super().__init__(disk, path, content)
        self._sim = disk
        disk.open_files[self] = None
        self.cuts = 0
        """The number of times that the file was made shorter."""

    def region(self, position: int, size: int) -> SimRegion:
        """Read when it is sent."""
        self._use("read")
        return SimRegion(self, position, max(min(size, len(self._content.seen) - position), 0))

    def peek(self, position: int, size: int) -> bytes:
        """Return bytes as they are now, even if the file is closed."""
        self._sim.step("read", self.path)
        return self._read(position, size)

    def _read(self, position: int, size: int) -> bytes:
        assert isinstance(self._content, SimContent)
        by_program = self._sim.is_program()
        return self._content.read(position, size, by_program=by_program)

    def truncate(self, size: int) -> None:
        before = len(self._content.seen)
        super().truncate(size)
        self.cuts += size < before

    def sync(self) -> None:
        """See `File.sync`; it costs some virtual time."""
        super().sync()
        self._sim.charge_sync(f"{self.path} bytes={len(self._content.durable)}")

    def close(self) -> None:
        super().close()
        self._sim.open_files.pop(self, None)


def no_fault(operation: str, path: str) -> None:
    """Let every operation pass: the disk is healthy."""


def endless_room(path: str, size: int) -> int:
    """Return all that is asked for: the disk has space for everything."""
    return size


def no_program() -> bool:
    """Return False: a disk outside a world is read by observers alone."""
    return False


def no_wait(seconds: float) -> None:
    """Do nothing: no event loop could wait."""


class SimDisk(MemoryDisk):
    """The file system of one node; see `raftctl.runtime.api.FileSystem`.

    `fault(operation, path)` runs before every operation and may raise OSError: the seam for full
    and failing disks; see `MemoryDisk.step` for the operations.
    """

    content = SimContent

    def __init__(
        self,
        random: random.Random,
        on_sync: Callable[[str], None],
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`wall_ms`: the clock of the machine that the disk is in."""
        super().__init__(random, wall_ms)
        self._random = random
        self.fault: Callable[[str, str], None] = no_fault
        self.is_program: Callable[[], bool] = no_program
        """A function that returns True if a program reads. An observer reads bytes as they were
        written: only programs see flipped bits."""
        self.room: Callable[[str, int], int] = endless_room
        """A function from a path and the bytes to add to the bytes that there is room for."""
        self._on_sync = on_sync
        self.open_files: dict[SimFile, None] = {}
        """The open files of the process that runs."""
        self._cost_s = 0.0
        self.slow_call_s = 0.0
        """The time a slow read or write takes at most; 0 if none is slow."""
        self.hanging: tuple[str, ...] = ()
        """Operations that take until `heal`."""
        self._hung = False
        self._waiting: list[Callable[[], None]] = []
        self.in_thread = False
        """True while a worker's thread calls, and not the event loop."""
        self.on_wait: Callable[[float], None] = no_wait
        """The function to call when the event loop itself has to wait: for so many seconds, or
        until `heal`."""
        self.slowness = 1.0
        """The factor by which a sync takes longer than usual."""
        self.lies = False
        """True if a sync only fills a cache that the next loss of power empties."""
        self.used: set[str] = set()
        """The operations that were begun; observers clear it."""
        self.crashes = 0
        """The number of power failures."""
        self.replaced = 0
        """The number of disks that were here before, with other contents."""
        self.failed_syncs = 0
        """The number of syncs that failed."""
        self.off = False
        """True if the power went in the middle of a call, and `crash` is still to come."""
        self._left = 0
        self._cut: Callable[[], bool] | None = None

    # The file system

    def fitting(self, content: Content, path: str, grown: int) -> int:
        """Return how many of the bytes to add have room, as `room` has it."""
        return self.room(path, grown)

    def sync_content(self, content: Content) -> None:
        """Make the content durable, unless the disk lies."""
        if not self.lies:
            content.sync()

    def sync_failed(self, content: Content) -> None:
        """Count it."""
        super().sync_failed(content)
        self.failed_syncs += 1

    def _new_file(self, path: str, content: Content) -> SimFile:
        return SimFile(self, path, content)

    def sync_directory(self, path: str) -> None:
        """See `FileSystem.sync_directory`; it costs some virtual time."""
        if self.lies:
            self.step("sync_directory", path)
            self._directory(path)
        else:
            super().sync_directory(path)
        self.charge_sync(path)

    def space(self, directory: str) -> tuple[int, int]:
        """Return a size as large as any, always half empty."""
        self.fault("space", directory)
        return 1 << 40, 1 << 39

    # The machine

    def step(self, operation: str, path: str) -> None:
        """Fail or hang an operation that is about to be done, or cut the power before it."""
        self.used.add(operation)
        if operation in CHANGES:
            if self.off:
                raise PowerCut(path)
            if self._cut is not None:
                self._count_down(path)
        self.fault(operation, path)
        if operation in self.hanging:
            self._hung = True
            if not self.in_thread:
                self.on_wait(math.inf)
        elif self.slow_call_s and self._random.random() < SLOW_CALL_CHANCE:
            self._take(self._random.uniform(0, self.slow_call_s))

    def _take(self, seconds: float) -> None:
        """Let the caller wait so long."""
        if self.in_thread:
            self._cost_s += seconds
        else:
            self.on_wait(seconds)

    def hang(self, kind: str) -> None:
        """Make these operations take until `heal`; see `HANGING`."""
        self.hanging = HANGING[kind]

    def heal(self) -> None:
        """Make calls quick again, and let those that hung go on."""
        self.hanging = ()
        self.slow_call_s = 0.0
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_healed(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the disk does not hang any more."""
        self._waiting.append(go_on)

    def take_hung(self) -> bool:
        """Return True if an operation has hung since the last call of this."""
        hung, self._hung = self._hung, False
        return hung

    @property
    def sound(self) -> bool:
        """True if every operation is done, at the usual speed."""
        quick = self.slowness == 1.0 and not self.slow_call_s and not self.hanging
        return quick and self.fault is no_fault and not (self.off or self.lies)

    def cut_within(self, operations: int, cut: Callable[[], bool]) -> None:
        """Call `cut` when so many operations are done; if it says so, no other is done any more.

        It waits as long as it takes, also over lives of the process, until `spare`.
        """
        self._left, self._cut = operations, cut

    def spare(self) -> None:
        """Cancel the power cut that `cut_within` has planned."""
        self._cut = None

    def _count_down(self, path: str) -> None:
        if self._left > 0 or self._cut is None:
            self._left -= 1
            return
        cut, self._cut = self._cut, None
        if cut():
            self.off = True
            raise PowerCut(path)

    @property
    def locked(self) -> list[str]:
        """The directories whose locks are held."""
        return list(self._locks)

    def release_locks(self) -> None:
        """Release the locks of a process that is dead, and close its files."""
        self._locks.clear()
        self.open_files.clear()

    def crash(self) -> None:
        """Fail the power: programs now see all that is durable, and some of the rest."""
        self.crashes += 1
        self.off = False
        self.release_locks()
        super().crash()

    def wipe(self) -> None:
        """Another disk, with nothing on it, takes the place of this one."""
        self.crashes += 1
        self.replaced += 1
        self.off = False
        self.release_locks()
        self._unsynced.clear()
        self._root = Directory()

    def copy(self) -> SavedDisk:
        """Return a copy of the disk as programs see it now."""
        return SavedDisk(_copied(self._root))

    def put_back(self, saved: SavedDisk) -> None:
        """Put an earlier copy in the place of this disk, which no process uses."""
        self.wipe()
        self._root = _copied(saved.root)

    def size(self, path: str) -> int:
        """Return the length of a file as programs see it; 0 if there is none."""
        entry = self._find(path)
        return len(entry.seen) if isinstance(entry, Content) else 0

    def byte(self, path: str, position: int) -> int:
        """Return one byte of a file as programs see it; -1 where there is none."""
        entry = self._find(path)
        if not isinstance(entry, Content) or position >= len(entry.seen):
            return -1
        return entry.seen[position]

    def put_byte(self, path: str, position: int, value: int) -> None:
        """Change a byte of a file at rest."""
        entry = self._find(path)
        if isinstance(entry, SimContent):
            entry.put_byte(position, value)

    def flip(self, path: str, bit: int) -> None:
        """Flip one bit of a file at rest."""
        self.put_byte(path, bit // 8, self.byte(path, bit // 8) ^ 1 << bit % 8)

    def files_below(self, directory: str) -> list[str]:
        """Return the paths of all files in a directory and below it, sorted."""
        found = []
        for name in self.names(directory):
            path = f"{directory}/{name}"
            found += self.files_below(path) if self.is_directory(path) else [path]
        return found

    def rot(self, path: str, bit: int) -> Callable[[], int]:
        """Flip one bit of a file for programs that read it from now on.

        Return a function that undoes it, which returns how often the bit was read.
        """
        entry = self._find(path)
        if not isinstance(entry, SimContent):
            raise os_error(errno.ENOENT, path)
        entry.rot[bit // 8] = 1 << bit % 8

        def undo() -> int:
            entry.rot.clear()
            return entry.rotten_reads

        return undo

    def charge_sync(self, detail: str) -> None:
        """Add the time of one sync to what the caller has to wait."""
        self._cost_s += self._random.uniform(SYNC_MIN_S, SYNC_MAX_S) * self.slowness
        self._on_sync(detail)

    def durable(self, path: str) -> dict[str, DurableFile]:
        """Return the files of a directory by name, in order, as even the worst crash leaves them.

        Empty if the directory itself is not durable.
        """
        here: Content | Directory | None = self._root
        for name in filter(None, path.split("/")):
            here = here.durable.get(name) if isinstance(here, Directory) else None
        if not isinstance(here, Directory):
            return {}
        entries = sorted(here.durable.items())
        return {name: e for name, e in entries if isinstance(e, SimContent)}

    def take_cost_s(self) -> float:
        """Return the virtual seconds spent since the last call, for the worker to wait."""
        cost_s, self._cost_s = self._cost_s, 0.0
        return cost_s


def _copied(directory: Directory) -> Directory:
    """A copy of all below, of which everything is durable."""
    entries: dict[str, Content | Directory] = {}
    for name, entry in directory.seen.items():
        if isinstance(entry, Directory):
            entries[name] = _copied(entry)
        else:
            content = bytearray(entry.seen)
            entries[name] = SimContent(content, bytearray(content), modified_ms=entry.modified_ms)
    return Directory(entries, dict(entries))
