"""Watches of keys that change all the while; each is ended and taken up again, again and again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability, check_watch
from jepsen.client import Completion, failed, ok
from jepsen.environments import KeyValueError
from jepsen.generator.combinators import (
    Cycle,
    Mix,
    UntilOk,
    each_thread,
    once,
    phases,
    reserve,
)
from jepsen.generator.core import Endless, Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads.kv import TIMEOUT_S, KvClient

if TYPE_CHECKING:
    import random

    from jepsen.environments import Change, Environment, KeyValues
    from jepsen.generator.core import Context, Generator
    from jepsen.history import Op

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
        return {"at": at, "keys": [_told(change) for change in keys]}

    async def _events(self, begin: int, seconds: float, until: int | None) -> dict[str, Any]:
        """What comes in that time, or up to a version; the next watch begins after it."""
        events: list[Any] = []
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self.connection.changes(PREFIX, begin)) as changes,
            ):
                async for change in changes:
                    events.append(_told(change))
                    self._next = change.version + 1
                    if until is not None and change.version >= until:
                        break
        except TimeoutError:
            pass
        except KeyValueError:
            self._next = None
            raise
        return {"from": begin, "events": events}


def _told(change: Change) -> list[Any]:
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
