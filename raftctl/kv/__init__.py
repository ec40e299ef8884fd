"""Keys, locks and watches over HTTP, served by every controller (row Q10).

    KvApi        /api/v1/kv: get, put, delete, list, sessions and locks
    KvWatches    watches as lines of JSON, in the order of the log
    KvEventLog   committed changes as events, read from the log
    KvFollower   wakes requests that wait for a key or a lock
    KeyIndex     the keys in order, for listing page by page

Writes and confirmed reads go to the active controller, in at most one hop. Waiting, listing and
watching are served from this node's committed image.

The package decides the HTTP form of requests and errors. It must not decide what a write does,
which the controller does, nor repeat a write: the caller knows what it may repeat.

Invariants:

- A waiting or listing request sees an image that holds everything answered before it arrived.
- A watch misses nothing and repeats nothing; offsets that the log no longer holds are an
  error.
- A lock's waiter is woken when its own turn has come or its place is gone: no herd.
- Nothing is read or written without a right, by rules no older than the request (row S6).
- An error says in `done` whether the write may have been done all the same.

Sources: Chubby (locks, sequencers); etcd v3 (watch from a revision);
`docs/reference/http-kv.md`, `docs/decisions/0016-leases.md`.
"""

from raftctl.http_json import BODY_BYTES_MAX
from raftctl.kv._events import KvEventLog
from raftctl.kv._follower import KvFollower
from raftctl.kv._http import PATH, KvApi
from raftctl.kv._index import KeyIndex
from raftctl.kv._watch import KvWatches

__all__ = [
    "BODY_BYTES_MAX",
    "PATH",
    "KeyIndex",
    "KvApi",
    "KvEventLog",
    "KvFollower",
    "KvWatches",
]
