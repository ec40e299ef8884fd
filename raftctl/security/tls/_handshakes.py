"""The handshakes of a node: their work is done off the event loop, their number is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from raftctl.errors import invariant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from raftctl.runtime.api import Runtime, Worker

T = TypeVar("T")
HANDSHAKES_MAX = 1_000
"""Connections that may be in their handshake at once."""
HANDSHAKE_S = 10.0
"""How long a handshake may take, from the connection on."""
WORKERS = 2


class Shaking(Protocol):
    """A connection in its handshake."""

    def end(self, reason: str) -> None:
        """Close the connection, with the reason in the log."""


class Handshakes:
    """Steps of handshakes, on a few threads; OpenSSL gives up the interpreter's lock for them.

    A step is what can be done with the bytes that are there, so a silent peer holds no thread. Who
    has been waited for the longest goes when there are too many: peers that mean well take a
    round trip or two.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._workers: list[Worker] = []
        """None before the first handshake: most nodes have no TLS."""
        self._next = 0
        self._waiting: dict[Shaking, None] = {}
        """Those whose peer is waited for, the longest first."""
        self._stepping: set[Shaking] = set()
        self.is_closed = False
        """Whether no further step is made: the node stops."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._stepping)

    def wait(self, shaking: Shaking) -> None:
        """Count one in, or on: its peer is to send something."""
        self._stepping.discard(shaking)
        self._waiting.pop(shaking, None)
        if len(self) >= HANDSHAKES_MAX and self._waiting:
            slowest = next(iter(self._waiting))
            self.forget(slowest)
            slowest.end("it was slow in its TLS handshake, and many others wait")
        self._waiting[shaking] = None

    def step(self, shaking: Shaking, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a step of a handshake on a worker."""
        invariant(shaking not in self._stepping, "a handshake makes one step at a time")
        self._waiting.pop(shaking, None)
        self._stepping.add(shaking)
        return self.run(call)

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run what may take long on a worker."""
        if not self._workers:
            self._workers = [self._runtime.worker(f"tls-{n}") for n in range(WORKERS)]
        self._next = (self._next + 1) % WORKERS
        return self._workers[self._next].submit(call)

    def forget(self, shaking: Shaking) -> None:
        """Count one out: its handshake is over."""
        self._waiting.pop(shaking, None)
        self._stepping.discard(shaking)

    def close(self) -> None:
        """End the handshakes that wait, and stop the workers after what is queued."""
        self.is_closed = True
        for shaking in list(self._waiting):
            shaking.end("the node stops")
        for worker in self._workers:
            worker.close()
