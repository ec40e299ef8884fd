"""Long work lets other work have its turn when a slice is over."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from raftctl.runtime import Slices, _slices

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


async def test_a_slice_is_over_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.undo()
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    slices = Slices()
    assert not slices.is_over()
    now_s += _slices.SLICE_S
    assert slices.is_over()
    assert not slices.is_over(), "the next slice begins with the next step"
    now_s += _slices.SLICE_S / 2
    assert not slices.is_over()


async def test_others_have_their_turn_between_slices(slice_steps: Callable[[int], None]) -> None:
    slice_steps(3)
    steps = turns = 0

    async def work() -> None:
        nonlocal steps
        slices = Slices()
        for _ in range(12):
            steps += 1
            await slices.rest()

    working = asyncio.create_task(work())
    while not working.done():
        before = steps
        await asyncio.sleep(0)
        assert steps - before <= 3
        turns += 1
    assert steps == 12
    assert turns >= 4
