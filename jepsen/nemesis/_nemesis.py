"""The nemesis: does to an environment what operations say (`jepsen.nemesis.faults`), and notes to
whom."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from jepsen.client import Completion
from jepsen.environments import Quality
from jepsen.history import OpType
from jepsen.nemesis.faults import HEAL, ROLES

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from jepsen.environments import Environment, Link
    from jepsen.history import Op

logger = logging.getLogger(__name__)

ISOLATE = "isolate-"
DELAY_MS_MAX = 400.0
LOSS_MAX = 0.4
BYTES_PER_S = (20_000, 400_000)
CLOCK_MS_MAX = 120_000
SETTLE_POLLS = 100
SETTLE_POLL_S = 0.2


class Roles(Protocol):
    """Who plays which part for Kafka's clients; see `jepsen.environments.admin._roles`."""

    async def broker(self, role: str) -> int | None:
        """The id of a `partition-leader`, or of a `coordinator`; None if nobody says."""

    async def reassign(self) -> list[Any] | None:
        """Gives a partition other replicas; what was done, None if it was refused."""


class Membership(Protocol):
    """Brokers that leave and join; see `jepsen.environments.admin._membership`."""

    @property
    def absent(self) -> str | None:
        """Who has left."""

    async def remove(self, broker_id: int | None) -> list[str]:
        """Takes a broker out of the cluster, any if none is named; who it was, if anybody."""

    async def add(self) -> list[str]:
        """Whoever has left joins."""


class Features(Protocol):
    """The levels of the cluster's features; see `jepsen.environments.admin._features`."""

    async def lower(self, feature: str) -> list[Any]:
        """[feature, its level from now on]; nothing where that cannot be."""

    async def raise_all(self) -> dict[str, int]:
        """Every feature gets its highest level."""


