"""A file that holds a descriptor only while it has contents.

A broker may have tens of thousands of empty replicas. With a descriptor for each of their indexes
it would run out of descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.runtime.api import Buffer, File, FileSystem


class LazyFile:
    """The operations that an index needs. An empty file exists on disk, but is not open."""

    def __init__(self, files: FileSystem, path: str, *, create: bool = True) -> None:
        """Raises FileNotFoundError unless the file exists or `create`."""
        self._files = files
        self._path = path
        self._file: File | None = files.open(path, create=create)
        if self._file.size() == 0:
            self._file.close()
            self._file = None

    def moved(self, path: str) -> None:
        """Note the new path of the file."""
        self._path = path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end."""
        if self._file is None:
            # It is there. Were its directory gone, and another there by now, nothing may be made.
            self._file = self._files.open(self._path)
        self._file.append(buffers)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return b"" if self._file is None else self._file.read_at(position, size)

    def warm(self, position: int, size: int) -> Callable[[], None] | None:
        """See `File.warm`."""
        return None if self._file is None else self._file.warm(position, size)

    def size(self) -> int:
        """Return the length in bytes."""
        return 0 if self._file is None else self._file.size()

    def truncate(self, size: int) -> None:
        """Cut the file; an empty one stays so."""
        if self._file is not None:
            self._file.truncate(size)

    def sync(self) -> None:
        """Make the contents durable; blocks."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Release the descriptor."""
        if self._file is not None:
            self._file.close()
