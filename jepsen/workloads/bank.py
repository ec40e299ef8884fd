"""A bank on logs: an account is a partition, a transfer two records in one transaction.

A balance is the sum of an account's records. Money is neither made nor lost if every transaction
shows as a whole or not at all. Some transfers are aborted on purpose after their first half, which
nobody may ever read: readers that could not make their books whole tell of which transfers they
saw a half.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from jepsen.checkers import check_availability, check_bank
from jepsen.client import Completion, failed, ok
from jepsen.generator.combinators import Cycle, Stagger, UntilOk, once, phases, reserve
from jepsen.generator.core import Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads._logs import ABORT, LAST_VALUES, READ_S, TransactionClient, all_keys
from jepsen.workloads.sessions import create_topic, rules_of, transactional

if TYPE_CHECKING:
    import random

    from jepsen.client import Client
    from jepsen.environments import Environment
    from jepsen.generator.core import Generator
    from jepsen.history import Op
    from jepsen.workloads.sessions import LogSession

AMOUNT_MAX = 5
ABORT_EVERY = 4
READ_EVERY_S = 0.5
FINAL = "final"


class BankClient(TransactionClient):
    """`transfer` and `read`."""

    def __init__(self, session: LogSession, accounts: int) -> None:
        super().__init__(session)
        self._accounts = all_keys(accounts)
        self.does = {"transfer": self._transfer, "read": self._read}

    async def _transfer(self, op: Op) -> Completion:
        return await self.in_transaction(op, partial(self._move, op), commit=ABORT not in op.value)

    async def _move(self, op: Op) -> object:
        amount, number = op.value["amount"], op.value["number"]
        await self.session.send(op.value["from"], b"%d %d" % (number, -amount))
        if ABORT not in op.value:
            await self.session.send(op.value["to"], b"%d %d" % (number, amount))
        return op.value

    async def _read(self, op: Op) -> Completion:
        """All that is there when it begins, and what completes a transfer of which a half is.

        The halves of a transaction show at different times, so while others write a reader must
        wait for them. If they do not come it has failed, and reports of which transfers it saw a
        half. At the end it says what it found.
        """
        ends = await self.session.ends(self._accounts, committed_only=False)
        books = _Books(self._accounts)
        await self.session.assign(books.positions)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + READ_S
        while books.lack(ends, halves=op.value == FINAL):
            for account, records in (await self.session.poll()).items():
                for _, body in records:
                    books.note(account, body, late=books.reached(ends))
            books.positions.update(await self.session.positions(self._accounts))
            if loop.time() > deadline_s and books.lack(ends, halves=op.value == FINAL):
                why = f"not whole in time: {books.positions}"
                return failed({"halves": sorted(books.halves)}, why)
        return ok(dict(books.balances))


class _Books:
    """What a reader has seen."""

    def __init__(self, accounts: list[str]) -> None:
        self.positions = dict.fromkeys(accounts, 0)
        self.balances = dict.fromkeys(accounts, 0)
        self.halves: Counter[int] = Counter()
        """Transfers of which one half was seen."""

    def reached(self, ends: dict[str, int]) -> bool:
        """Whether everything up to there was read."""
        return all(self.positions[account] >= end for account, end in ends.items())

    def lack(self, ends: dict[str, int], *, halves: bool) -> bool:
        """Whether they end before that, or (unless `halves` may be there) have half a transfer."""
        return not self.reached(ends) or (bool(self.halves) and not halves)

    def note(self, account: str, body: bytes, *, late: bool) -> None:
        """Counts a record; of what comes late only what completes a transfer."""
        number, amount = map(int, body.split())
        if late and number not in self.halves:
            return
        self.balances[account] += amount
        self.halves[number] += 1
        if self.halves[number] == 2:
            del self.halves[number]


def _transfer(number: int, accounts: int) -> Todo:
    source = number % accounts
    target = (source + 1 + number // accounts % (accounts - 1)) % accounts
    amount = 1 + number % AMOUNT_MAX
    what = {"from": str(source), "to": str(target), "amount": amount, "number": number}
    return Todo(
        "transfer", what | {ABORT: True} if number % ABORT_EVERY == ABORT_EVERY - 1 else what
    )


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return BankClient(transactional(environment, options, process), options.keys)


def _work(options: WorkloadOptions) -> Generator:
    transfers = Numbered(partial(_transfer, accounts=options.keys))
    reads = Stagger(READ_EVERY_S, Cycle(once("read")))
    return reserve(max(1, options.concurrency - 1), transfers, reads)


def bank(options: WorkloadOptions) -> Workload:
    """One thread reads all balances, the others transfer; the sum never changes."""
    last = Numbered(partial(_transfer, accounts=options.keys), LAST_VALUES)
    return Workload(
        "bank",
        partial(_client, options),
        _work(options),
        {
            "bank": partial(check_bank, negative=True, expected=0),
            "availability": check_availability,
        },
        final=phases(UntilOk(last), UntilOk(Cycle(once("read", FINAL)))),
        rules=rules_of(options, has_transactions=True),
        prepare=partial(create_topic, options=options),
    )