class Nemesis:
    """Does to an environment what operations say; a client of the interpreter."""

    def __init__(
        self,
        environment: Environment,
        rng: random.Random,
        roles: Roles | None = None,
        membership: Membership | None = None,
        features: Features | None = None,
    ) -> None:
        """`roles`: of clusters that serve Kafka's clients in this test.

        `membership`, `features`: where brokers are to come and go, and levels to change.
        """
        self._environment = environment
        self._random = rng
        self._roles = roles
        self._membership = membership
        self._features = features
        self._killed: list[str] = []
        self._paused: list[str] = []
        self._voteless: list[str] = []
        self._failures: list[str] = []
        """Why parts of the present operation could not be done."""
        self._cut = False
        """Whether links let nothing pass, so that replicas may be behind before anybody says so."""

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def invoke(self, op: Op) -> Completion:
        """Does it; the value of the completion says to whom."""
        does: dict[str, Callable[[], Any]] = {
            "kill": partial(self._kill, op.value),
            "start": self._start,
            "pause": partial(self._pause, op.value),
            "resume": self._resume,
            "restart": partial(self._restart, op.value),
            "rolling": partial(self._rolling, op.value),
            "partition": partial(self._partition, op.value),
            "heal": self._unblock,
            "slow": partial(self._slow, op.value),
            "restore": self._environment.restore,
            "remove-voter": partial(self._remove_voter, op.value),
            "add-voters": self._add_voters,
            "remove-broker": partial(self._remove_broker, op.value),
            "add-broker": self._add_broker,
            "reassign": self._reassign,
            "lower-feature": partial(self._lower_feature, op.value),
            "raise-features": self._raise_features,
            "skew": partial(self._skew, op.value),
            "unskew": self._environment.reset_clocks,
            "break-disk": partial(self._break_disk, op.value),
            "mend-disk": self._environment.mend_disks,
            HEAL: self._heal,
        }
        self._failures.clear()
        value = await does[op.f]()
        return Completion(OpType.INFO, value, "; ".join(self._failures) or None)

    async def _each(
        self, nodes: Sequence[str], does: Callable[[str], Awaitable[object]]
    ) -> list[str]:
        """Those to which it was done; why the others were spared is in `_failures`."""
        return [node for node in nodes if await self._tried(partial(does, node))]

    async def _tried(self, does: Callable[[], Awaitable[object]]) -> bool:
        try:
            await does()
        except Exception as error:
            # Whoever breaks a cluster may be any program: what follows is done all the same.
            logger.debug("a part of a fault that could not be done", exc_info=True)
            self._failures.append(str(error) or repr(error))
            return False
        return True

    async def _kill(self, kind: str) -> list[str]:
        nodes = await self._each(await self._chosen(kind), self._environment.kill)
        self._killed += nodes
        return nodes

    async def _start(self) -> list[str]:
        nodes, self._killed = self._killed, []
        return await self._each(nodes, self._environment.start_node)

    async def _pause(self, kind: str) -> list[str]:
        nodes = await self._each(await self._chosen(kind), self._environment.pause)
        self._paused += nodes
        return nodes

    async def _resume(self) -> list[str]:
        nodes, self._paused = self._paused, []
        return await self._each(nodes, self._environment.resume)

    async def _restart(self, kind: str) -> list[str]:
        nodes = [node for node in await self._chosen(kind) if node not in self._paused]
        return await self._each(nodes, self._restart_one)

    async def _restart_one(self, node: str) -> None:
        await self._environment.terminate(node)
        await self._environment.start_node(node)

    async def _rolling(self, kind: str) -> list[str]:
        """One after the other, each when all are in sync; ends early if that takes too long."""
        environment, done = self._environment, list[str]()
        for node in environment.brokers if kind == "brokers" else environment.controllers:
            if not await self._settles():
                break
            await environment.terminate(node)
            await environment.start_node(node)
            done.append(node)
        return done

    async def _settles(self) -> bool:
        for _ in range(SETTLE_POLLS):
            if await self._environment.settled():
                return True
            await asyncio.sleep(SETTLE_POLL_S)
        return False

    async def _partition(self, kind: str) -> list[Any]:
        environment = self._environment
        role = kind.removeprefix(ISOLATE)
        if role == "leader" or role in ROLES:
            links = cut_links("isolate-leader", self._all(), await self._in_role(role))
        else:
            group = self._group()
            links = cut_links(kind, self._random.sample(group, len(group)), None)
        await environment.unblock()
        self._cut = True
        await environment.block(links)
        return [kind, [list(link) for link in links]]

    async def _unblock(self) -> None:
        await self._environment.unblock()
        self._cut = False

    async def _slow(self, kind: str) -> list[Any]:
        """One node's links to the others of a group, both ways."""
        group = self._group()
        links = cut_links("isolate", self._random.sample(group, len(group)), None)
        quality = self._quality(kind)
        await self._environment.restore()
        await self._environment.degrade(links, quality)
        return [list(quality), [list(link) for link in links]]

    def _quality(self, kind: str) -> Quality:
        match kind:
            case "delay":
                return Quality(delay_ms=round(self._random.uniform(20, DELAY_MS_MAX)))
            case "loss":
                return Quality(loss=round(self._random.uniform(0.05, LOSS_MAX), 2))
        return Quality(bytes_per_s=self._random.randint(*BYTES_PER_S))

    async def _remove_voter(self, kind: str) -> list[str]:
        """Of so few that a majority of all still votes."""
        environment = self._environment
        voters = [node for node in environment.controllers if node not in self._voteless]
        if len(voters) <= len(environment.controllers) // 2 + 1:
            return []
        node = await environment.leader() if kind == "leader" else self._random.choice(voters)
        if node not in voters:
            return []
        self._voteless.append(node)  # also where that may yet come about
        return [node] if await environment.remove_voter(node) else []

    async def _add_voters(self) -> list[str]:
        """Whoever does not get its vote back in time gets it the next time, or at the end."""
        done = [node for node in self._voteless if await self._environment.add_voter(node)]
        self._voteless = [node for node in self._voteless if node not in done]
        return done

    async def _remove_broker(self, kind: str) -> list[str]:
        """Nobody while others are down or cut off: the last copy must not go with it."""
        if self._membership is None or not self._is_calm():
            return []
        broker_id = None
        if kind in ROLES:
            broker_id = None if self._roles is None else await self._roles.broker(kind)
            if broker_id is None:
                return []
        return await self._membership.remove(broker_id)

    async def _add_broker(self) -> list[str]:
        return [] if self._membership is None else await self._membership.add()

    async def _reassign(self) -> list[Any] | None:
        return None if self._roles is None else await self._roles.reassign()

    async def _lower_feature(self, feature: str) -> list[Any]:
        return [] if self._features is None else await self._features.lower(feature)

    async def _raise_features(self) -> dict[str, int]:
        return {} if self._features is None else await self._features.raise_all()

    async def _skew(self, kind: str) -> list[Any]:
        await self._environment.reset_clocks()
        done: list[Any] = []
        for node in await self._chosen(kind):
            by_ms = self._random.randint(-CLOCK_MS_MAX, CLOCK_MS_MAX)
            await self._environment.skew_clock(node, by_ms)
            done.append([node, by_ms])
        return done

    async def _break_disk(self, kind: str) -> list[Any]:
        """Only where all is well: what no copy has synced is lost by design with a second one."""
        if not self._is_calm() or not await self._environment.settled():
            return []
        node = self._random.choice(self._environment.disk_faults[kind])
        return [node, kind] if await self._environment.break_disk(node, kind) else []

    def _is_calm(self) -> bool:
        """Whether nothing was done that an environment may take for settled for a while yet."""
        return not (self._killed or self._paused or self._cut)

    async def _heal(self) -> None:
        """All of it, whatever of it fails."""
        environment = self._environment
        for step in (
            self._unblock,
            environment.restore,
            environment.reset_clocks,
            environment.mend_disks,
            self._resume,
            self._start,
        ):
            await self._tried(step)
        await self._each(self._all(), environment.start_node)
        await self._tried(self._add_voters)
        await self._tried(self._add_broker)
        await self._tried(self._raise_features)

    async def _in_role(self, role: str) -> str | None:
        """The node that plays a part now, if somebody says who."""
        if role == "leader":
            return await self._environment.leader()
        broker_id = None if self._roles is None else await self._roles.broker(role)
        return None if broker_id is None else self._environment.broker_name(broker_id)

    def _group(self) -> Sequence[str]:
        """The nodes of a role, or all."""
        environment = self._environment
        groups = [environment.controllers, environment.brokers, self._all()]
        return self._random.choice([group for group in groups if group])

    def _all(self) -> list[str]:
        return [*self._environment.controllers, *self._environment.brokers]

    async def _chosen(self, kind: str) -> list[str]:
        """Nodes of one role, chosen by chance, or the node in the role that is asked for."""
        roles = [
            role for role in (self._environment.controllers, self._environment.brokers) if role
        ]
        group = self._random.choice(roles)
        if kind == "leader" or kind in ROLES:
            node = await self._in_role(kind)
            return [node] if node and self._is_up(node) else []
        count = {"one": 1, "minority": max(1, (len(group) - 1) // 2), "all": len(group)}[kind]
        chosen = self._random.sample(group, count)
        return [node for node in chosen if self._is_up(node)]

    def _is_up(self, node: str) -> bool:
        """Whether nothing was done to it that keeps it from running, or will soon."""
        absent = None if self._membership is None else self._membership.absent
        return node != absent and node not in self._killed


def cut_links(kind: str, nodes: Sequence[str], leader: str | None) -> list[Link]:
    """The links that a partition of that kind cuts among the nodes, in the order given."""
    middle = len(nodes) // 2
    match kind:
        case "isolate":
            return _between(nodes[:1], nodes[1:])
        case "isolate-leader":
            others = [node for node in nodes if node != leader]
            return _between([leader], others) if leader else []
        case "halves":
            return _between(nodes[:middle], nodes[middle:])
        case "bridge":
            # One in the middle reaches both halves, which do not reach each other.
            return _between(nodes[:middle], nodes[middle + 1 :])
        case "ring":
            # Each reaches its neighbours only: majorities overlap, no two are the same.
            count = len(nodes)
            far = [
                (one, other)
                for at, one in enumerate(nodes)
                for to, other in enumerate(nodes)
                if min((at - to) % count, (to - at) % count) > max(1, count // 4)
            ]
            return far or _between(nodes[:1], nodes[1:2])
        case "one-way":
            return [(nodes[0], other) for other in nodes[1:]]
    raise ValueError(f"no partition {kind}")


def _between(some: Sequence[str], others: Sequence[str]) -> list[Link]:
    links = [(one, other) for one in some for other in others]
    return links + [(other, one) for one, other in links]
