"""The nemesis: performs the operations of faults, and records which nodes they hit.

`Injector` performs operations that name their targets, as those of a plan do. `Nemesis` first
resolves roles and draws what a test leaves to chance.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from jepsen.client import Completion
from jepsen.environments import Quality
from jepsen.errors import ClusterError
from jepsen.history import OpType
from jepsen.nemesis.plan import HEAL, ROLES, both_ways, cut_links

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from jepsen.environments import Environment, Link, Machines
    from jepsen.history import Op

logger = logging.getLogger(__name__)

Target = str | list[str]
"""A role that is resolved now, or the names of nodes, as a plan has them."""

ISOLATE = "isolate-"
DELAY_MS_MAX = 400.0
LOSS_MAX = 0.4
BYTES_PER_S = (20_000, 400_000)
CLOCK_MS_MAX = 120_000
SYNC_POLLS = 100
SYNC_POLL_S = 0.2


class RoleTargets(Protocol):
    """Partition leaders and coordinators; see `jepsen.environments.admin`."""

    async def broker(self, role: str) -> int | None:
        """Return the broker id of a `partition-leader` or `coordinator`; None if unknown."""

    async def reassign(self, wanted: Sequence[Any] | None = None) -> list[Any] | None:
        """Give a partition those replicas, else others: [partition, ids]; None: refused."""


class MembershipChanges(Protocol):
    """Brokers that leave and join; see `jepsen.environments.admin`."""

    @property
    def absent(self) -> str | None:
        """The broker that has left, if any."""

    async def remove(self, broker_id: int | None) -> list[str]:
        """Remove a broker from the cluster, by default any; returns it, or [] if none left."""

    async def add(self) -> list[str]:
        """Let the broker that has left join again."""


class FeatureChanges(Protocol):
    """The levels of the cluster's features; see `jepsen.environments.admin`."""

    async def lower(self, feature: str, level: int | None = None) -> list[Any]:
        """Lower to that level, else to a random one: [feature, level]; [] if that failed."""

    async def raise_all(self) -> dict[str, int]:
        """Raise every feature to its highest level."""


class SecurityChanges(Protocol):
    """Certificates, passwords and rules; see `jepsen.nemesis._security`."""

    async def renew(self, nodes: Sequence[str], authority: int | None = None) -> list[Any]:
        """Give nodes new certificates: [authority, nodes]; [] without an effect."""

    async def change_password(self) -> list[str]:
        """Change the password of the clients' user: [user]; [] without an effect."""

    async def revoke(self, operations: Sequence[str]) -> list[str]:
        """Take rights from that user: the operations; [] without an effect."""

    async def allow(self) -> None:
        """Give all rights back."""

    async def heal(self) -> None:
        """Let clients log in and do what they need."""


