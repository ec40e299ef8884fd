"""Who may work beside the clients of records in chaos: on keys, with locks, as administrators.

Each begins with the faults, goes on until all is healed, succeeds then, and is judged: the history
of keys must be linearizable, no two programs may be sure to hold the lock and no token that a newer
one has followed may be written, and what administrators were told must be so.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from jepsen.simulator.properties import Violation
from jepsen.simulator.world import stream
from tests.kit.kv_load import Recorder
from tests.simulation import kv_scenarios, lock_scenarios
from tests.simulation.administrators import Administrators
from tests.simulation.lock_scenarios import GUARDED, Judge, client_of, everything_is_given_back

if TYPE_CHECKING:
    from jepsen.simulator.cluster import SimCluster
    from jepsen.simulator.properties import ImageView
    from jepsen.simulator.world import SimRuntime

LATE = 5
"""So many operations succeed, or locks are given, after everything was healed."""
WORKERS = 3


class Beside(Protocol):
    """Some clients and what they are owed."""

    def begin(self) -> list[asyncio.Future[Any]]:
        """Starts them; returns what comes to an end when nothing goes wrong any more."""

    async def recover(self) -> None:
        """All is healed: each has to succeed, and ends."""

    def judge(self) -> str:
        """Raises AssertionError if they were not served as they have to be; says what was done."""

    def is_asked_for(self, name: str) -> bool:
        """Whether a topic is one of theirs."""


def make_beside(name: str, cluster: SimCluster, duration_ms: int) -> Beside:
    """Those of this name in `jepsen.simulator.swarm.BESIDE`."""
    match name:
        case "keys":
            return KeyClients(cluster)
        case "locks":
            return LockHolders(cluster)
        case "administrators":
            return Administrators(cluster, duration_ms)
    raise ValueError(f"nobody is called {name!r}")


class KeyClients:
    """Two that read, write and compare, and one that reads from one controller alone."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._recorder = Recorder()
        self._stop = asyncio.Event()
        self._clients: list[asyncio.Future[Any]] = []

    def begin(self) -> list[asyncio.Future[Any]]:
        """Over HTTP or the inner RPC: the seed says it."""
        cluster, world = self._cluster, self._cluster.world
        source = stream(world.seed, "keys")
        over_http = source.random() < 0.5
        use = kv_scenarios.use_http if over_http else kv_scenarios.use_controllers
        controllers = len(cluster.controller_names)
        processes = count()
        self._clients = [
            world.start(
                f"keys-{n}", partial(use, cluster, self._recorder, processes, self._stop, n)
            ).done
            for n in (source.randrange(controllers), controllers, controllers + 1)
        ]
        return []

    async def recover(self) -> None:
        """Some more operations, then no more."""
        start = len(self._recorder.history)
        what = "operations on keys succeed after all is healed"
        await lock_scenarios.until(lambda: len(self._recorder.succeeded(start)) > LATE, what)
        self._stop.set()
        await asyncio.gather(*self._clients)

    def judge(self) -> str:
        """Linearizability."""
        self._recorder.assert_linearizable()
        history = self._recorder.history
        return f"keys lines={len(history)} succeeded={len(self._recorder.succeeded())}"

    def is_asked_for(self, name: str) -> bool:
        """Keys are no topics."""
        return False


class Tokens:
    """`no_stale_token_is_written`: in no image is the token older than in the one before."""

    def __init__(self) -> None:
        self._offset = -1
        self._token = 0

    def look(self, view: ImageView) -> None:
        """Some node has a newer image; raises `Violation`."""
        if view.offset <= self._offset:
            return
        self._offset = view.offset
        image: Any = view.image
        entry = image.kv.get(GUARDED)
        if entry is None:
            return
        token = int(bytes(entry.value))
        if token < self._token:
            told = f"{token} at offset {view.offset}, after {self._token}"
            raise Violation("no_stale_token_is_written", told)
        self._token = token


class LockHolders:
    """Workers that hold one lock in turn and write under it, now and then when it is not theirs."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._judge = Judge()
        self._stop = asyncio.Event()
        self._workers: list[asyncio.Future[Any]] = []
        self._judging: asyncio.Future[None] | None = None
        cluster.properties.image_watchers.append(Tokens().look)

    def begin(self) -> list[asyncio.Future[Any]]:
        """Starts them."""
        cluster, judge = self._cluster, self._judge
        self._workers = [
            cluster.world.start(
                name, partial(lock_scenarios.work, cluster, judge, self._stop, name)
            ).done
            for name in (f"worker-{number}" for number in range(WORKERS))
        ]
        self._judging = asyncio.ensure_future(judge.watch())
        return []

    async def recover(self) -> None:
        """The lock goes round, and is given back in the end as everything of their sessions is."""
        enough = self._judge.acquired + LATE
        what = "the lock goes round after all is healed"
        await lock_scenarios.until(lambda: self._judge.has_given(enough), what)
        self._stop.set()
        await asyncio.gather(*self._workers)
        await self._cluster.world.start("lock-judge", self._is_given_back).done

    async def _is_given_back(self, runtime: SimRuntime) -> None:
        async with client_of(self._cluster, runtime) as client:
            await everything_is_given_back(client)

    def judge(self) -> str:
        """Nobody was fooled."""
        if self._judging is not None:
            if self._judging.done():
                self._judging.result()
            self._judging.cancel()
        assert not self._judge.closed_early, self._judge.closed_early
        return f"locks given={self._judge.acquired} refused={self._judge.refused}"

    def is_asked_for(self, name: str) -> bool:
        """Locks are no topics."""
        return False
