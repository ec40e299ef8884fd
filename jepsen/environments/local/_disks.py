"""What goes wrong with the disks of real processes, without a disk of their own.

write_error  every write that makes a file longer fails (EFBIG), as on a disk that is full
truncate     the node is killed, and what it wrote last is not all there
bit_flip     the node is killed, and of what it wrote last a bit is another
wipe         the node is killed, and its disk replaced by an empty one

All but the first are of brokers. What is cut or flipped is in logs that have grown since the
recovery points were noted: what a log has behind its recovery point is checked when the broker
starts, and a broker that was killed is no member of an ISR until it has caught up. A voter's log
is no such thing: Raft counts on what was synced.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITE_ERROR, TRUNCATE, BIT_FLIP, WIPE = "write_error", "truncate", "bit_flip", "wipe"
CUT_BYTES = 1000
FLIPPED_FROM_END = 10
"""Less than any batch of records is long."""
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_METADATA = "__cluster_metadata-0"


def refuse_writes(pid: int) -> None:
    """No file of the process grows from now on."""
    _, most = psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE)
    psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, (0, most))


def allow_writes(pid: int) -> None:
    """Files may grow as they could before."""
    _, most = psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE)
    psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, (most, most))


def damage(data: Path, kind: str) -> list[str]:
    """Damages the logs of a broker that does not run, and says which (paths below `data`)."""
    done = []
    for segment in _grown(data):
        _DAMAGES[kind](segment)
        done.append(str(segment.relative_to(data)))
    return done


def _grown(data: Path) -> Iterator[Path]:
    """The last segment of each log that has grown since the recovery points were noted."""
    points = data / _RECOVERY_POINTS
    noted = points.stat().st_mtime_ns if points.exists() else 0
    for log in sorted(one for one in data.iterdir() if one.is_dir() and one.name != _METADATA):
        segments = sorted(log.glob("*.log"))
        if segments and segments[-1].stat().st_mtime_ns > noted:
            yield segments[-1]


def _cut(segment: Path) -> None:
    with segment.open("r+b") as file:
        file.truncate(max(0, segment.stat().st_size - CUT_BYTES))


def _flip(segment: Path) -> None:
    at = segment.stat().st_size - FLIPPED_FROM_END
    if at < 0:
        return
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


_DAMAGES = {TRUNCATE: _cut, BIT_FLIP: _flip}
