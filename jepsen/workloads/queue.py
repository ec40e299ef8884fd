"""Jepsen's Kafka workload: sends and polls of partitions, with consumers that assign themselves.

In `queue-txn` both happen in transactions, some of which are aborted on purpose.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability
from jepsen.checkers.kafka import check_kafka
from jepsen.client import Completion, failed, ok, unknown
from jepsen.generator.combinators import Cycle, UntilOk, once, phases, reserve
from jepsen.generator.core import Endless, Numbered, Todo
from jepsen.history import OpType
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads._logs import (
    ABORT,
    LAST_VALUES,
    Pairs,
    TransactionClient,
    all_keys,
    pairs_of,
    read_to_end,
    send_of,
)
from jepsen.workloads.sessions import (
    LogSession,
    SessionError,
    create_topic,
    rules_of,
    session,
    transactional,
)

if TYPE_CHECKING:
    import random

    from jepsen.client import Client
    from jepsen.environments import Environment
    from jepsen.generator.core import Context
    from jepsen.history import Op

ASSIGN_CHANCE = 1 / 32
ASSIGN_EVERY = 16
SENDS_MAX = 3


class QueueClient(TransactionClient):
    """`send`, `poll`, `txn` (of both), `assign`, and `final-poll` of everything."""

    def __init__(self, session: LogSession, keys: int) -> None:
        super().__init__(session)
        self._keys = all_keys(keys)
        self._positions: dict[str, int] = {}
        self.does = {
            "send": self._send,
            "poll": self._poll,
            "txn": self._txn,
            "assign": self._assign,
            "final-poll": self._final_poll,
        }

    async def _send(self, op: Op) -> Completion:
        sent: list[Any] = []
        for f, key, value in op.value:
            try:
                sent.append([f, key, [await self.session.send(key, b"%d" % value), value]])
            except SessionError as error:
                made = failed if error.certain and not sent else unknown
                return made([*sent, *op.value[len(sent) :]], str(error))
        return ok(sent)

    async def _poll(self, op: Op) -> Completion:
        return ok([["poll", await self._polled()]])

    async def _polled(self) -> dict[str, Pairs]:
        """The next records by key; the positions move on."""
        if not self._positions:
            return {}
        try:
            found = pairs_of(await self.session.poll())
        except SessionError:
            # What it may have been given is asked for again.
            await self.session.assign(self._positions)
            raise
        self._positions |= {key: pairs[-1][0] + 1 for key, pairs in found.items()}
        return found

    async def _assign(self, op: Op) -> Completion:
        """Goes on where it stood in the keys it keeps, and begins the others at their start."""
        positions = {key: self._positions.get(key, 0) for key in op.value}
        await self.session.assign(positions)
        self._positions = positions
        return ok(op.value)

    async def _final_poll(self, op: Op) -> Completion:
        """Everything, from the start to the end that there is when it begins."""
        # Of all, also of transactions: what is not decided then is waited for.
        ends = await self.session.ends(self._keys, committed_only=False)
        self._positions = dict.fromkeys(self._keys, 0)
        return ok([["poll", await read_to_end(self.session, self._positions, ends)]])

    # --- transactions -----------------------------------------------------------------------------

    async def _txn(self, op: Op) -> Completion:
        """A transaction that was not committed takes the consumer back to where it stood."""
        positions = dict(self._positions)
        work = partial(self._all, op.value)
        done = await self.in_transaction(op, work, commit=[ABORT] not in op.value)
        if done.type is OpType.FAIL and self._positions != positions:
            self._positions = positions
            await self.session.assign(positions)
        return done

    async def _all(self, micro: list[Any]) -> list[Any]:
        return [await self._micro(one) for one in micro]

    async def _micro(self, micro: Any) -> Any:
        match micro:
            case ["send", key, value]:
                return ["send", key, [await self.session.send(key, b"%d" % value), value]]
            case ["poll"]:
                return ["poll", await self._polled()]
        return micro


def _poll(context: Context, keys: int) -> Todo:
    if context.random.random() >= ASSIGN_CHANCE:
        return Todo("poll", [["poll"]])
    some = sorted(context.random.sample(range(keys), context.random.randint(1, keys)))
    return Todo("assign", [str(key) for key in some])


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return QueueClient(session(environment, options), options.keys)


def queue(options: WorkloadOptions) -> Workload:
    """Half of the threads send, half poll; at the end everything is read from the start."""
    senders = max(1, options.concurrency // 2)
    sends = Numbered(partial(send_of, keys=options.keys))
    # Values of its own: what is whole again must take writes.
    last_sends = Numbered(partial(send_of, keys=options.keys), LAST_VALUES)
    polls = Endless(partial(_poll, keys=options.keys))
    return Workload(
        "queue",
        partial(_client, options),
        reserve(senders, sends, polls),
        {"kafka": check_kafka, "availability": check_availability},
        # What is acknowledged while it is polled for the last time would count as unseen.
        final=phases(UntilOk(last_sends), UntilOk(Cycle(once("final-poll", [["poll"]])))),
        rules=rules_of(options),
        prepare=partial(create_topic, options=options),
    )


# --- transactions ---------------------------------------------------------------------------------


def _transactional_client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return QueueClient(transactional(environment, options, process), options.keys)


def _txn(number: int, keys: int) -> Todo:
    """Of 1 to SENDS_MAX sends to different keys, every other one polls before; 1 of 8 aborts."""
    count = min(1 + number % SENDS_MAX, keys)
    micro: list[Any] = [["poll"]] if number % 2 else []
    micro += [
        ["send", str((number + nth) % keys), number * SENDS_MAX + nth] for nth in range(count)
    ]
    return Todo("txn", [*micro, [ABORT]] if number % 8 == 7 else micro)


def _txn_or_assign(number: int, keys: int) -> Todo:
    if number % ASSIGN_EVERY:
        return _txn(number, keys)
    some = [key for key in range(keys) if number // ASSIGN_EVERY >> key & 1]
    return Todo("assign", [str(key) for key in some or range(keys)])


def queue_txn(options: WorkloadOptions) -> Workload:
    """All threads send and poll in transactions; at the end what is committed is read."""
    txns = Numbered(partial(_txn_or_assign, keys=options.keys))
    last = Numbered(partial(_txn, keys=options.keys), LAST_VALUES)
    return Workload(
        "queue-txn",
        partial(_transactional_client, options),
        txns,
        {"kafka": check_kafka, "availability": check_availability},
        final=phases(UntilOk(last), UntilOk(Cycle(once("final-poll", [["poll"]])))),
        rules=rules_of(options, has_transactions=True),
        prepare=partial(create_topic, options=options),
    )
