"""The metadata directory: everything a replica must find again after a crash.

    log/             segments of batches and the recovery point
    snapshots/       checkpoints of the state, whole or being fetched
    _quorum_state    the epoch and the vote
    _format          which cluster, node and directory this is; the first voters and records

The storage decides how bytes are laid out, synced and recovered, and where damage is reported.
It must not know roles, elections or the meaning of records, and it starts no tasks: every
method that blocks is called on the directory's worker.

Invariants:

- Nothing is reported as durable before its fsync, and its directory's, has returned.
- A file appears under its name only when it is whole: written aside, synced, renamed.
- Damage is not an interrupted write: a torn tail is cut, anything else stops the node and
  names the file and the byte (row Q12).

Sources: Kafka's `meta.properties`, `quorum-state` and `.checkpoint` names (KIP-595, KIP-630,
KIP-853, KIP-858); the fsync rules of open(2), fsync(2) and rename(2).
"""

from raftctl.storage._format import (
    BOOTSTRAP,
    METADATA_LOG_NAME,
    MetaProperties,
    load_directories,
    load_first_records,
    write_first_records,
    write_initial_voters,
)
from raftctl.storage._quorum_state import (
    QUORUM_STATE,
    CorruptQuorumStateError,
    QuorumStateStore,
)

__all__ = [
    "BOOTSTRAP",
    "METADATA_LOG_NAME",
    "QUORUM_STATE",
    "CorruptQuorumStateError",
    "MetaProperties",
    "QuorumStateStore",
    "load_directories",
    "load_first_records",
    "write_first_records",
    "write_initial_voters",
]
