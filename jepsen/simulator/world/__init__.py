"""A simulated world: nodes with their processes, disks and links, and the run of one scenario.

    with World(seed=7) as world:
        world.run(scenario(world))

A scenario is a coroutine outside every node: it starts processes, breaks things and waits. A
process is a coroutine that receives a `SimRuntime`, which is its random source, wall clock,
disk, worker threads and logger. Unmodified Kafka clients are processes of nodes of their own.

The world decides when a process starts, is killed, paused, resumed or suspended, and when a
node loses its power. It must not know what a process runs: clusters and their properties are
above it.

Invariants:
* `run` raises every exception that no living process handled; a killed process raises nothing.
* The random source of a process derives from the seed, the node's name and the number of the
  process's life. So the draws of one node never shift another's, and no restart repeats a life.
"""

from jepsen.simulator.world._runtime import SimRuntime, stream
from jepsen.simulator.world._world import Failure, World, WorldFailed

__all__ = [
    "Failure",
    "SimRuntime",
    "World",
    "WorldFailed",
    "stream",
]
