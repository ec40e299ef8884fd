"""Kernel of the simulator: the event loop, processes, clocks and the trace.

The loop decides which handle runs next and how far virtual time jumps when none is ready.
Handles run in the order in which they became ready, timers in the order of their time and then
of their creation. Nothing else has a part in the order.

Each handle, timer and task runs in a context that names its process. That tag is how a process
is killed, paused or given its own clock although all processes share one loop. Code outside
every process (the network, a scenario) runs with the tag unset.

The kernel knows neither the network nor the disks: both are built on it and are attached to a
node by the world.

Invariants:
* Virtual time never goes backwards.
* No handle of a dead process runs; handles of a paused process wait until it resumes.
* Tasks and futures hash by serial number, because asyncio and libraries iterate over sets of
  them.
* Two runs are equal exactly if the digests of their traces are.

Everything here must be cheap to import: `runner.determinism` loads it before it patches the
clocks. Source: clock_gettime(2) for CLOCK_MONOTONIC and CLOCK_BOOTTIME, which differ while a
machine is suspended.
"""

from jepsen.simulator.kernel._loop import START_S, SimLoop, SimTask, complete
from jepsen.simulator.kernel._trace import Trace
from jepsen.simulator.kernel.process import EPOCH_MS, wall_ms

__all__ = [
    "EPOCH_MS",
    "START_S",
    "SimLoop",
    "SimTask",
    "Trace",
    "complete",
    "wall_ms",
]
