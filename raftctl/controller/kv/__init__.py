"""Key-value store on the metadata log: keys, sessions with ephemeral keys, and locks.

A key's version is the offset of the record that set it, so versions grow over all keys and
serve as fencing tokens. Writes are put, delete and compare-and-set; reads are linearizable,
since their response waits until this controller has proved that it is still the leader. A
session owns ephemeral keys and places in the queues for locks. It closes on request or when
it is silent for its timeout. The holder of a lock is the first in its queue; a guarded write
names that holder's token and is refused when another session holds the lock.

Invariants: whatever a session owns goes in the batch that closes it; tokens of a lock grow
from holder to holder; only the active controller expires a session, by a record; keys and
values take at most `kv.max.bytes`. A write is never repeated on the caller's behalf, since a
put that is applied again would undo a later one.

The package must not know HTTP, watches or the clients' retries. Deadlines of sessions are
soft state: a new active controller gives each session its full timeout.

Sources: ZooKeeper's sessions and ephemeral nodes; etcd's leases, revisions and locks.
"""

from raftctl.controller.kv._kv_control import handle_kv, handle_puts
from raftctl.controller.kv._kv_coordination import KvCoordination

__all__ = [
    "KvCoordination",
    "handle_kv",
    "handle_puts",
]
