"""The text that the demo writes: the lines of many files, interleaved.

Interleaving keeps every partition busy all the time, as a file is a key and a key is a partition;
the lines of one file stay in order.
"""

from __future__ import annotations

import sysconfig
from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES_MAX = 256 << 10
"""A longer line is cut into several: a record has a largest size."""
_OPEN_FILES = 48
_BLOCK_LINES = 1_000


@dataclass(frozen=True, slots=True)
class Source:
    """Files to read, in order, and the number of lines to take."""

    name: str
    files: tuple[tuple[bytes, Path], ...]
    """(key, path) of each; the key is the file's name."""
    lines: int

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """(key, line with its end) of each line; a few files are open at a time."""
        return islice(_interleaved(self.files), self.lines)


def standard_library(limit: int | None = None) -> Source:
    """Every line of the sources of Python's standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(
        path
        for path in root.rglob("*.py")
        if not {"site-packages", "dist-packages"} & set(path.relative_to(root).parts)
    )
    files = tuple((str(path.relative_to(root)).encode(), path) for path in paths)
    return _source("Python's standard library", files, limit)


def one_file(path: Path, limit: int | None = None) -> Source:
    """Every line of one file; ConfigError if it cannot be read."""
    try:
        return _source(str(path), ((path.name.encode(), path),), limit)
    except OSError as error:
        raise ConfigError(f"--input {path}: cannot be read: {error.strerror}") from None


def _source(name: str, files: tuple[tuple[bytes, Path], ...], limit: int | None) -> Source:
    lines = sum(_count_lines(path) for _, path in files)
    if lines == 0:
        raise ConfigError(f"{name} has no lines: name a text with --input FILE")
    return Source(name, files, lines if limit is None else min(lines, limit))


def _count_lines(path: Path) -> int:
    return sum(1 for _ in _lines(path))


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES_MAX):
            yield line


def _interleaved(files: tuple[tuple[bytes, Path], ...]) -> Iterator[tuple[bytes, bytes]]:
    """One line of each open file in turn; the key of a lone file gets a number every 1,000 lines,
    since a single key would use a single partition.
    """
    if len(files) == 1:
        key, path = files[0]
        for number, line in enumerate(_lines(path)):
            yield b"%s:%d" % (key, number // _BLOCK_LINES), line
        return
    waiting = iter(files)
    running = deque((key, _lines(path)) for key, path in islice(waiting, _OPEN_FILES))
    while running:
        key, lines = running.popleft()
        next_line = next(lines, None)
        if next_line is not None:
            yield key, next_line
            running.append((key, lines))
            continue
        next_file = next(waiting, None)
        if next_file is not None:
            running.append((next_file[0], _lines(next_file[1])))
