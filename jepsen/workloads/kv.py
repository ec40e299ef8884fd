"""Workloads of keys and values: a register per key, a growing set, a lock, watches.

A lock has fencing tokens. Watched keys change all the time; each watch is ended and resumed again
and again.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability, check_lock, check_set_full, check_watch
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.registry import linearizable
from jepsen.client import Client, Completion, failed, ok, unknown
from jepsen.environments import KeyValueError
from jepsen.generator import ConcurrentKeys, Rounds
from jepsen.generator.combinators import (
    Cycle,
    Limit,
    Mix,
    Stagger,
    Then,
    UntilOk,
    each_thread,
    once,
    phases,
    reserve,
)
from jepsen.generator.core import Endless, Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from jepsen.environments import Change, Environment, KeyValues
    from jepsen.generator.core import Context, Generator
    from jepsen.history import Op


VALUES = 5
TIMEOUT_S = 2.0
SESSION_S = 3.0
THREADS_PER_KEY = 2
SET_PREFIX = "set/"
LOCK = "lock"
GUARDED = "guarded"


class KvClient(Client):
    """Operations on keys; what the client's library says is certain, is."""

    def __init__(self, connection: KeyValues) -> None:
        self.connection = connection
        self.does: dict[str, Callable[[Op], Awaitable[Completion]]] = {}

    async def open(self) -> None:
        await self.connection.open()

    async def close(self) -> None:
        await self.connection.close()

    async def invoke(self, op: Op) -> Completion:
        try:
            return await self.does[op.f](op)
        except KeyValueError as error:
            made = failed if error.certain else unknown
            return made(op.value, str(error))


class RegisterClient(KvClient):
    """`read`, `write` and `cas` of numbers."""

    def __init__(self, connection: KeyValues) -> None:
        super().__init__(connection)
        self.does = {"read": self._read, "write": self._write, "cas": self._cas}

    async def _read(self, op: Op) -> Completion:
        found = await self.connection.read(f"register/{op.key}")
        return ok(None if found is None else int(found))

    async def _write(self, op: Op) -> Completion:
        await self.connection.write(f"register/{op.key}", b"%d" % op.value)
        return ok(op.value)

    async def _cas(self, op: Op) -> Completion:
        expected, new = (b"%d" % number for number in op.value)
        done = await self.connection.cas(f"register/{op.key}", expected, new)
        return ok(op.value) if done else failed(op.value)


class SetClient(KvClient):
    """`add` of an element, which is a key; `read` of all, a page after the other."""

    def __init__(self, connection: KeyValues) -> None:
        super().__init__(connection)
        self.does = {"add": self._add, "read": self._read}

    async def _add(self, op: Op) -> Completion:
        await self.connection.write(f"{SET_PREFIX}{op.value:08d}", b"")
        return ok(op.value)

    async def _read(self, op: Op) -> Completion:
        return ok([int(key) for key in await self.connection.keys(SET_PREFIX)])


class LockClient(KvClient):
    """`acquire`, `write` under the lock, `release`."""

    def __init__(self, connection: KeyValues) -> None:
        super().__init__(connection)
        self._token = -1
        self.does = {"acquire": self._acquire, "write": self._write, "release": self._release}

    async def _acquire(self, op: Op) -> Completion:
        self._token = await self.connection.acquire(LOCK, SESSION_S)
        return ok(self._token)

    async def _write(self, op: Op) -> Completion:
        """Also after the lock is lost, as a client that was held up would."""
        if self._token < 0:
            return failed(None, "it never had the lock")
        await self.connection.write_guarded(GUARDED, b"%d" % self._token, LOCK, self._token)
        return ok(self._token)

    async def _release(self, op: Op) -> Completion:
        await self.connection.release()
        return ok(self._token)


def _clients_of(
    kind: Callable[[KeyValues], Client],
) -> Callable[[Environment, int, random.Random], Client]:
    def client(environment: Environment, process: int, rng: random.Random) -> Client:
        return kind(environment.kv_client(TIMEOUT_S, rng))

    return client


# --- register -------------------------------------------------------------------------------------


def _any_register_op(context: Context) -> Todo:
    f = context.random.choice(("read", "read", "write", "cas"))
    value = context.random.randrange(VALUES)
    if f == "cas":
        return Todo(f, [context.random.randrange(VALUES), value])
    return Todo(f, None if f == "read" else value)


def _register_ops(key: int, count: int, barrier_every: int) -> Generator:
    endless = Endless(_any_register_op)
    return Limit(count, Rounds(Limit(barrier_every, endless)) if barrier_every else endless)


def register(options: WorkloadOptions) -> Workload:
    """Reads, writes and compare-and-sets of keys; each key must be linearizable."""
    of_key = partial(_register_ops, count=options.ops_per_key, barrier_every=options.barrier_every)
    threads = min(THREADS_PER_KEY, options.concurrency)
    return Workload(
        "register",
        _clients_of(RegisterClient),
        ConcurrentKeys(threads, of_key),
        {
            "linearizable": linearizable(Register(failed_cas_observes=True)),
            "availability": check_availability,
        },
    )


# --- set ------------------------------------------------------------------------------------------


def _add(number: int) -> Todo:
    return Todo("add", number)


