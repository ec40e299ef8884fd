"""Has the controllers take snapshots, and measures how long that takes and keeps others waiting."""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from raftctl.metadata.requests import KvPutRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.scale.fleet import Controllers, Pings

FILLING_BYTES = 1024 * 1024 - 1024
FILLING_COUNT = 25
"""Together more than `metadata.log.max.record.bytes.between.snapshots` by default."""
LOOK_S = 0.01
PATIENCE_S = 600.0


def _files(directory: Path) -> dict[str, Path]:
    """The newest whole snapshot in each metadata log under the directory."""
    return {str(one.parent): one for one in sorted(directory.rglob("*.checkpoint"))}


async def measure_snapshot(
    controllers: Controllers, pings: Pings, directory: Path, count: int
) -> dict[str, Any]:
    """Fills the log until `count` controllers have written a new snapshot; then loads one."""
    before = _files(directory)
    for _ in range(FILLING_COUNT):
        await controllers.call(KvPutRequest("filling", bytes(FILLING_BYTES)))
    began = perf_counter()
    pings.longest_ms()
    while len({*_files(directory).items()} - {*before.items()}) < count:
        if perf_counter() - began > PATIENCE_S:
            raise RuntimeError("no new snapshots")
        await asyncio.sleep(LOOK_S)
    figures = {
        "snapshot_write_s": round(perf_counter() - began, 2),
        "snapshot_longest_wait_ms": round(pings.longest_ms(), 1),
    }
    return figures | await _load(min(_files(directory).values()))


async def _load(path: Path) -> dict[str, Any]:
    """In a process of its own, while the cluster rests."""
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
