"""A disk that forgets: what was not synced may be lost, kept or half kept in a crash.

Contents and names are durable separately, as POSIX has it. `File.sync` saves the bytes and length
of a file but not the name it was created under; `sync_directory` saves the names in one directory,
so a new directory is lost unless its parent is synced too. In a crash each unsynced write survives
wholly, in part or not at all, independently of the others; of the unsynced changes of names a
prefix survives, whole, as with a journal.
Sources: POSIX fsync; Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jepsen.simulator._errno import os_error
from jepsen.simulator.disk._content import Content, Write
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from jepsen.simulator.disk._content import DurableFile
    from raftctl.runtime.api import Buffer

SYNC_MIN_S = 0.000_1
SYNC_MAX_S = 0.002
LOCK_NAME = ".lock"
SLOW_CALL_CHANCE = 0.05
"""On a disk of which calls are slow, so many are: the others find what they need in memory."""
HANGING = {
    "hung_writes": ("write", "sync", "name", "sync_directory"),
    "hung_disk": ("write", "sync", "name", "sync_directory", "read", "open"),
}
"""What hangs, by the kind of fault; reads of what is in memory do not where only writes hang."""
CHANGES = ("write", "sync", "open", "name", "sync_directory")
"""Operations at which the power may go: those that change a disk, and those recovery begins by."""


class PowerCut(BaseException):
    """The power is gone in the middle of a call: nothing of the process runs any further."""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory: names as programs see them and as a crash leaves them."""

    seen: dict[str, _Entry] = field(default_factory=dict)
    durable: dict[str, _Entry] = field(default_factory=dict)


_Entry = Content | _Directory


@dataclass(slots=True)
class _Naming:
    """An unsynced change of names, made whole or not at all; None removes a name."""

    changes: list[tuple[_Directory, str, _Entry | None]]

    def apply(self) -> None:
        """Makes the changes of names durable."""
        for directory, name, entry in self.changes:
            if entry is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = entry

    def touches(self, directory: _Directory) -> bool:
        """Whether a change is in this directory."""
        return any(changed is directory for changed, _, _ in self.changes)


@dataclass(frozen=True, slots=True)
class SavedDisk:
    """A copy of all that was on a disk."""

    root: _Directory


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
        """Also after the file was closed or removed; OSError (ESTALE) once it was cut."""
        data = self._file.peek(self._position + start, min(size, self._size - start))
        if self._file.cuts != self._cuts or not data:
            raise os_error(errno.ESTALE, f"{self._file.path}: cut off before it was sent")
        return data