class Injector:
    """Performs operations with named targets on machines; each fault ends alone."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.failures: list[str] = []
        """Reasons why parts of the current operation failed."""
        self._killed: list[str] = []
        self._paused: list[str] = []
        self._cuts: list[list[Any]] = []
        """The partitions in force, each [kind, links]; replicas may lag unreported."""
        self._slowed: list[list[Any]] = []
        """The slow links in force, each [quality, links]."""
        self._skewed: list[list[Any]] = []
        """The clocks that are off, each [node, milliseconds]."""
        self._injected: list[list[Any]] = []
        """The faults of disks and machines in force, each [kind, nodes]."""

    async def perform(self, f: str, value: Any = None) -> Any:
        """Perform an operation of a plan (`begin_of`, `end_of`); the result names what it hit.

        An end without a value ends every fault of its package.
        """
        match f:
            case "kill" | "stop":
                ends = self._machines.kill if f == "kill" else self._machines.terminate
                ended = await self._each(value, ends)
                self._killed += ended
                return ended
            case "start":
                return await self._each(_taken(self._killed, value), self._machines.start_node)
            case "pause":
                paused = await self._each(value, self._machines.pause)
                self._paused += paused
                return paused
            case "resume":
                return await self._each(_taken(self._paused, value), self._machines.resume)
            case "break-disk":
                node, kind, *amount = value
                return value if await self._inject(kind, [node], *amount) else []
            case "inject":
                return value if await self._inject(*value) else []
            case "mend-disk" | "relieve":
                if f == "mend-disk" and value is not None:
                    value = [value[1], [value[0]]]
                for one in _taken(self._injected, None if value is None else [value]):
                    await self._machines.relieve(*one)
                return None
        return await self._declare(f, value)

    async def _declare(self, f: str, value: Any) -> Any:
        """Change the links or clocks that are wrong: those of all faults in force."""
        ends = f in ("heal", "restore", "unskew")
        several = value if f in ("skew", "unskew") else [value]
        for those, begin, end in (
            (self._cuts, "partition", "heal"),
            (self._slowed, "slow", "restore"),
            (self._skewed, "skew", "unskew"),
        ):
            if f == begin:
                those += several
            elif f == end:
                _taken(those, None if value is None else several)
        match f:
            case "partition" | "heal":
                links = (link for _, cut in self._cuts for link in cut)
                await self._machines.set_blocked(list(dict.fromkeys(map(_link, links))))
            case "slow" | "restore":
                await self._machines.set_quality(self._qualities())
            case "skew" | "unskew":
                offsets_ms: dict[str, int] = {}
                for node, by_ms in self._skewed:
                    offsets_ms[node] = offsets_ms.get(node, 0) + by_ms
                await self._machines.set_clocks(offsets_ms)
            case _:
                raise ValueError(f"no operation of the nemesis: {f}")
        return None if ends else value

    async def _inject(self, kind: str, nodes: list[str], amount: float | None = None) -> bool:
        # Noted first: a fault that failed half-way has to be relieved, too.
        self._injected.append([kind, nodes])
        return await self._machines.inject(kind, nodes, amount)

    def _qualities(self) -> dict[Link, Quality]:
        """The quality of each slow link; of several faults in one respect the newest counts."""
        found: dict[Link, Quality] = {}
        for quality, links in self._slowed:
            for link in map(_link, links):
                old, (delay_ms, loss, bytes_per_s) = found.get(link, Quality()), quality
                found[link] = Quality(
                    delay_ms or old.delay_ms, loss or old.loss, bytes_per_s or old.bytes_per_s
                )
        return found

    async def _each(
        self, nodes: Sequence[str], does: Callable[[str], Awaitable[object]]
    ) -> list[str]:
        """Return the nodes for which it succeeded; reasons of the others are in `failures`."""
        return [node for node in nodes if await self._tried(partial(does, node))]

    async def _tried(self, does: Callable[[], Awaitable[object]]) -> bool:
        try:
            await does()
        except Exception as error:
            # The control program of an external cluster may fail in any way; go on with the rest.
            logger.debug("a part of a fault that could not be done", exc_info=True)
            self.failures.append(str(error) or repr(error))
            return False
        return True


def _taken(those: list[Any], only: list[Any] | None) -> list[Any]:
    """Take these out of the list, each once, as far as they are in it; None: all."""
    found = list(those) if only is None else [one for one in only if one in those]
    for one in found:
        those.remove(one)
    return found


def _link(link: Sequence[str]) -> Link:
    source, target = link
    return source, target


class Nemesis(Injector):
    """Performs faults on an environment; a client of the interpreter."""

    def __init__(
        self,
        environment: Environment,
        rng: random.Random,
        roles: RoleTargets | None = None,
        membership: MembershipChanges | None = None,
        features: FeatureChanges | None = None,
        security: SecurityChanges | None = None,
    ) -> None:
        """`roles`: of clusters that serve Kafka's clients in this test.

        `membership`, `features`, `security`: where brokers are to come and go, levels to change,
        and certificates, passwords and rules.
        """
        super().__init__(environment)
        self._environment = environment
        self._random = rng
        self._roles = roles
        self._membership = membership
        self._features = features
        self._security = security
        self._voteless: list[str] = []

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def invoke(self, op: Op) -> Completion:
        """Perform an operation; the value of the completion names what it hit."""
        does: dict[str, Callable[[], Any]] = {
            "restart": partial(self._restart, op.value),
            "rolling": partial(self._rolling, op.value),
            "remove-voter": partial(self._remove_voter, op.value),
            "add-voters": self._add_voters,
            "remove-broker": partial(self._remove_broker, op.value),
            "add-broker": self._add_broker,
            "reassign": partial(self._reassign, op.value),
            "lower-feature": partial(self._lower_feature, op.value),
            "raise-features": self._raise_features,
            "break-disk": partial(self._break_disk, op.value),
            "renew-certificates": partial(self._renew_certificates, op.value),
            "change-password": self._change_password,
            "revoke": partial(self._revoke, op.value),
            "allow": self._allow,
            HEAL: self._heal,
        }
        self.failures.clear()
        if op.f in does:
            value = await does[op.f]()
        else:
            value = await self.perform(op.f, await self._resolved(op.f, op.value))
        return Completion(OpType.INFO, value, "; ".join(self.failures) or None)

    async def _resolved(self, f: str, value: Any) -> Any:
        """The operation's value with its targets named; random ones replace those before."""
        if f in ("kill", "stop", "pause"):
            nodes = await self._chosen(value)
            # A paused process cannot end when it is asked to.
            return [node for node in nodes if node not in self._paused] if f == "stop" else nodes
        if not isinstance(value, str):
            # The operation is of a plan, or an end. Only named nodes can be started or resumed.
            return value
        match f:
            case "partition":
                links = await self._links_by_chance(value)
                self._cuts.clear()
                return [value, [list(link) for link in links]]
            case "slow":
                group = self._group()
                links = cut_links("isolate", self._random.sample(group, len(group)))
                self._slowed.clear()
                return [list(self._quality(value)), [list(link) for link in links]]
            case "skew":
                self._skewed.clear()
                nodes = await self._chosen(value)
                return [[node, self._random.randint(-CLOCK_MS_MAX, CLOCK_MS_MAX)] for node in nodes]
        return None

    async def _restart(self, target: Target) -> list[str]:
        nodes = [node for node in await self._chosen(target) if node not in self._paused]
        return await self._each(nodes, self._restart_one)

    async def _restart_one(self, node: str) -> None:
        await self._environment.terminate(node)
        await self._environment.start_node(node)

    async def _rolling(self, target: Target) -> list[str]:
        """Restart one node after the other, each when all are in sync; give up after a while."""
        environment, done = self._environment, list[str]()
        groups = {"brokers": environment.brokers, "controllers": environment.controllers}
        for node in groups[target] if isinstance(target, str) else target:
            if not await self._gets_in_sync():
                break
            await environment.terminate(node)
            await environment.start_node(node)
            done.append(node)
        return done

    async def _gets_in_sync(self) -> bool:
        for _ in range(SYNC_POLLS):
            if await self._environment.is_in_sync():
                return True
            await asyncio.sleep(SYNC_POLL_S)
        return False

    async def _links_by_chance(self, kind: str) -> list[Link]:
        role = kind.removeprefix(ISOLATE)
        if role == "leader" or role in ROLES:
            node = await self._in_role(role)
            others = [other for other in self._all() if other != node]
            return both_ways([node], others) if node else []
        group = self._group()
        return cut_links(kind, self._random.sample(group, len(group)))

    def _quality(self, kind: str) -> Quality:
        match kind:
            case "delay":
                return Quality(delay_ms=round(self._random.uniform(20, DELAY_MS_MAX)))
            case "loss":
                return Quality(loss=round(self._random.uniform(0.05, LOSS_MAX), 2))
        return Quality(bytes_per_s=self._random.randint(*BYTES_PER_S))

    async def _remove_voter(self, kind: Target) -> list[str]:
        """Remove a voter, unless fewer than a majority of all controllers would vote."""
        environment = self._environment
        voters = [node for node in environment.controllers if node not in self._voteless]
        if len(voters) <= len(environment.controllers) // 2 + 1:
            return []
        if not isinstance(kind, str):
            node: str | None = kind[0]
        else:
            node = await environment.leader() if kind == "leader" else self._random.choice(voters)
        if node not in voters:
            return []
        self._voteless.append(node)  # also if the outcome is unknown
        return [node] if await environment.remove_voter(node) else []

    async def _add_voters(self) -> list[str]:
        """Add the removed voters; those that fail are added the next time, or at the end."""
        done = [node for node in self._voteless if await self._environment.add_voter(node)]
        self._voteless = [node for node in self._voteless if node not in done]
        return done

    async def _remove_broker(self, kind: Target) -> list[str]:
        """Remove a broker, unless others are down or cut off: it might have the last copy."""
        if self._membership is None or not self._is_calm():
            return []
        broker_id = None
        if kind in ROLES or not isinstance(kind, str):
            broker_id = await self._broker_id(kind)
            if broker_id is None:
                return []
        return await self._membership.remove(broker_id)

    async def _broker_id(self, target: Target) -> int | None:
        """The id of a broker in a role, or of the named one."""
        if isinstance(target, str):
            return None if self._roles is None else await self._roles.broker(target)
        # Environments name brokers after their ids, and confirm it.
        digits = target[0].rpartition("-")[2]
        known = digits.isdigit() and self._environment.broker_name(int(digits)) == target[0]
        return int(digits) if known else None

    async def _add_broker(self) -> list[str]:
        return [] if self._membership is None else await self._membership.add()

    async def _reassign(self, wanted: str | list[Any]) -> list[Any] | None:
        if self._roles is None:
            return None
        return await self._roles.reassign(None if isinstance(wanted, str) else wanted)

    async def _lower_feature(self, feature: str | list[Any]) -> list[Any]:
        if self._features is None:
            return []
        if isinstance(feature, str):
            return await self._features.lower(feature)
        return await self._features.lower(*feature)

    async def _raise_features(self) -> dict[str, int]:
        return {} if self._features is None else await self._features.raise_all()

    async def _break_disk(self, kind: str | list[Any]) -> list[Any]:
        """Fail a disk, only if all replicas are in sync: a second loss may lose unsynced data."""
        if not self._is_calm() or not await self._environment.is_in_sync():
            return []
        if isinstance(kind, str):
            kind = [self._random.choice(self._environment.disk_faults[kind]), kind]
        found: list[Any] = await self.perform("break-disk", kind)
        return found

    async def _renew_certificates(self, wanted: str | list[Any]) -> list[Any]:
        if self._security is None:
            return []
        authority, nodes = (None, self._all()) if isinstance(wanted, str) else wanted
        nodes = [node for node in nodes if self._is_up(node) and node not in self._paused]
        if wanted == "one":
            nodes = nodes and [self._random.choice(nodes)]
        return await self._took_effect(partial(self._security.renew, nodes, authority))

    async def _change_password(self) -> list[str]:
        if self._security is None:
            return []
        return await self._took_effect(self._security.change_password)

    async def _revoke(self, wanted: str | list[str]) -> list[str]:
        if self._security is None:
            return []
        operations = [wanted] if isinstance(wanted, str) else wanted
        return await self._took_effect(partial(self._security.revoke, operations))

    async def _took_effect(self, does: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """What it hit; [] if it failed, since the names of a plan would count as hit."""
        try:
            return await does()
        except ClusterError as error:
            self.failures.append(str(error))
            return []

    async def _allow(self) -> None:
        if self._security is not None:
            await self._security.allow()

    def _is_calm(self) -> bool:
        """Whether no fault is active that `is_in_sync` may not reflect yet."""
        return not (self._killed or self._paused or self._cuts)

    async def _heal(self) -> None:
        """Heal everything; go on if a part fails."""
        for f in ("heal", "restore", "unskew", "mend-disk", "resume", "start"):
            await self._tried(partial(self.perform, f))
        await self._each(self._all(), self._environment.start_node)
        await self._tried(self._add_voters)
        await self._tried(self._add_broker)
        await self._tried(self._raise_features)
        if self._security is not None:
            await self._tried(self._security.heal)

    async def _in_role(self, role: str) -> str | None:
        """Return the node in a role now; None if unknown."""
        if role == "leader":
            return await self._environment.leader()
        broker_id = None if self._roles is None else await self._roles.broker(role)
        return None if broker_id is None else self._environment.broker_name(broker_id)

    def _group(self) -> Sequence[str]:
        """Return the controllers, the brokers, or all nodes, by chance."""
        environment = self._environment
        groups = [environment.controllers, environment.brokers, self._all()]
        return self._random.choice([group for group in groups if group])

    def _all(self) -> list[str]:
        return [*self._environment.controllers, *self._environment.brokers]

    async def _chosen(self, kind: Target) -> list[str]:
        """Return the named nodes, the node in the named role, or nodes by chance."""
        if not isinstance(kind, str):
            return [node for node in kind if self._is_up(node)]
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
        """Whether the nemesis has neither killed nor removed the node."""
        absent = None if self._membership is None else self._membership.absent
        return node != absent and node not in self._killed
