"""Disk faults for simulated nodes. A node must stop on a fault and name the damaged file.

A disk error ends the node by itself; it is started again when the disk is well. A bit flips in the
metadata on the disk of a node that was killed: started again it must refuse, naming the file; when
the operator has restored the disk (the bit is flipped back) it starts. It may also have been a bit
that no reader trusts: of a tail that was never durable, which recovery cuts.

A bit may also flip under a node that runs, in bytes written long ago. The node has to find it by a
checksum when it reads them: then it ends, naming the file, or answers with an error. Its answers
and later writes are judged by all other properties, which see the bytes as they were written.

Under a broker's second log directory is a disk of its own. When that fails the broker has to live
on; it takes the directory up again only at its next start.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from jepsen.simulator._errno import os_error
from jepsen.simulator.disk import endless_room, no_fault
from jepsen.simulator.faults._plan import ON_DIRECTORIES
from raftctl.errors import KafkaError
from raftctl.storage import METADATA_LOG_NAME, QUORUM_STATE, CorruptQuorumStateError
from raftctl.storage.log import CorruptLogError
from raftctl.storage.snapshots import CorruptSnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.nemesis.plan import Fault
    from jepsen.simulator.disk import SimDisk
    from jepsen.simulator.kernel.process import Process, SimNode
    from jepsen.simulator.world import World

ERRORS = {
    "sync_error": (errno.EIO, ("sync",)),
    "write_error": (errno.EIO, ("write",)),
    "disk_full": (errno.ENOSPC, ("write", "name")),
    "directory_sync_error": (errno.EIO, ("sync",)),
    "directory_full": (errno.ENOSPC, ("write", "name")),
    "directory_dies": (errno.EIO, ("write", "name", "open", "size", "sync", "sync_directory")),
}
"""Each kind of error with its number and the operations that fail."""
ROTTEN = (".log", ".index")
ENDS = (OSError, KafkaError)
"""The errors with which a node may end whose disk fails."""
REFUSALS = (CorruptLogError, CorruptSnapshotError, CorruptQuorumStateError)
"""The errors with which a node may end whose disk is damaged."""


class DamageUnnoticed(AssertionError):
    """A node runs on what it should have refused, or does not say what is damaged."""


class DirectoryTakesNodeDown(AssertionError):
    """A broker ended by the failure of one of its log directories, while others served."""


@dataclass(frozen=True, slots=True)
class _Flip:
    path: str
    position: int
    damaged: int
    """The byte as it is now."""
    sound: int
    """As it was."""
    replaced: int
    """How many disks the node had had before this one."""

    def is_there(self, disk: SimDisk) -> bool:
        """Whether the damaged byte still stands where it was damaged: on that very disk."""
        return (
            disk.replaced == self.replaced and disk.byte(self.path, self.position) == self.damaged
        )


class _Failing:
    """A disk's seam that lets some operations fail below a directory, and counts them.

    What was read or written before is in memory, so reading goes on: those who watch read, too.
    """

    def __init__(self, kind: str, directory: str = "") -> None:
        self._number, self._operations = ERRORS[kind]
        self._directory = directory
        self.failed = 0

    def __call__(self, operation: str, path: str) -> None:
        if operation in self._operations and f"{path}/".startswith(f"{self._directory}/"):
            self.failed += 1
            raise os_error(self._number, path)


class Filling:
    """A disk's seam for one that has so many bytes left below a directory.

    A write is cut short where they end, and fails. With `again` there is space again from then on,
    as where somebody else has removed something; else what follows fails before its first byte.
    """

    def __init__(self, left: int, directory: str = "", *, again: bool = False) -> None:
        self._left = left
        self._directory = directory
        self._again = again
        self.failed = 0

    def __call__(self, path: str, size: int) -> int:
        """How many of so many more bytes there is room for."""
        if not path.startswith(f"{self._directory}/") or (self._again and self.failed):
            return size
        fits = min(size, self._left)
        self._left -= fits
        self.failed += fits < size
        return fits


def all_fails_below(directory: str) -> Callable[[str, str], None]:
    """Return the seam of a disk of its own under one directory, which has died.

    Bytes read or written before are in memory, so reading goes on: observers read, too.
    """

    def fault(operation: str, path: str) -> None:
        if operation != "read" and (path == directory or path.startswith(f"{directory}/")):
            raise os_error(errno.EIO, path)

    return fault


def syncs_fail_below(directory: str) -> Callable[[str, str], None]:
    """Return the seam of a disk of its own under one directory, which loses what it is to sync."""
    return _Failing("directory_sync_error", directory)


class DiskFaults:
    """Does the faults of disks, and undoes them."""

    def __init__(
        self,
        world: World,
        data: str,
        *,
        start: Callable[[str], None],
        serves: Callable[[str], bool],
        power_off: Callable[[str], None],
        second: str | None = None,
        serves_logs: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`data` is the directory of each node; `serves` returns whether a node has recovered.

        `second` is another log directory of each broker, on a disk of its own; `serves_logs`
        returns whether a broker has opened its log directories.
        """
        self._world = world
        self._data = data
        self._directory = f"{data}/{METADATA_LOG_NAME}"
        self._start = start
        self._serves = serves
        self._power_off = power_off
        self._second = second
        self._serves_logs = serves_logs
        self._struck: dict[str, Process] = {}
        """The brokers that served when one of their log directories began to fail."""
        self._faulty: dict[str, Fault] = {}
        """The fault that each disk suffers from."""
        self._flips: dict[str, _Flip] = {}
        self._rotten: dict[str, tuple[str, Callable[[], int]]] = {}
        """The file in which a bit has flipped of each node that runs, and how to undo that."""

    def may_begin(self, fault: Fault) -> bool:
        """Return True for one fault of a disk at a time, on a node that runs."""
        node = self._world.node(fault.nodes[0])
        if fault.kind in ON_DIRECTORIES and not self._serves_logs(node.name):
            return False
        return node.name not in self._faulty and node.process is not None and node.process.running

    def begin(self, fault: Fault) -> None:
        """Fail the disk of the fault's node, replace it by an empty one, or flip a bit."""
        (name,) = fault.nodes
        node = self._world.node(name)
        self._faulty[name] = fault
        if fault.kind == "wipe":
            self._power_off(name)
            self._world.wipe(name)
        elif fault.kind == "bit_flip":
            self._flip(node, fault.amount)
        elif fault.kind == "bit_rot":
            self._rot(node, fault.amount)
        elif fault.kind in ON_DIRECTORIES:
            self._fail_directory(node, fault)
        elif fault.kind == "disk_fills":
            node.forgiven = ENDS
            node.disk.room = _filling(fault.amount)
        else:
            node.forgiven = ENDS
            node.disk.fault = _Failing(fault.kind)

    def end(self, fault: Fault) -> None:
        """Heal the disk, and run its node again unless something else keeps it down."""
        (name,) = fault.nodes
        node = self._world.node(name)
        del self._faulty[name]
        self._check_struck(name)
        seams = node.disk.fault, node.disk.room
        node.disk.fault, node.disk.room = no_fault, endless_room
        failed = any(isinstance(one, _Failing | Filling) and one.failed for one in seams)
        if failed and node.process is not None:
            # It may not have heard of the error yet, or stand still.
            self._world.kill(name)
        if name in self._flips:
            self._judge(node, self._flips.pop(name))
        if name in self._rotten:
            path, undo = self._rotten.pop(name)
            self._world.trace.add(name, "bit_rot", f"{path} was read {undo()} times")
            self._check_named(node, path)
        node.forgiven = ()
        if node.process is None:
            self._start(name)

    # --- log directories ------------------------------------------------------------------------

    def _fail_directory(self, node: SimNode, fault: Fault) -> None:
        if self._second is None or node.process is None:
            return
        self._struck[node.name] = node.process
        # Who is started meanwhile may refuse to.
        node.forgiven = ENDS
        if fault.kind == "directory_fills":
            node.disk.room = _filling(fault.amount, self._second)
        else:
            node.disk.fault = _Failing(fault.kind, self._second)

    def _check_struck(self, name: str) -> None:
        process = self._struck.pop(name, None)
        if process is None or not process.done.done() or process.terminating:
            return
        error = process.done.exception()
        if isinstance(error, ENDS):
            raise DirectoryTakesNodeDown(f"{name} ended: {error!r}")

    # --- bits that flip -------------------------------------------------------------------------

    def _flip(self, node: SimNode, where: float) -> None:
        """Flips a bit of what recovery reads: `where` is 0 at its start and 1 at its end."""
        disk = node.disk
        self._world.kill(node.name)
        sizes = {path: disk.size(path) for path in self._read_at_start(disk)}
        bit = int(where * sum(sizes.values()) * 8)
        for path, size in sizes.items():
            if bit < size * 8:
                sound = disk.byte(path, bit // 8)
                disk.flip(path, bit)
                flip = _Flip(path, bit // 8, disk.byte(path, bit // 8), sound, disk.replaced)
                self._flips[node.name] = flip
                self._world.trace.add(node.name, "bit_flip", f"{path} byte={bit // 8}")
                break
            bit -= size * 8
        node.last_error = None
        node.forgiven = REFUSALS
        self._start(node.name)

    def _check_named(self, node: SimNode, path: str) -> None:
        error = node.last_error if node.process is None else None
        if error is not None and path not in str(error):
            raise DamageUnnoticed(f"{node.name} says {error!r} of {path}")

    def _rot(self, node: SimNode, where: float) -> None:
        """Flips a bit in one of the files that are complete, each as likely; `where` says which."""
        disk = node.disk
        files = [path for path in _complete_files(disk.files_below(self._data)) if disk.size(path)]
        if not files:
            return
        place = where * len(files)
        path = files[int(place)]
        bit = int(place % 1 * disk.size(path) * 8)
        node.last_error = None
        node.forgiven = REFUSALS
        self._rotten[node.name] = path, disk.rot(path, bit)
        self._world.trace.add(node.name, "bit_rot", f"{path} byte={bit // 8}")

    def _read_at_start(self, disk: SimDisk) -> list[str]:
        """The vote, the segments and the newest snapshot; others are read when they are needed."""
        names = disk.names(self._directory) if disk.is_directory(self._directory) else []
        snapshots = [name for name in names if name.endswith(".checkpoint") and name[0].isdigit()]
        read = [name for name in names if name.endswith(".log") or name == QUORUM_STATE]
        return [f"{self._directory}/{name}" for name in [*read, *snapshots[-1:]]]

    def _judge(self, node: SimNode, flip: _Flip) -> None:
        """A node that ended has named the file; one that runs has got rid of the damage."""
        there, serves = flip.is_there(node.disk), self._serves(node.name)
        # Without an error something else has ended it, perhaps before it had read anything.
        self._check_named(node, flip.path)
        if node.process is not None:
            if serves and there:
                raise DamageUnnoticed(f"{node.name} runs on {flip}")
            self._world.kill(node.name)
        if there:
            node.disk.put_byte(flip.path, flip.position, flip.sound)


def _filling(amount: float, directory: str = "") -> Filling:
    return Filling(int(amount), directory, again=int(amount) % 2 == 1)


def _complete_files(paths: list[str]) -> list[str]:
    """Segments that are not the last of their log, their indexes, and snapshots."""
    segments = [path for path in paths if path.endswith(".log")]
    closed = {
        one.removesuffix(".log")
        for one, following in pairwise(segments)
        if one.rpartition("/")[0] == following.rpartition("/")[0]
    }
    return [
        path
        for path in paths
        if path.endswith(".checkpoint")
        or (path.endswith(ROTTEN) and path[: path.rindex(".")] in closed)
    ]
