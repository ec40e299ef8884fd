"""The seam to the world: the only way to disk, wall clock, randomness, threads and logs.

    api          the protocols: Runtime, FileSystem, File, Worker, Sender
    real         the operating system behind them
    connector    aiohttp connections through the event loop, as the network's seam asks
    lease_clock  the clock that goes on while the machine is suspended
    MemoryDisk   files in memory that lose in a crash what was not synced; for simulations
    MemoryFiles  files in memory up to a limit, for programs that shall leave nothing on disk
    Slices       says when long work on the event loop lets other work have its turn
    Deadline     a timer of the event loop that is set again and again

The network's seam is the asyncio loop itself (`create_connection`, `create_server`), and time
for timeouts is `loop.time()`. All production code runs unchanged on a real machine and in the
deterministic simulation, which implements `api` with a seed.

The package decides how files, workers and clocks behave. It must not know what is stored or
sent. `tests/test_tidy.py` forbids any other module to import `os`, `socket`, `time` or
`threading`.

Invariants:

- Nothing is durable before `sync` of the file, and of its directory for a new name, has
  returned.
- A worker runs its calls one at a time, in the order submitted.
- A lease is counted by a clock that suspension does not stop, and shortened by
  `CLOCK_MARGIN`.

`real` and `connector` are imported by name: they load structlog and aiohttp, which a short
command must not pay for.
"""

from raftctl.runtime._collector import look_now
from raftctl.runtime._deadline import Deadline
from raftctl.runtime._memory import (
    Content,
    Directory,
    MemoryDisk,
    MemoryFile,
    MemoryFiles,
    MemoryRuntime,
    Write,
)
from raftctl.runtime._slices import Slices

__all__ = [
    "Content",
    "Deadline",
    "Directory",
    "MemoryDisk",
    "MemoryFile",
    "MemoryFiles",
    "MemoryRuntime",
    "Slices",
    "Write",
    "look_now",
]
