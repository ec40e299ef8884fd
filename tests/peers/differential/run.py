"""Puts scripts to both systems at once, and compares."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from tests.peers.differential.comparing import Difference, differences
from tests.peers.differential.listed import FILE
from tests.peers.differential.playing import System, played

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.peers.differential.language import Script
    from tests.peers.differential.listed import Judged


def compared(
    kafka: System, ours: System, scripts: Sequence[Script]
) -> tuple[list[Difference], int]:
    """What differs, and how many answers were compared."""
    tag = f"d{uuid.uuid4().hex[:6]}"

    async def play() -> tuple[dict[str, object], dict[str, object]]:
        first = asyncio.create_task(played(kafka, scripts, tag))
        return await played(ours, scripts, tag), await first

    mine, theirs = asyncio.run(play())
    return list(differences(theirs, mine)), len(theirs.keys() | mine.keys())


def recounted(verdict: Judged) -> None:
    """Writes how many requests differ into the list."""
    lines, name = [], ""
    for line in FILE.read_text().splitlines():
        name = line[1:-1] if line.startswith("[") else name
        is_count = line.startswith("requests = ") and name in verdict.counted
        lines.append(f"requests = {verdict.counted[name]}" if is_count else line)
    FILE.write_text("\n".join(lines) + "\n")
