"""`.no-failed-flush`: a marker file that exists while no flush of a log directory has failed.

After a failed fsync the system treats the pages in its cache as clean: they can be read, and
another fsync succeeds without writing them. The process that opens the logs next must write them
again; the absence of this file says so. Removing a file takes no space on a full disk. The marker
is not synced: a loss of power loses the pages, too (`docs/decisions/0011-failed-flushes.md`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem

NAME = ".no-failed-flush"


def exists(files: FileSystem, path: str) -> bool:
    """Return whether no flush in the log directory has failed since its logs were last opened."""
    return files.exists(f"{path}/{NAME}")


def create(files: FileSystem, path: str) -> None:
    """Create the marker, once everything in doubt has been written again. Blocks."""
    files.open(f"{path}/{NAME}", create=True).close()


def remove(files: FileSystem, path: str) -> None:
    """Remove the marker after a failed flush. Blocks, and never raises.

    An error here would hide that of the flush, which is the one to report.
    """
    with suppress(OSError):
        if exists(files, path):
            files.remove(f"{path}/{NAME}")
