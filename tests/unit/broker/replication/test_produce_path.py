"""The path of a Produce through the broker is as short as the documentation says."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from broker.protocol.versions import ApiKey
from broker.server._connection import Connection
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import World
from tests.unit.broker.server.fakes import connected, produce_message

if TYPE_CHECKING:
    from types import FrameType

    import pytest

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/explanation/replication.md"
CALLS_MAX = 38


def documented() -> list[str]:
    """The functions of the table, in its order."""
    section = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| `")]
    return re.findall(r"`([\w.]+)`", " ".join(rows))


async def test_a_produce_takes_the_documented_path(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[list[str]] = []
    """The calls of each turn in which the broker receives bytes."""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            turns[-1].append(frame.f_code.co_qualname)

    received = Connection.buffer_updated

    def traced(self: Connection, nbytes: int) -> None:
        turns.append([])
        sys.setprofile(note)
        try:
            received(self, nbytes)
        finally:
            sys.setprofile(None)

    def batch(sequence: int) -> bytes:
        return make_batch([b"v"], producer_id=9, producer_epoch=0, sequence=sequence)

    async with World(2, listen=True) as world:
        world.create_topic()
        async with connected(world.nodes[1]) as client:
            await client.ask(ApiKey.PRODUCE, 9, produce_message("t", batch(0), -1))
            monkeypatch.setattr(Connection, "buffer_updated", traced)
            client.send(ApiKey.PRODUCE, 9, produce_message("t", batch(1), -1))
            async with asyncio.timeout(20):
                await client.receive(ApiKey.PRODUCE, 9)
    path = documented()
    assert len(path) <= CALLS_MAX
    (calls,) = (turn for turn in turns if "PartitionLog.append_as_leader" in turn)
    left = iter(calls)
    missing = [name for name in path if not any(call.endswith(name) for call in left)]
    assert missing == []
