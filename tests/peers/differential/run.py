"""Puts scripts to both systems at once, and compares."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from typing import TYPE_CHECKING

from tests.peers.differential.comparing import Difference, differences
from tests.peers.differential.listed import FILE, OPEN, OPEN_FILE, judged, listed
from tests.peers.differential.playing import System, played

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.peers.differential.language import Script


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


def recounted(found: Sequence[Difference]) -> None:
    """Writes how many requests differ into the list, and what the list lacks as open."""
    verdict = judged(found, listed(with_open=False))
    lines, name = [], ""
    for line in FILE.read_text().splitlines():
        name = line[1:-1] if line.startswith("[") else name
        is_count = line.startswith("requests = ") and name in verdict.counted
        lines.append(f"requests = {verdict.counted[name]}" if is_count else line)
    FILE.write_text("\n".join(lines) + "\n")
    where = {
        re.sub(r" v[0-9]+\b", " v*", f"{one.request} | {one.field}") for one in verdict.unlisted
    }
    number = len({one.request for one in verdict.unlisted})
    told = [
        "# Written by `python -m tests.peers.differential --count`.",
        f"[{OPEN}]",
        'reason = "To be mended: `tests/peers/differential/open.toml` names each field."',
        f"requests = {number}",
        "where = [",
        *(f"  {json.dumps(one, ensure_ascii=False)}," for one in sorted(where)),
        "]",
    ]
    OPEN_FILE.write_text("\n".join(told) + "\n")
