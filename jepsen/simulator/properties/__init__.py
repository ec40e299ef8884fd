"""Safety properties of a whole cluster, checked after every step of every node.

A property is a named function. It compares a view of one node or replica before and after a
step with the history so far, and returns a complaint or None. The first complaint raises
`Violation` and ends the run with the property's name.

Views keep properties apart from nodes: `_watch` alone knows how nodes are built. It reads them
after each step of their process, and first compares the few numbers that every relevant change
moves. Properties must not know the simulator, so they hold for any cluster that can be
observed.

    _invariants              the quorum and its metadata: terms, votes, commits, images, queues
    _partition_invariants    high watermark, leader epochs, ISR and ELR of partitions
    _producer_id_invariants  each producer id is handed out once
    _snapshot_invariants     a snapshot equals the replay of the log that it replaces
    _properties              all of them; outcomes that clients got hold in images

`Recorder` writes the same views down as a server trace, which `jepsen.checkers.replication` judges.

Invariants:
* Views are read from memory and disk, so observing a run does not change it.
* A committed record is remembered for ever.

Sources: Raft figure 3; KIP-101, KIP-497, KIP-595, KIP-730, KIP-853 and KIP-966.
"""

from jepsen.simulator.properties._invariants import ImageView, Violation
from jepsen.simulator.properties._properties import Properties, Register
from jepsen.simulator.properties._recorder import Recorder
from jepsen.simulator.properties._watch import Watcher, check_left_behind, quorum_history

__all__ = [
    "ImageView",
    "Properties",
    "Recorder",
    "Register",
    "Violation",
    "Watcher",
    "check_left_behind",
    "quorum_history",
]