def set_workload(options: WorkloadOptions) -> Workload:
    """Elements are added, each as a key; a listing has every one that was there before it began."""
    adders = max(1, options.concurrency - 1)
    reads = Stagger(0.5, Cycle(once("read")))
    return Workload(
        "set",
        _clients_of(SetClient),
        reserve(adders, Numbered(_add), reads) if options.concurrency > 1 else _adds_and_reads(),
        {"set": check_set_full, "availability": check_availability},
        final=UntilOk(Cycle(once("read"))),
    )


def _adds_and_reads() -> Generator:
    return Mix((Numbered(_add), Cycle(once("read"))))


# --- lock -----------------------------------------------------------------------------------------


def lock(options: WorkloadOptions) -> Workload:
    """Take a lock, write under it with its token, and give it back; tokens must fence."""
    turn = Then((once("acquire"), *[once("write")] * 2, once("release")))
    return Workload(
        "lock",
        _clients_of(LockClient),
        each_thread(Cycle(turn)),
        {"lock": partial(check_lock, guarded=True), "availability": check_availability},
    )


# --- watches --------------------------------------------------------------------------------------


PREFIX = "watch/"
KEYS = 5
DELETES_EVERY = 7
WATCHES_S = (0.2, 1.0, 3.0)
"""How long a watch lasts before it is ended and taken up again."""
ANEW_CHANCE = 1 / 16
DRAIN_S = 8.0
LAST_VALUES = 1_000_000_000


class WatchClient(KvClient):
    """`put` and `delete` of keys; `watch` from where the last watch was; `drain` to the end.

    A process watches from the beginning of the log, or from a list of the keys on; after a refusal,
    as where the log does not reach back so far, from another list.
    """

    def __init__(self, connection: KeyValues, process: int) -> None:
        super().__init__(connection)
        self._next: int | None = None if process % 2 else 0
        self.does = {
            "put": self._put,
            "delete": self._delete,
            "watch": self._watch,
            "drain": self._drain,
        }

    async def _put(self, op: Op) -> Completion:
        _, key, value = op.value
        return ok([await self.connection.write(f"{PREFIX}{key}", b"%d" % value), key, value])

    async def _delete(self, op: Op) -> Completion:
        _, key, _ = op.value
        version = await self.connection.delete(f"{PREFIX}{key}")
        return failed(op.value) if version is None else ok([version, key, None])

    async def _watch(self, op: Op) -> Completion:
        if self._next is None or op.value == "anew":
            return ok(await self._list())
        return ok(await self._events(self._next, op.value, None))

    async def _drain(self, op: Op) -> Completion:
        """Up to the newest change that there is when it begins."""
        _, keys = await self.connection.listed(PREFIX)
        newest = max((change.version for change in keys), default=-1)
        begin = self._next or 0
        if begin > newest:
            return ok({"from": begin, "events": []})
        seen = await self._events(begin, DRAIN_S, newest)
        if (self._next or 0) <= newest:
            return failed(None, f"version {newest} was not seen in time")
        return ok(seen)

    async def _list(self) -> dict[str, Any]:
        at, keys = await self.connection.listed(PREFIX)
        self._next = at + 1
        return {"at": at, "keys": [_event_of(change) for change in keys]}

    async def _events(self, begin: int, seconds: float, until: int | None) -> dict[str, Any]:
        """What comes in that time, or up to a version; the next watch begins after it."""
        events: list[Any] = []
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self.connection.changes(PREFIX, begin)) as changes,
            ):
                async for change in changes:
                    events.append(_event_of(change))
                    self._next = change.version + 1
                    if until is not None and change.version >= until:
                        break
        except TimeoutError:
            pass
        except KeyValueError:
            self._next = None
            raise
        return {"from": begin, "events": events}


def _event_of(change: Change) -> list[Any]:
    value = None if change.value is None else int(change.value)
    return [change.version, change.key.removeprefix(PREFIX), value]


def _change(number: int) -> Todo:
    key = str(number % KEYS)
    if number % DELETES_EVERY == DELETES_EVERY - 1:
        return Todo("delete", [None, key, None])
    return Todo("put", [None, key, number])


def _watch(context: Context) -> Todo:
    if context.random.random() < ANEW_CHANCE:
        return Todo("watch", "anew")
    return Todo("watch", context.random.choice(WATCHES_S))


def _client(environment: Environment, process: int, rng: random.Random) -> WatchClient:
    return WatchClient(environment.kv_client(TIMEOUT_S, rng), process)


def _changes_and_watches(concurrency: int) -> Generator:
    changes, watches = Numbered(_change), Endless(_watch)
    if concurrency == 1:
        return Mix((changes, watches))
    return reserve(concurrency // 2, changes, watches)


def watch(options: WorkloadOptions) -> Workload:
    """Half of the threads change keys, half watch them; at the end all watch to the end."""
    last = UntilOk(Numbered(_last))
    return Workload(
        "watch",
        _client,
        _changes_and_watches(options.concurrency),
        {"watch": check_watch, "availability": check_availability},
        final=phases(last, each_thread(UntilOk(Cycle(once("drain"))))),
    )


def _last(number: int) -> Todo:
    return Todo("put", [None, "0", LAST_VALUES + number])
