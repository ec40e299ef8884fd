"""Brokers leave a cluster and join it again, one at a time, as an operator has them do it.

    serves ──remove──▶ drained ──▶ stopped ──▶ unregistered, its disk replaced ──add──▶ serves

Who leaves has its replicas moved to the others first, those of internal topics too; where there is
no other to take one, the partition goes on with fewer. It joins under its old id, with an empty
disk, and gets the replicas that it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.environments.admin._requests import (
    Partition,
    all_replicas,
    asked,
    broker_ids,
    reassign,
    unregister,
    until,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from aiokafka.admin import AIOKafkaAdminClient

    from jepsen.environments._base import Environment

SETTLE_S = 5.0
PATIENCE_S = 15.0


class Membership:
    """See the module."""

    def __init__(self, environment: Environment, rng: random.Random) -> None:
        self._environment = environment
        self._random = rng
        self.absent: str | None = None
        """Who has left."""
        self._lent: dict[Partition, list[int]] = {}
        """The replicas of the partitions that were moved, as they were before."""

    async def remove(self, broker_id: int | None) -> list[str]:
        """Takes a broker out of the cluster, any if none is named; who it was.

        Nobody if all is not well at first, or if it cannot be drained in time: then it stays.
        """
        if self.absent is not None or not await until(self._environment.is_in_sync, SETTLE_S):
            return []
        if broker_id is None:
            broker_id = await self._any()
        node = None if broker_id is None else self._environment.broker_name(broker_id)
        if broker_id is None or node is None:
            return []
        if not await self._asked(lambda admin: self._drained(admin, broker_id)):
            return []
        self.absent = node
        await self._environment.terminate(node)
        await self._asked(lambda admin: _unregistered(admin, broker_id))
        await self._environment.replace_disk(node)
        return [node]

    async def add(self) -> list[str]:
        """Whoever has left joins; what was moved gets its replicas back, perhaps the next time."""
        node, self.absent = self.absent, None
        if node is not None:
            await self._environment.start_node(node)
        if self._lent:
            await self._asked(self._returned)
        return [] if node is None else [node]

    async def _any(self) -> int | None:
        """One of those that serve, if another is left."""
        ids: list[int] = []

        async def ask(admin: AIOKafkaAdminClient) -> bool:
            ids.extend(await broker_ids(admin))
            return True

        await self._asked(ask)
        return self._random.choice(ids) if len(ids) > 1 else None

    async def _drained(self, admin: AIOKafkaAdminClient, broker_id: int) -> bool:
        """Whether nothing is on the broker any more; what is, is asked to move."""
        ids = await broker_ids(admin)
        replicas = await all_replicas(admin)
        held = {key: ids for key, ids in replicas.items() if broker_id in ids}
        if not held:
            return await self._environment.is_in_sync()
        self._lent = held | self._lent
        moves = {key: self._elsewhere(key, broker_id, have, ids) for key, have in held.items()}
        await reassign(admin, {key: wanted for key, wanted in moves.items() if wanted})
        return False

    def _elsewhere(
        self, key: Partition, broker_id: int, have: Sequence[int], ids: Sequence[int]
    ) -> list[int]:
        """The replicas without the broker: as many as before, if others can have one."""
        stay = [one for one in have if one != broker_id]
        free = [one for one in ids if one not in have]
        if free and len(stay) < len(self._lent[key]):
            stay.append(self._random.choice(free))
        return stay

    async def _returned(self, admin: AIOKafkaAdminClient) -> bool:
        """Whether every partition that was moved, and is still there, is told to move back."""
        replicas = await all_replicas(admin)
        left = {key: ids for key, ids in self._lent.items() if key in replicas}
        refused = await reassign(admin, left) if left else {}
        self._lent = {key: ids for key, ids in left.items() if key in refused}
        return not refused

    async def _asked(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[bool]]) -> bool:
        return await asked(self._environment.bootstrap_servers, ask, PATIENCE_S)


async def _unregistered(admin: AIOKafkaAdminClient, broker_id: int) -> bool:
    await unregister(admin, broker_id)
    return True
