"""Metrics of a node's process and of its event loop.

Names are those of Prometheus' client libraries, and those by which dashboards show a Java process.
What has no counterpart here says the nearest: `jvm_memory_used_bytes` is the resident memory,
`jvm_gc_collection_seconds` the collector of Python, a generation each. Disk bytes are those of the
process alone. Threads of network and requests are one event loop here, so both have its idle share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from raftctl import __version__
from raftctl.metrics import Distribution, Family, Sample, Summary, counter, gauge, single, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.metrics import Metrics
    from raftctl.runtime.api import ProcessUsage

BUILD = gauge("raftctl_build_info", "1; the version of this program is its label.", "version")
CPU = counter("process_cpu_seconds_total", "Seconds of processor time that the process has used.")
STARTED = gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
RESIDENT = gauge("process_resident_memory_bytes", "Bytes of memory that the process occupies.")
VIRTUAL = gauge("process_virtual_memory_bytes", "Bytes of address space of the process.")
FILES = gauge("process_open_fds", "Files and sockets that the process has open.")
FILES_MAX = gauge("process_max_fds", "How many files and sockets the process may have open.")
THREADS = gauge("jvm_threads_current", "Threads of the process.")
MEMORY = gauge(
    "jvm_memory_used_bytes",
    "Bytes of memory that the process occupies, as area heap: this is no Java process.",
    "area",
)
GC = summary(
    "jvm_gc_collection_seconds", "Seconds of Python's garbage collector, by generation.", "gc"
)
GC_COLLECTIONS = counter(
    "python_gc_collections_total", "Collections of Python's garbage collector.", "generation"
)
READ = gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "Bytes that the process has read from disks since its start.",
)
WRITTEN = gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "Bytes that the process has had written to disks since its start.",
)
NETWORK_IDLE = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of time, 0 to 1, in which the event loop waited for something to do: of half a minute.",
)
HANDLERS_IDLE = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "Share of time, 0 to 1, in which the event loop waited for something to do: of a minute.",
)
LAG = summary(
    "raftctl_event_loop_lag_ms",
    "Milliseconds by which a timer of the event loop is late: so long others that are ready wait.",
)
_LAG_INTERVAL_S = 1.0
"""Each look wakes an idle node, which does little else."""
_US = 1_000_000
_MS_OF_US = 0.001
_HALF_MINUTE, _MINUTE = 6, 12
"""In ticks of meters."""


class ProcessMetrics:
    """What the process of one node uses, and how late its event loop is."""

    def __init__(
        self,
        usage: Callable[[], ProcessUsage],
        idle_s: Callable[[], float | None],
        metrics: Metrics,
    ) -> None:
        """To be made on the event loop. `usage` and `idle_s` are those of `Runtime`."""
        self._usage = usage
        self._used: ProcessUsage | None = None
        """As of the newest `look`, if there was one."""
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._idle: deque[tuple[float, float]] = deque(maxlen=_MINUTE + 1)
        """Idle seconds and the time, at the newest ticks."""
        self._lag = Distribution()
        self._timer: asyncio.TimerHandle | None = None
        self.tick()
        metrics.keep(self, self._lag)
        metrics.add(self._collect)

    def start(self) -> None:
        """Look how late timers are, from now on."""
        self._set(self._loop.time() + _LAG_INTERVAL_S)

    def stop(self) -> None:
        """End what `start` began."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Read what the process uses; for a worker before a scrape, as open files may be many."""
        self._used = self._usage()

    def tick(self) -> None:
        """Note how long the event loop has been idle."""
        idle_s = self._idle_s()
        if idle_s is not None:
            self._idle.append((idle_s, self._loop.time()))

    def _set(self, due_s: float) -> None:
        self._timer = self._loop.call_at(due_s, self._look, due_s)

    def _look(self, due_s: float) -> None:
        now_s = self._loop.time()
        self._lag.add(int((now_s - due_s) * _US))
        self._set(now_s + _LAG_INTERVAL_S)

    def _collect(self) -> Iterator[Family]:
        yield Family(BUILD, [Sample((__version__,), 1)])
        yield from _families(self._used or self._usage())
        idle_s = self._idle_s()
        if idle_s is not None:
            now = idle_s, self._loop.time()
            yield single(NETWORK_IDLE, _share(self._idle, _HALF_MINUTE, now))
            yield single(HANDLERS_IDLE, _share(self._idle, _MINUTE, now))
        yield Family(LAG, [Sample((), self._lag.summary(_MS_OF_US))])


def _share(noted: deque[tuple[float, float]], ticks: int, now: tuple[float, float]) -> float:
    """The idle share from some ticks ago, or from the first one, to now; 1 of no time."""
    idle_s, at_s = noted[max(0, len(noted) - 1 - ticks)]
    passed_s = now[1] - at_s
    return min(1.0, (now[0] - idle_s) / passed_s) if passed_s > 0 else 1.0


def _families(usage: ProcessUsage) -> Iterator[Family]:
    yield single(CPU, usage.cpu_s)
    yield single(STARTED, usage.started_s)
    yield single(RESIDENT, usage.resident_bytes)
    yield single(VIRTUAL, usage.virtual_bytes)
    yield single(FILES, usage.open_files)
    yield single(FILES_MAX, usage.open_files_max)
    yield single(THREADS, usage.threads)
    yield Family(MEMORY, [Sample(("heap",), usage.resident_bytes)])
    yield Family(
        GC,
        [
            Sample((f"generation {number}",), Summary(one.number, one.seconds, ()))
            for number, one in enumerate(usage.collections)
        ],
    )
    yield Family(
        GC_COLLECTIONS,
        [Sample((str(number),), one.number) for number, one in enumerate(usage.collections)],
    )
    yield single(READ, usage.read_bytes)
    yield single(WRITTEN, usage.written_bytes)
