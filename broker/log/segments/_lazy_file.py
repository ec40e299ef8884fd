"""A file that holds a descriptor only once there is something in it.

A broker may have tens of thousands of replicas that nothing is written to; with a descriptor for
each of their indexes it would run out of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.runtime.api import Buffer, File, FileSystem


class LazyFile:
    """What an index needs of a file. As long as it is empty it is created, but not open."""

    def __init__(self, files: FileSystem, path: str, *, create: bool = True) -> None:
        """FileNotFoundError unless it exists or `create`."""
        self._files = files
        self._path = path
        self._file: File | None = files.open(path, create=create)
        if self._file.size() == 0:
            self._file.close()
            self._file = None

    def moved(self, path: str) -> None:
        """Where the file is to be found from now on."""
        self._path = path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Writes at the end."""
        if self._file is None:
            # It is there. Were its directory gone, and another there by now, nothing may be made.
            self._file = self._files.open(self._path)
        self._file.append(buffers)

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`."""
        return b"" if self._file is None else self._file.read_at(position, size)

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        """See `File.warm`."""
        return None if self._file is None else self._file.warm(position, size)

    def size(self) -> int:
        """The length in bytes."""
        return 0 if self._file is None else self._file.size()

    def truncate(self, size: int) -> None:
        """Cuts the file; an empty one stays so."""
        if self._file is not None:
            self._file.truncate(size)

    def sync(self) -> None:
        """Makes the contents durable; blocks."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Releases the descriptor."""
        if self._file is not None:
            self._file.close()
