"""What the bench of scale counts as writing, and its table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.bench.scale.leaving import since
from tests.bench.scale.snapshots import Writing
from tests.bench.scale.table import table

if TYPE_CHECKING:
    from pathlib import Path


def test_writing_counts_from_the_first_part_to_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000001-0000000001.checkpoint").touch()
    writing = Writing(tmp_path)
    writing.look()
    assert writing.began is None
    part = tmp_path / "00000000000000000009-0000000001.checkpoint.part"
    part.touch()
    writing.look()
    began = writing.began
    assert began is not None
    writing.look()
    assert writing.began == began
    assert writing.ended is None
    part.rename(part.with_suffix(""))
    writing.look()
    assert writing.ended is not None
    assert writing.ended > began


def test_a_snapshot_that_is_whole_at_the_first_look_began_at_the_look_before(
    tmp_path: Path,
) -> None:
    writing = Writing(tmp_path)
    (tmp_path / "00000000000000000009-0000000001.checkpoint").touch()
    writing.look()
    assert writing.began is not None
    assert writing.ended is not None
    assert writing.began < writing.ended


def test_the_table_has_a_column_for_each_size() -> None:
    rows = [
        {"partitions": 1_000, "rss_mib": [60.5, 58.0], "created_per_s": 30_000},
        {"partitions": 2_000_000, "rss_mib": [950.0, 1_001.0], "created_per_s": 31_000, "late": 1},
    ]
    assert table(rows).splitlines() == [
        "| figure | 1,000 | 2,000,000 |",
        "| --- | --- | --- |",
        "| `rss_mib` | 60.5 | 1,001.0 |",
        "| `created_per_s` | 30,000 | 31,000 |",
        "| `late` |  | 1 |",
    ]


async def test_leaders_that_moved_between_two_looks_had_moved_when_the_broker_was_taken() -> None:
    seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    seen.set_result(12.5)
    unseen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    assert (since(10.0, seen, 15.0), since(10.0, unseen, 15.0)) == (2.5, 5.0)
    assert unseen.cancelled()
