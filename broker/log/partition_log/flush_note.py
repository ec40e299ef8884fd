"""`.no-failed-flush`: there while no flush of a log directory has failed.

After an fsync that failed the system takes the pages in its cache for clean: they can be read, and
another fsync succeeds without writing them. Whoever opens the logs next must write them again, and
knows by the absence of this file. To remove one takes no space on the disk. It is not synced: a
loss of power takes the pages away, too (`docs/decisions/0011-failed-flushes.md`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem

NAME = ".no-failed-flush"


def stands(files: FileSystem, path: str) -> bool:
    """Whether no flush in the log directory has failed since its logs were last opened."""
    return files.exists(f"{path}/{NAME}")


def put_up(files: FileSystem, path: str) -> None:
    """What was in doubt has been written again. Blocks."""
    files.open(f"{path}/{NAME}", create=True).close()


def take_down(files: FileSystem, path: str) -> None:
    """A flush has failed. Blocks, and never raises: the error of the flush is what counts."""
    with suppress(OSError):
        if stands(files, path):
            files.remove(f"{path}/{NAME}")
