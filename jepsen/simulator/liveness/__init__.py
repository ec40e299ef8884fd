"""Properties that need time: progress, leases, and agreement after the last heal.

Unlike `properties`, which compare two moments of one node, these look at a running cluster
every so often, or wait until a deadline in virtual time.

`Progress`: a majority of voters that run on sound disks and reach each other has a leader that
commits, whatever is done to all others. A leader that has not reached a majority for the time
of check-quorum leads no more.

`Leases`: once any node has published that a broker is fenced, no process of an earlier broker
epoch considers its session live.

`every_node_follows`: within a bounded time after the last fault, every voter, every other
controller and every broker follows the same leader and has published the committed metadata.
Availability alone does not show that: a majority commits even if another node is stuck.

Bounds count in election timeouts of the cluster under test, so that they hold for every
configuration that `swarm` draws.

Sources: KIP-595 (check-quorum) and `docs/decisions/0016-leases.md`.
"""

from jepsen.simulator.liveness._following import FOLLOWS_S, astray, every_node_follows
from jepsen.simulator.liveness._progress import Leases, Progress

__all__ = ["FOLLOWS_S", "Leases", "Progress", "astray", "every_node_follows"]
