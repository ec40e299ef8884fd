"""Simulated disk: a file system that loses in a crash what was not synced.

Contents and names are durable separately, as POSIX defines it. `File.sync` saves the bytes and
the length of a file, but not the name under which it was created. `sync_directory` saves the
names in one directory. A new directory is lost unless its parent is synced too.

A crash decides for each unsynced write whether it survives wholly, in part or not at all,
independently of all others. Of the unsynced changes of names a prefix survives, as with a
journal. Every decision is drawn from the random source of the disk's node.

A disk also injects faults where asked: failing or slow calls, a full disk, hanging writes and a
power cut in the middle of a call. Which fault comes when is decided by `faults`.

Invariants:
* Synced bytes under a synced name survive every crash.
* After a failed sync the unsynced bytes count as lost, even if a later sync succeeds.
* A program sees its own writes at once, whether they are durable or not.

Sources: POSIX fsync; Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014;
Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
"""

from jepsen.simulator.disk._content import DurableFile
from jepsen.simulator.disk._disk import HANGING, PowerCut, SimDisk, endless_room, no_fault

__all__ = [
    "HANGING",
    "DurableFile",
    "PowerCut",
    "SimDisk",
    "endless_room",
    "no_fault",
]
