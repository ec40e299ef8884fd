"""What this process has used, and for how long its event loop has waited.

The loop waits in its selector, so that is where its idle time is measured: once a turn, and only in
turns that have nothing to do. Under load that costs nothing.
"""

from __future__ import annotations

import gc
import selectors
from functools import cache
from typing import TYPE_CHECKING

from raftctl.runtime._collector import Collector
from raftctl.runtime.api import Collections, ProcessUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from psutil import Process


class TimedSelector(selectors.DefaultSelector):
    """The selector of an event loop, which knows how long it has waited."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        super().__init__()
        self._clock = clock
        self.idle_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        began_s = self._clock()
        ready = super().select(timeout)
        self.idle_s += self._clock() - began_s
        return ready


def usage_of_process() -> ProcessUsage:
    """Return what this process has used until now."""
    # A library of some hundredths of a second: a node that nobody scrapes does without.
    import psutil

    process = _this_process()
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
        read_bytes, written_bytes = _disk_bytes(process)
        return ProcessUsage(
            started_s=process.create_time(),
            cpu_s=times.user + times.system,
            resident_bytes=memory.rss,
            virtual_bytes=memory.vms,
            open_files=process.num_fds(),
            open_files_max=process.rlimit(psutil.RLIMIT_NOFILE)[0],
            threads=process.num_threads(),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            collections=_collections(),
        )


@cache
def _this_process() -> Process:
    import psutil

    return psutil.Process()


def _disk_bytes(process: Process) -> tuple[int, int]:
    """Bytes read and written; 0 where a process may not know them."""
    import psutil

    try:
        counters = process.io_counters()
    except psutil.AccessDenied:
        return 0, 0
    return counters.read_bytes, counters.write_bytes


def _collections() -> tuple[Collections, ...]:
    running = Collector.running
    seconds = [0.0] * len(gc.get_stats()) if running is None else running.seconds
    counts = [stats["collections"] for stats in gc.get_stats()]
    return tuple(map(Collections, counts, seconds))
