"""How compacted segments take the place of the old ones, so that a crash at any step is harmless.

A compacted segment is written beside the log as `.cleaned` and synced. Renaming its batches' file
to `.swap`, after those of its indexes, is the decision: before it the old segments are the log and
the rest is litter; after it the new one is, and whatever is left of those it replaces is removed,
now or when the log is opened. File systems with a journal keep the order of renames.
It replaces what lies between its base offset and its last batch's end: compaction keeps a batch
there, if need be without records, so that the file itself shows the range. What it replaces may
have an index of aborted transactions; it has none, since the records of these are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.batches.record_batch import HEADER_BYTES, parse_header, shape_problem
from broker.log.segments import aborted_index
from broker.log.segments._segment import FILES, segment_path
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.log.segments._segment import Segment
    from raftctl.runtime.api import FileSystem

CLEANED = ".cleaned"
SWAP = ".swap"


def paths(directory: str, base_offset: int, ending: str) -> list[str]:
    """Return the files of a segment under other names."""
    return [segment_path(directory, base_offset, suffix) + ending for suffix in FILES]


def perform(replaced: Sequence[Segment], new: Segment) -> list[str]:
    """Put a durable segment in the place of others, which it retires; return their files.

    Does not block, and is not durable before the directory is synced.
    """
    # By these two a crash in between is completed: the new file shows what it replaces.
    spans = new.base_offset == replaced[0].base_offset and new.size > 0
    invariant(spans, "a compacted segment begins where the first replaced one does")
    new.rename(SWAP)
    retired = [path for segment in reversed(replaced) for path in segment.retire()]
    new.rename("")
    return retired


def finish(files: FileSystem, directory: str, names: Sequence[str]) -> bool:
    """Complete or undo the swaps that a crash interrupted; blocks.

    `names` are those in the directory; returns whether there are others now.
    """
    litter = [name for name in names if name.endswith(CLEANED)]
    decided = [name for name in names if name.endswith(f".log{SWAP}")]
    for name in decided:
        _complete(files, directory, int(name.partition(".")[0]))
    # Index files of a swap that was not decided, or that has got its batches' file already.
    left = files.names(directory) if decided else names
    litter += [name for name in left if name.endswith(SWAP)]
    for name in litter:
        files.remove(f"{directory}/{name}")
    if litter or decided:
        files.sync_directory(directory)
    return bool(litter or decided)


def _complete(files: FileSystem, directory: str, base_offset: int) -> None:
    new = segment_path(directory, base_offset, "log") + SWAP
    end_offset = _end_offset(files, new)
    for name in files.names(directory):
        stem, _, suffix = name.partition(".")
        # The indexes of the new segment are removed with the old ones: opening rebuilds them.
        if (
            suffix in (*FILES, aborted_index.SUFFIX)
            and stem.isdigit()
            and base_offset <= int(stem) < end_offset
        ):
            files.remove(f"{directory}/{name}")
    files.rename(new, segment_path(directory, base_offset, "log"))


def _end_offset(files: FileSystem, path: str) -> int:
    file = files.open(path)
    position, end_offset = 0, 0
    try:
        while position + HEADER_BYTES <= file.size():
            header = parse_header(file.read_at(position, HEADER_BYTES))
            if shape_problem(header) is not None:
                # Opening will cut here. What the rest replaced stays, and may not follow then.
                break
            position, end_offset = position + header.size, header.next_offset
    finally:
        file.close()
    return end_offset
