"""An async client of keys and values: sessions, locks, elections and watches (row Q10).

    async with raftctl.client.connect("host:9093,host:9093") as client:
        async with client.lock("jobs") as lock:
            await client.put("owner", b"me", guard=lock)

It speaks the HTTP API of the controllers and imports nothing that only a node needs.

The package decides which controller to ask and what may be asked again. It must not repeat a
write whose outcome is unknown: that is `OutcomeUnknownError`, and the caller decides.

Invariants:

- A lock is held only while its session's lease has not ended by this machine's lease clock,
  which suspension does not stop and which is shortened by a margin.
- A guarded write carries the lock's token, so a holder that was replaced cannot write.
- A watch resumes from the offset after the last event it has yielded.

Sources: Chubby §2 (sequencers); Kleppmann, "How to do distributed locking" (fencing tokens);
`docs/how-to/coordinate.md`.
"""

from __future__ import annotations

from raftctl.client._client import Client, Entry, Expectation, Page, connect
from raftctl.client._locks import Fence, Holder, Lock
from raftctl.client._session import Session
from raftctl.client._transport import OutcomeUnknownError, RefusedError
from raftctl.client._watch import Event

__all__ = [
    "Client",
    "Entry",
    "Event",
    "Expectation",
    "Fence",
    "Holder",
    "Lock",
    "OutcomeUnknownError",
    "Page",
    "RefusedError",
    "Session",
    "connect",
]
