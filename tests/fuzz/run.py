"""One run: so many frames, then nothing may be left of them but answers and records."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.fuzz import clients
from tests.fuzz.mutation import generated, mutated
from tests.fuzz.target import Target, fuzzed
from tests.unit.broker.replication.world import TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK_EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run saw."""

    frames: int
    captured: tuple[bytes, ...]
    """The frames of real clients that it began with."""
    seen: dict[str, int]
    memory_bytes: tuple[int, ...]
    """Resident, after the first frames and then after each `CHECK_EVERY`."""


async def fuzz(
    frames: int, seed: int, *, with_clients: bool, progress: Callable[[str], None]
) -> Outcome:
    """Sends the frames; AssertionError if the broker fails, hangs or keeps something."""
    chance = random.Random(seed)
    async with fuzzed() as target:
        known = await clients.captured(target.node.port) if with_clients else []
        captured = tuple(known)
        known += [generated(chance, TOPIC_ID) for _ in range(300)]
        memory = []
        for number in range(frames):
            await target.exchange(_next(known, chance))
            if number % CHECK_EVERY == CHECK_EVERY - 1 or number == min(1_000, frames - 1):
                await target.check_idle()
                memory.append(psutil.Process().memory_info().rss)
                progress(f"{number + 1} frames, {memory[-1] >> 20} MiB, {dict(target.seen)}")
        await finish(target)
        return Outcome(frames, captured, dict(target.seen), tuple(memory))


async def finish(target: Target) -> None:
    """The broker is idle, whole and still answers."""
    await target.check_idle()
    await target.ping()


def _next(known: list[bytes], chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.1:
        return generated(chance, TOPIC_ID)
    frame = chance.choice(known)
    return frame if kind < 0.15 else mutated(frame, chance.choice(known), chance)
