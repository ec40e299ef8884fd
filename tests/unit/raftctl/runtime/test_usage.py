"""What a real process says of itself, and how long its event loop has waited."""

from __future__ import annotations

import asyncio
import gc
import io
import time

import pytest

from raftctl.runtime._collector import Collector
from raftctl.runtime.real import RealRuntime

pytestmark = pytest.mark.req("O1")


def test_waiting_is_idle_and_working_is_not() -> None:
    runtime = RealRuntime(io.StringIO())
    assert runtime.idle_s() is None, "no event loop of its own"

    async def idle_of(work_s: float, wait_s: float) -> float:
        before = runtime.idle_s()
        end_s = time.perf_counter() + work_s
        for _ in iter(lambda: time.perf_counter() < end_s, False):
            await asyncio.sleep(0)
        await asyncio.sleep(wait_s)
        after = runtime.idle_s()
        assert before is not None
        assert after is not None
        return after - before

    with asyncio.Runner(loop_factory=runtime.new_event_loop) as runner:
        assert 0.04 < runner.run(idle_of(0.0, 0.05)) < 0.5
        assert runner.run(idle_of(0.05, 0.0)) < 0.02
    runtime.close()


def test_usage_is_that_of_this_process() -> None:
    runtime = RealRuntime(io.StringIO())
    before = runtime.usage()
    assert before.resident_bytes > 1_000_000
    assert before.virtual_bytes >= before.resident_bytes
    assert 0 < before.open_files < before.open_files_max
    assert before.threads >= 1
    assert before.started_s < time.time()
    with open(__file__):
        assert runtime.usage().open_files == before.open_files + 1
    end_s = time.process_time() + 0.05
    while time.process_time() < end_s:
        pass
    assert runtime.usage().cpu_s > before.cpu_s
    runtime.close()


def test_collections_are_counted_and_timed_by_generation() -> None:
    runtime = RealRuntime(io.StringIO())
    ticks = iter(range(1_000_000))
    collector = Collector(lambda: float(next(ticks)))
    collector.start()
    try:
        before = runtime.usage().collections
        gc.collect()
        after = runtime.usage().collections
    finally:
        collector.stop()
    assert after[2].number == before[2].number + 1
    assert after[2].seconds == before[2].seconds + 1
    runtime.close()
