"""A file that is created when it is needed, and holds a descriptor only while it has contents.

A broker may have tens of thousands of empty replicas. To create three files for each of them takes
far longer than all else that is done for a new one, and with a descriptor for each the broker would
run out of descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from raftctl.runtime.api import Buffer, File, FileSystem, Piece


class LazyFile:
    """The operations that a segment needs. A file that does not exist is like an empty one."""

    def __init__(self, files: FileSystem, path: str, *, exists: bool) -> None:
        """`exists` is the caller's knowledge; FileNotFoundError if it is wrong."""
        self._files = files
        self._path = path
        self._file: File | None = None
        self.exists = exists
        """True if the file exists on disk."""
        if exists:
            self._file = files.open(path)
            if self._file.size() == 0:
                self._file.close()
                self._file = None

    def create(self) -> None:
        """Create the file, unless it exists."""
        if self.exists:
            return
        file = self._files.open(self._path, create=True)
        try:
            # What stands in a file that was not known is none of this one's.
            invariant(file.size() == 0, "a file that is created is empty")
        finally:
            file.close()
        self.exists = True

    def moved(self, path: str) -> None:
        """Note the new path of the file, whether it exists or not."""
        self._path = path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end of a file that exists."""
        if self._file is None:
            # Were its directory gone, and another there by now, nothing may be made.
            self._file = self._files.open(self._path)
        self._file.append(buffers)

    def write_at(self, position: int, data: Buffer) -> None:
        """See `File.write_at`: of a file that has contents."""
        assert self._file is not None
        self._file.write_at(position, data)

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return b"" if self._file is None else self._file.read_at(position, size)

    def region(self, position: int, size: int) -> Piece:
        """See `File.region`."""
        return b"" if self._file is None else self._file.region(position, size)

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
