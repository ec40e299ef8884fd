"""Transactions of appends to logs and reads of whole logs, as Elle takes them.

A key is a partition; its list is what a reader of committed records finds in it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability
from jepsen.checkers.transactions.list_append import check_list_append
from jepsen.generator.combinators import Cycle, UntilOk, once, phases
from jepsen.generator.core import Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads._logs import ABORT, LAST_VALUES, TransactionClient, all_keys, read_to_end
from jepsen.workloads.sessions import create_topic, rules_of, transactional

if TYPE_CHECKING:
    import random

    from jepsen.client import Client, Completion
    from jepsen.environments import Environment
    from jepsen.history import Op
    from jepsen.workloads.sessions import LogSession

VALUES_MAX = 8
"""Of one transaction, at most."""


class ListAppendClient(TransactionClient):
    """`txn`; a process remembers the lists as far as it has read them."""

    def __init__(self, session: LogSession) -> None:
        super().__init__(session)
        self._lists: dict[str, list[int]] = {}
        self._positions: dict[str, int] = {}
        self.does = {"txn": self._txn}

    async def _txn(self, op: Op) -> Completion:
        work = partial(self._all, op.value)
        return await self.in_transaction(op, work, commit=[ABORT] not in op.value)

    async def _all(self, micro: list[Any]) -> list[Any]:
        return [await self._micro(one) for one in micro if one != [ABORT]]

    async def _micro(self, micro: list[Any]) -> list[Any]:
        f, key, value = micro
        if f == "append":
            await self.session.send(key, b"%d" % value)
            return micro
        return [f, key, await self._read(key)]

    async def _read(self, key: str) -> list[int]:
        """The list up to the last stable offset there is now."""
        ends = await self.session.ends([key], committed_only=True)
        positions = {key: self._positions.get(key, 0)}
        found = await read_to_end(self.session, positions, ends)
        known = self._lists.setdefault(key, [])
        known += [value for _, value in found.get(key, [])]
        self._positions |= positions
        return list(known)


def _micros(number: int, keys: int) -> list[Any]:
    """Up to three keys, each read or appended to (every fifth time twice); 1 of 8 aborts.

    No key is read and appended to in one: Kafka shows nobody what is not committed.
    """
    micro: list[Any] = []
    value = number * VALUES_MAX
    for nth in range(min(1 + number % 3, keys)):
        key = str((number + nth) % keys)
        if (number >> nth) % 2:
            micro.append(["r", key, None])
            continue
        count = 2 if number % 5 == 0 else 1
        micro += [["append", key, value + 2 * nth + again] for again in range(count)]
    return [*micro, [ABORT]] if number % 8 == 7 else micro


def _txn(number: int, keys: int) -> Todo:
    return Todo("txn", _micros(number, keys))


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return ListAppendClient(transactional(environment, options, process))


def list_append(options: WorkloadOptions) -> Workload:
    """Append and read in transactions of all threads; at the end one reads every list."""
    reads = [["r", key, None] for key in all_keys(options.keys)]
    last = Numbered(partial(_txn, keys=options.keys), LAST_VALUES)
    return Workload(
        "list-append",
        partial(_client, options),
        Numbered(partial(_txn, keys=options.keys)),
        {
            "list-append": partial(check_list_append, consistency="kafka"),
            "availability": check_availability,
        },
        final=phases(UntilOk(last), UntilOk(Cycle(once("txn", reads)))),
        rules=rules_of(options, has_transactions=True),
        prepare=partial(create_topic, options=options),
    )
