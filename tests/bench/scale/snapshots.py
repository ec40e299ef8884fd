"""Has the controllers take snapshots, and measures how long that takes and keeps others waiting."""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from raftctl.metadata.requests.kv import KvPutRequest
from tests.bench.scale.records import longest_stall

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.scale.fleet import Controllers
    from tests.bench.scale.records import WatchedNode

FILLING_BYTES = 1024 * 1024 - 1024
FILLING_COUNT = 25
"""Together more than `metadata.log.max.record.bytes.between.snapshots` by default."""
LOOK_S = 0.005
REST_S = 2.0
PATIENCE_S = 600.0


class Writing:
    """The next snapshot that one controller writes: when it began and when it was there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before = self.newest()
        self._looked = perf_counter()
        self.began: float | None = None
        self.ended: float | None = None

    def newest(self) -> Path | None:
        """The newest whole snapshot."""
        return max(self._directory.glob("*.checkpoint"), default=None)

    def look(self) -> None:
        """To be called often: what is between two looks counts as writing."""
        if self.ended is not None:
            return
        before, self._looked = self._looked, perf_counter()
        there = self.newest() != self._before
        if self.began is None and (there or any(self._directory.glob("*.checkpoint.part"))):
            self.began = before
        if there:
            self.ended = self._looked


async def measure_snapshot(
    controllers: Controllers, nodes: Sequence[WatchedNode]
) -> dict[str, Any]:
    """Fills the log until all controllers have written a new snapshot; then loads one."""
    directories = [node.log_directory() for node in nodes]
    await asyncio.wait_for(_rest(directories), PATIENCE_S)
    writings = [Writing(directory) for directory in directories]
    filling = asyncio.create_task(_fill(controllers))
    await asyncio.wait_for(_all_written(writings), PATIENCE_S)
    await filling
    spans = [(one.began or 0.0, one.ended or 0.0) for one in writings]
    span = min(began for began, _ in spans), max(ended for _, ended in spans)
    stalls = await longest_stall(nodes, span)
    figures = {
        "snapshot_write_s": round(max(ended - began for began, ended in spans), 2),
        **{f"snapshot_write_{key}": one for key, one in stalls.items()},
    }
    newest = writings[0].newest()
    return figures | (await _load(newest) if newest is not None else {})


async def _rest(directories: Sequence[Path]) -> None:
    """Waits until nobody has written a snapshot of what came before for a while."""
    quiet_since = perf_counter()
    while perf_counter() - quiet_since < REST_S:
        if any(any(one.glob("*.checkpoint.part")) for one in directories):
            quiet_since = perf_counter()
        await asyncio.sleep(LOOK_S)


async def _fill(controllers: Controllers) -> None:
    for _ in range(FILLING_COUNT):
        await controllers.call(KvPutRequest("filling", bytes(FILLING_BYTES)))


async def _all_written(writings: Sequence[Writing]) -> None:
    while any(one.ended is None for one in writings):
        for one in writings:
            one.look()
        await asyncio.sleep(LOOK_S)


async def _load(path: Path) -> dict[str, Any]:
    """In a process of its own, while the cluster rests."""
    # By another name: its controller deletes it as soon as there is a newer one.
    kept = path.parents[2] / path.name
    kept.hardlink_to(path)
    try:
        return await _loaded(kept)
    finally:
        kept.unlink()


async def _loaded(path: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.scale.loading",
        str(path),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{path} could not be loaded")
    return {f"snapshot_{key}": value for key, value in json.loads(output).items()}
