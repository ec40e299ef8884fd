"""Checkers of replication: whether a cluster's nodes agree with each other and with themselves.

`trace` checks what nodes report while a test runs: leaders, epochs, high watermarks, committed
records and partition assignments. `metadata` replays the metadata logs of stopped nodes and
checks each step of a partition's leader, epochs and ISR. `check_copies` compares the logs of
replicas batch by batch, and `check_replicas` compares dumps record by record.

The package must not know how evidence was collected: from a simulator, from disks or from
dumps.

Invariants that are checked: one leader an epoch; epochs, high watermarks and partition epochs
never decrease; equal offset and epoch mean equal content; a committed record is on every member
of the ISR; a leader is a member of the ISR, unless an unclean election is allowed.

Sources: Raft, figure 3; KIP-101 (leader epochs); KIP-497 (changes of the ISR); KIP-966.
"""

from jepsen.checkers.replication._copies import (
    SHOWN_MAX,
    Compared,
    Copy,
    HeldBatch,
    check_copies,
    check_replicas,
    diverged,
    verdict_of,
)

__all__ = [
    "SHOWN_MAX",
    "Compared",
    "Copy",
    "HeldBatch",
    "check_copies",
    "check_replicas",
    "diverged",
    "verdict_of",
]
