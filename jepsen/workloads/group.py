"""A consumer group: members come and go, and each record is handed over at least once.

A member commits what it has been handed, and only while it belongs to the generation that gave it
the partition.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers import check_availability, check_group
from jepsen.checkers.kafka import check_kafka
from jepsen.client import Completion, failed, ok, unknown
from jepsen.generator.combinators import Cycle, UntilOk, each_thread, once, phases, reserve
from jepsen.generator.core import NOTHING, Endless, Numbered, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads._logs import (
    LAST_VALUES,
    READ_S,
    LogClient,
    Pairs,
    add,
    all_keys,
    pairs_of,
    send_of,
)
from jepsen.workloads.sessions import SessionError, create_topic, rules_of, session

if TYPE_CHECKING:
    import random

    from jepsen.client import Client
    from jepsen.environments import Environment
    from jepsen.generator.core import Context
    from jepsen.history import Op
    from jepsen.workloads.sessions import LogSession

LEAVE_CHANCE = 1 / 64
COMMIT_CHANCE = 1 / 4
LOOK_CHANCE = 1 / 8


class GroupClient(LogClient):
    """`send`; and as a member `poll`, `commit`, `committed` (a look), `leave` and `drain`."""

    def __init__(self, session: LogSession, keys: int) -> None:
        super().__init__(session)
        self._keys = all_keys(keys)
        self._subscribed = False
        self._generation: int | None = None
        self._handed: dict[str, int] = {}
        """Up to where it was handed the partitions that it has in this generation."""
        self.does = {
            "send": self._send,
            "poll": self._poll,
            "commit": self._commit,
            "committed": self._committed,
            "leave": self._leave,
            "drain": self._drain,
        }

    async def _send(self, op: Op) -> Completion:
        ((f, key, value),) = op.value
        return ok([[f, key, [await self.session.send(key, b"%d" % value), value]]])

    async def _poll(self, op: Op) -> Completion:
        return ok(await self._polled())

    async def _polled(self) -> list[Any]:
        """What it was handed, and what it belongs to."""
        try:
            if not self._subscribed:
                self._subscribed = True
                await self.session.subscribe()
            found = pairs_of(await self.session.poll())
        except SessionError:
            # What it may have been handed and does not know must be handed to somebody again.
            await self._left()
            raise
        member = self.session.membership()
        if member is None or member.generation != self._generation:
            self._handed = {}
        self._generation = None if member is None else member.generation
        keys = () if member is None else member.keys
        self._handed |= {key: pairs[-1][0] + 1 for key, pairs in found.items() if key in keys}
        fields = [] if member is None else [member.member_id, member.generation, list(keys)]
        return [["poll", found], ["member", *fields]]

    async def _commit(self, op: Op) -> Completion:
        offsets = dict(self._handed)
        if not offsets:
            return failed(None, "nothing was handed over")
        try:
            await self.session.commit_offsets(offsets)
        except SessionError as error:
            return (failed if error.certain else unknown)(offsets, str(error))
        return ok(offsets)

    async def _committed(self, op: Op) -> Completion:
        return ok(await self.session.committed(self._keys))

    async def _leave(self, op: Op) -> Completion:
        await self._left()
        return ok()

    async def _left(self) -> None:
        self._subscribed, self._generation, self._handed = False, None, {}
        await self.session.leave()

    async def _drain(self, op: Op) -> Completion:
        """Everything from what is committed to the ends that there are when it begins; commits it.

        What it is not done with in time it leaves to the next drain, uncommitted.
        """
        ends = await self.session.ends(self._keys, committed_only=False)
        found: dict[str, Pairs] = {}
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + READ_S
        done = await self.session.committed(self._keys)
        while any(self._handed.get(key, done[key] or 0) < end for key, end in ends.items()):
            if loop.time() > deadline_s:
                await self._left()
                raise SessionError(f"not at {ends} in time: {self._handed}", certain=True)
            generation = self._generation
            (_, more), _ = await self._polled()
            if self._generation != generation:
                found = {}  # it begins again where the group stands
            add(found, more)
        await self.session.commit_offsets(self._handed)
        return ok([["poll", found]])


def _member_op(context: Context) -> Todo:
    chance = context.random.random()
    if chance < LEAVE_CHANCE:
        return Todo("leave")
    if chance < COMMIT_CHANCE:
        return Todo("commit")
    return Todo("committed") if chance < COMMIT_CHANCE + LOOK_CHANCE else Todo("poll", [["poll"]])


def _group_of(options: WorkloadOptions) -> str:
    return f"{options.topic}-readers"


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    made = session(environment, options, group=_group_of(options))
    return GroupClient(made, options.keys)


def group(options: WorkloadOptions) -> Workload:
    """Half of the threads send, half are members; at the end one member is handed all the rest."""
    sends = Numbered(partial(send_of, keys=options.keys))
    last = Numbered(partial(send_of, keys=options.keys), LAST_VALUES)
    drains = UntilOk(Cycle(once("drain")))
    senders = max(1, options.concurrency // 2)
    return Workload(
        "group",
        partial(_client, options),
        reserve(senders, sends, Endless(_member_op)),
        {"kafka": check_kafka, "group": check_group, "availability": check_availability},
        final=phases(UntilOk(last), each_thread(once("leave")), reserve(1, drains, NOTHING)),
        rules=rules_of(options, group=_group_of(options)),
        prepare=partial(create_topic, options=options),
    )