class SimFile:
    """An open file of a `SimDisk`; see `raftctl.runtime.api.File`."""

    def __init__(self, disk: SimDisk, path: str, content: Content) -> None:
        self._disk = disk
        self.path = path
        self._content = content
        self._closed = False
        disk.open_files[self] = None
        self.cuts = 0
        """How often the file was made shorter."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Writes the buffers at the end."""
        self._use("write")
        data = b"".join(buffers)
        self._write(len(self._content.seen), data)

    def read_at(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`."""
        self._use("read")
        return self._read(position, size)

    def warm(self, position: int, size: int) -> None:
        """Everything is in memory."""

    def region(self, position: int, size: int) -> SimRegion:
        """Read when it is sent."""
        self._use("read")
        return SimRegion(self, position, max(min(size, len(self._content.seen) - position), 0))

    def peek(self, position: int, size: int) -> bytes:
        """Bytes as they are now, whether or not the file is still open."""
        self._disk.step("read", self.path)
        return self._read(position, size)

    def _read(self, position: int, size: int) -> bytes:
        by_program = self._disk.is_program()
        return self._content.read(position, size, by_program=by_program)

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrites bytes; a gap before them reads as zeros."""
        self._use("write")
        self._write(position, bytes(data))

    def _write(self, position: int, data: bytes) -> None:
        """As write(2): what finds no space any more is left out, which is an error only then."""
        grown = max(position + len(data) - len(self._content.seen), 0)
        fits = len(data) - grown + self._disk.room(self.path, grown)
        self._content.change(Write(position, data[:fits]))
        if fits < len(data):
            raise os_error(errno.ENOSPC, self.path)

    def size(self) -> int:
        """The length in bytes."""
        self._use("size")
        return len(self._content.seen)

    def truncate(self, size: int) -> None:
        """Cuts the file, or lengthens it with zeros."""
        self._use("write")
        grown = size - len(self._content.seen)
        self.cuts += grown < 0
        change = Write(size, None) if grown <= 0 else Write(size - grown, bytes(grown))
        self._content.change(change)

    def sync(self) -> None:
        """Makes contents and length durable, at the cost of some virtual time."""
        try:
            self._use("sync")
        except OSError:
            self._content.fail_sync()
            self._disk.failed_syncs += 1
            raise
        if not self._disk.lies:
            self._content.sync()
        self._disk.charge_sync(f"{self.path} bytes={len(self._content.durable)}")

    def close(self) -> None:
        """Releases the file."""
        self._closed = True
        self._disk.open_files.pop(self, None)

    def _use(self, operation: str) -> None:
        if self._closed:
            raise os_error(errno.EBADF, self.path)
        self._disk.step(operation, self.path)
        if operation == "write":
            self._content.modified_ms = self._disk.wall_ms()


class SimLock:
    """A held directory lock."""

    def __init__(self, locks: dict[str, SimLock], path: str) -> None:
        self._locks = locks
        self._path = path
        locks[path] = self

    def release(self) -> None:
        """Gives the lock up; a second call does nothing."""
        if self._locks.get(self._path) is self:
            del self._locks[self._path]


def no_fault(operation: str, path: str) -> None:
    """The healthy disk: every operation passes."""


def endless_room(path: str, size: int) -> int:
    """The disk with space for all that comes."""
    return size


def no_program() -> bool:
    """A disk outside a world, which only observers read."""
    return False


def no_wait(seconds: float) -> None:
    """Where nobody runs whose event loop could wait."""


class SimDisk:
    """The file system of one node; see `raftctl.runtime.api.FileSystem`.

    `fault(operation, path)` runs before every operation and may raise OSError: the seam for full
    and failing disks. Operations are write, read, size, sync, open, name and sync_directory.
    """

    def __init__(
        self,
        random: random.Random,
        on_sync: Callable[[str], None],
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`wall_ms`: the clock of the machine that the disk is in."""
        self.wall_ms = wall_ms
        self.fault: Callable[[str, str], None] = no_fault
        self.is_program: Callable[[], bool] = no_program
        """Whether a program is reading. An observer is not, and reads bytes as they were written:
        only programs see flipped bits."""
        self.room: Callable[[str, int], int] = endless_room
        """How many bytes are left for so many more of a file."""
        self._random = random
        self._on_sync = on_sync
        self._root = _Directory()
        self._unsynced: list[_Naming] = []
        self._locks: dict[str, SimLock] = {}
        self.open_files: dict[SimFile, None] = {}
        """Of the process that runs."""
        self._cost_s = 0.0
        self.slow_call_s = 0.0
        """How long a read or write takes at most that is slow."""
        self.hanging: tuple[str, ...] = ()
        """Operations that take until `heal`."""
        self._hung = False
        self._waiting: list[Callable[[], None]] = []
        self.in_thread = False
        """Whether a worker's thread is calling, and not the event loop."""
        self.on_wait: Callable[[float], None] = no_wait
        """Called when the event loop itself has to wait: for so many seconds, or until `heal`."""
        self.slowness = 1.0
        """How many times longer a sync takes than usual."""
        self.lies = False
        """Whether what is synced only lies in a cache that the next loss of power empties."""
        self.used: set[str] = set()
        """Which operations were begun; to be cleared by whoever wants to know."""
        self.crashes = 0
        """How often the power has failed."""
        self.replaced = 0
        """How many disks were here before, with other contents."""
        self.failed_syncs = 0
        """How often a sync has failed."""
        self.off = False
        """Whether the power went in the middle of a call, and `crash` is still to come."""
        self._left = 0
        self._cut: Callable[[], bool] | None = None

    # The file system

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Opens a file for reading and writing."""
        self.step("open", path)
        directory, name = self._parent(path)
        entry = directory.seen.get(name)
        if isinstance(entry, _Directory):
            raise os_error(errno.EISDIR, path)
        if entry is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            entry = Content(modified_ms=self.wall_ms())
            self._name([(directory, name, entry)])
        return SimFile(self, path, entry)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""
        return isinstance(self._find(path), _Directory)

    def modified_ms(self, path: str) -> int:
        """When a file was last written or cut."""
        entry = self._find(path)
        if not isinstance(entry, Content):
            raise os_error(errno.ENOENT, path)
        return entry.modified_ms

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(self._directory(directory).seen)

    def make_directories(self, path: str) -> None:
        """Creates a directory and its parents."""
        self.step("name", path)
        here = self._root
        for name in _parts(path):
            entry = here.seen.get(name)
            if entry is None:
                entry = _Directory()
                self._name([(here, name, entry)])
            if not isinstance(entry, _Directory):
                raise os_error(errno.EEXIST, path)
            here = entry

    def rename(self, source: str, target: str) -> None:
        """Moves a file or directory in one step."""
        self.step("name", source)
        old, old_name = self._parent(source)
        new, new_name = self._parent(target)
        entry = old.seen.get(old_name)
        replaced = new.seen.get(new_name)
        if entry is None:
            raise os_error(errno.ENOENT, source)
        if replaced is entry:
            return
        if isinstance(replaced, _Directory):
            if not isinstance(entry, _Directory):
                raise os_error(errno.EISDIR, target)
            if replaced.seen:
                raise os_error(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(entry, _Directory):
            raise os_error(errno.ENOTDIR, target)
        self._name([(old, old_name, None), (new, new_name, entry)])

    def remove(self, path: str) -> None:
        """Deletes one file; who has it open keeps it."""
        self.step("name", path)
        directory, name = self._parent(path)
        entry = directory.seen.get(name)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(entry, _Directory):
            raise os_error(errno.EISDIR, path)
        self._name([(directory, name, None)])

    def remove_tree(self, path: str) -> None:
        """Deletes a directory and all below it, names first from the leaves up."""
        self.step("name", path)
        doomed = self._directory(path)
        for name in sorted(doomed.seen):
            child = f"{path}/{name}"
            if isinstance(doomed.seen[name], _Directory):
                self.remove_tree(child)
            else:
                self.remove(child)
        directory, name = self._parent(path)
        self._name([(directory, name, None)])

    def sync_directory(self, path: str) -> None:
        """Makes the names in one directory durable, at the cost of some virtual time."""
        self.step("sync_directory", path)
        directory = self._directory(path)
        waiting: list[_Naming] = []
        for naming in self._unsynced:
            if naming.touches(directory) and not self.lies:
                naming.apply()
            else:
                waiting.append(naming)
        self._unsynced = waiting
        self.charge_sync(path)

    def sync_volume(self, directory: str) -> bool:
        """Each file and directory is synced by itself."""
        return False

    def space(self, directory: str) -> tuple[int, int]:
        """As large as any and always half empty."""
        self.fault("space", directory)
        return 1 << 40, 1 << 39

    def lock_directory(self, path: str) -> SimLock:
        """Takes the lock of a directory, which dies with the process."""
        self.open(f"{path}/{LOCK_NAME}", create=True).close()
        if path in self._locks:
            raise ConfigError(f"{path} is locked by another process: stop it first")
        return SimLock(self._locks, path)

    # The machine

    def step(self, operation: str, path: str) -> None:
        """An operation is about to be done: it may fail or hang, or the power may go before it."""
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
        """Whoever calls has to wait so long."""
        if self.in_thread:
            self._cost_s += seconds
        else:
            self.on_wait(seconds)

    def hang(self, kind: str) -> None:
        """From now on operations take until `heal`; see `HANGING`."""
        self.hanging = HANGING[kind]

    def heal(self) -> None:
        """Calls are quick again, and what hung goes on."""
        self.hanging = ()
        self.slow_call_s = 0.0
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def when_healed(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` when the disk does not hang any more."""
        self._waiting.append(go_on)

    def take_hung(self) -> bool:
        """Whether an operation has hung since the last call of this."""
        hung, self._hung = self._hung, False
        return hung

    @property
    def sound(self) -> bool:
        """Whether every operation is done, at the usual speed."""
        quick = self.slowness == 1.0 and not self.slow_call_s and not self.hanging
        return quick and self.fault is no_fault and not (self.off or self.lies)

    def cut_within(self, operations: int, cut: Callable[[], bool]) -> None:
        """Calls `cut` when so many operations are done; if it says so, no other is done any more.

        It waits as long as it takes, also over lives of the process, until `spare`.
        """
        self._left, self._cut = operations, cut

    def spare(self) -> None:
        """What `cut_within` has asked for does not happen any more."""
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
        """The process that held them is dead; nor has it any file open."""
        self._locks.clear()
        self.open_files.clear()

    def crash(self) -> None:
        """The power fails: programs now see what is durable, and some of what was not."""
        self.crashes += 1
        self.off = False
        self.release_locks()
        survivors = self._random.randint(0, len(self._unsynced))
        for naming in self._unsynced[:survivors]:
            naming.apply()
        self._unsynced.clear()
        self._crash_below(self._root)

    def wipe(self) -> None:
        """Another disk, with nothing on it, takes the place of this one."""
        self.crashes += 1
        self.replaced += 1
        self.off = False
        self.release_locks()
        self._unsynced.clear()
        self._root = _Directory()

    def copy(self) -> SavedDisk:
        """What is on the disk now, as programs see it."""
        return SavedDisk(_copied(self._root))

    def put_back(self, saved: SavedDisk) -> None:
        """An earlier copy takes the place of this disk, which no process uses."""
        self.wipe()
        self._root = _copied(saved.root)

    def size(self, path: str) -> int:
        """The length of a file as programs see it; 0 if there is none."""
        entry = self._find(path)
        return len(entry.seen) if isinstance(entry, Content) else 0

    def byte(self, path: str, position: int) -> int:
        """One byte of a file as programs see it; -1 where there is none."""
        entry = self._find(path)
        if not isinstance(entry, Content) or position >= len(entry.seen):
            return -1
        return entry.seen[position]

    def put_byte(self, path: str, position: int, value: int) -> None:
        """A byte of a file changes at rest."""
        entry = self._find(path)
        if isinstance(entry, Content):
            entry.put_byte(position, value)

    def flip(self, path: str, bit: int) -> None:
        """One bit of a file flips at rest."""
        self.put_byte(path, bit // 8, self.byte(path, bit // 8) ^ 1 << bit % 8)

    def files_below(self, directory: str) -> list[str]:
        """The paths of all files in a directory and below it, sorted."""
        found = []
        for name in self.names(directory):
            path = f"{directory}/{name}"
            found += self.files_below(path) if self.is_directory(path) else [path]
        return found

    def rot(self, path: str, bit: int) -> Callable[[], int]:
        """One bit of a file flips for who reads it from now on.

        Returns what undoes it, which returns how often it was read.
        """
        entry = self._find(path)
        if not isinstance(entry, Content):
            raise os_error(errno.ENOENT, path)
        entry.rot[bit // 8] = 1 << bit % 8

        def undo() -> int:
            entry.rot.clear()
            return entry.rotten_reads

        return undo

    def charge_sync(self, detail: str) -> None:
        """Adds the time of one sync to what the caller has to wait."""
        self._cost_s += self._random.uniform(SYNC_MIN_S, SYNC_MAX_S) * self.slowness
        self._on_sync(detail)

    def durable(self, path: str) -> dict[str, DurableFile]:
        """The files of a directory by name, in order, as even the worst crash leaves them.

        Empty if the directory itself is not durable.
        """
        here: _Entry | None = self._root
        for name in _parts(path):
            here = here.durable.get(name) if isinstance(here, _Directory) else None
        if not isinstance(here, _Directory):
            return {}
        entries = sorted(here.durable.items())
        return {name: e for name, e in entries if isinstance(e, Content)}

    def take_cost_s(self) -> float:
        """The virtual seconds spent since the last call, for the worker to wait."""
        cost_s, self._cost_s = self._cost_s, 0.0
        return cost_s

    def _crash_below(self, directory: _Directory) -> None:
        directory.seen = dict(directory.durable)
        for name in sorted(directory.seen):
            entry = directory.seen[name]
            if isinstance(entry, _Directory):
                self._crash_below(entry)
            else:
                entry.crash(self._random)

    # Paths

    def _name(self, changes: list[tuple[_Directory, str, _Entry | None]]) -> None:
        for directory, name, entry in changes:
            if entry is None:
                directory.seen.pop(name, None)
            else:
                directory.seen[name] = entry
        self._unsynced.append(_Naming(changes))

    def _find(self, path: str) -> _Entry | None:
        entry: _Entry | None = self._root
        for name in _parts(path):
            if not isinstance(entry, _Directory):
                return None
            entry = entry.seen.get(name)
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._find(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(entry, _Directory):
            raise os_error(errno.ENOTDIR, path)
        return entry

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent), name


def _copied(directory: _Directory) -> _Directory:
    """A copy of all below, of which everything is durable."""
    entries: dict[str, _Entry] = {}
    for name, entry in directory.seen.items():
        if isinstance(entry, _Directory):
            entries[name] = _copied(entry)
        else:
            content = bytearray(entry.seen)
            entries[name] = Content(content, bytearray(content), modified_ms=entry.modified_ms)
    return _Directory(entries, dict(entries))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
