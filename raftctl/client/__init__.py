"""A small async client of keys and values: sessions, locks, elections and watches (row Q10).

    async with raftctl.client.connect("host:9093,host:9093") as client:
        async with client.lock("jobs") as lock:
            await client.put("owner", b"me", guard=lock)

It speaks the HTTP API of the controllers and imports nothing that only a node needs.
"""

from __future__ import annotations

from raftctl.client.client import Client, Entry, Page, connect
from raftctl.client.locks import Holder, Lock
from raftctl.client.session import Session
from raftctl.client.transport import OutcomeUnknownError, RefusedError
from raftctl.client.watch import Event

__all__ = [
    "Client",
    "Entry",
    "Event",
    "Holder",
    "Lock",
    "OutcomeUnknownError",
    "Page",
    "RefusedError",
    "Session",
    "connect",
]
