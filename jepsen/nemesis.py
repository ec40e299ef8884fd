"""The nemesis: faults as operations of a process of its own, in packages that compose.

A package has what to do (a generator of operations), and what makes all well again at the end. An
operation's value says who is meant; who that is in truth is chosen when it is done, and noted.

kill        the processes of some nodes end at once, and start again after a while
pause       they stand still, and go on after a while
restart     one node is asked to end, and started again
partition   some links let nothing pass for a while
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.client import Completion
from jepsen.generator.combinators import AnyOf, Cycle, Sleep, Then, nemesis
from jepsen.generator.core import NOTHING, Once, Plain, Todo
from jepsen.history import OpType

if TYPE_CHECKING:
    import random

    from jepsen.env.base import Environment, Link
    from jepsen.generator.core import Context, Generator, Next
    from jepsen.history import Op

TARGETS = ("one", "one", "minority", "leader", "all")
PARTITIONS = ("isolate", "isolate-leader", "halves", "ring", "bridge", "one-way")
HEAL = "heal-all"


@dataclass(frozen=True, slots=True)
class _Chance(Plain):
    """Operations `begin` of any of the kinds, each followed by `end`, with chance pauses."""

    begin: str
    end: str
    kinds: Sequence[str]
    interval_s: float

    def next_op(self, context: Context) -> Next:
        """See `Generator`."""
        kind = context.random.choice(self.kinds)
        parts: list[Generator] = [
            Sleep(context.random.uniform(0.3, 1.7) * self.interval_s),
            Once(Todo(self.begin, kind)),
        ]
        if self.end:
            parts += [
                Sleep(context.random.uniform(0.3, 1.7) * self.interval_s),
                Once(Todo(self.end)),
            ]
        return Then(tuple(parts)).next_op(context)


PACKAGES = {
    "kill": ("kill", "start", TARGETS),
    "pause": ("pause", "resume", TARGETS),
    "restart": ("restart", "", ("one", "leader")),
    "partition": ("partition", "heal", PARTITIONS),
}


def package(names: Sequence[str], interval_s: float) -> Generator:
    """The faults of these names, each for itself, on average `interval_s` apart. KeyError."""
    parts = [Cycle(_Chance(*_of(name), interval_s)) for name in names]
    return nemesis(AnyOf(tuple(parts))) if parts else NOTHING


def _of(name: str) -> tuple[str, str, Sequence[str]]:
    return PACKAGES[name]


def healing() -> Generator:
    """The last operation: whatever is broken is made whole."""
    return nemesis(Once(Todo(HEAL)))


class Nemesis:
    """Does to an environment what operations say; a client of the interpreter."""

    def __init__(self, environment: Environment, rng: random.Random) -> None:
        self._environment = environment
        self._random = rng
        self._killed: list[str] = []
        self._paused: list[str] = []

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
            "partition": partial(self._partition, op.value),
            "heal": self._environment.unblock,
            HEAL: self._heal,
        }
        value = await does[op.f]()
        return Completion(OpType.INFO, value)

    async def _kill(self, kind: str) -> list[str]:
        nodes = await self._chosen(kind)
        for node in nodes:
            await self._environment.kill(node)
        self._killed += nodes
        return nodes

    async def _start(self) -> list[str]:
        nodes, self._killed = self._killed, []
        for node in nodes:
            await self._environment.start_node(node)
        return nodes

    async def _pause(self, kind: str) -> list[str]:
        nodes = [node for node in await self._chosen(kind) if node not in self._killed]
        for node in nodes:
            await self._environment.pause(node)
        self._paused += nodes
        return nodes

    async def _resume(self) -> list[str]:
        nodes, self._paused = self._paused, []
        for node in nodes:
            await self._environment.resume(node)
        return nodes

    async def _restart(self, kind: str) -> list[str]:
        nodes = [
            node for node in await self._chosen(kind) if node not in [*self._killed, *self._paused]
        ]
        for node in nodes:
            await self._environment.terminate(node)
            await self._environment.start_node(node)
        return nodes

    async def _partition(self, kind: str) -> list[Any]:
        environment = self._environment
        group = self._random.choice([environment.controllers, environment.brokers, self._all()])
        links = cut_links(kind, self._random.sample(group, len(group)), await environment.leader())
        await environment.unblock()
        await environment.block(links)
        return [kind, [list(link) for link in links]]

    async def _heal(self) -> None:
        await self._environment.unblock()
        await self._resume()
        await self._start()
        for node in self._all():
            await self._environment.start_node(node)

    def _all(self) -> list[str]:
        return [*self._environment.controllers, *self._environment.brokers]

    async def _chosen(self, kind: str) -> list[str]:
        """Nodes of one role, chosen by chance; the active controller where it is asked for."""
        roles = [
            role for role in (self._environment.controllers, self._environment.brokers) if role
        ]
        group = self._random.choice(roles)
        if kind == "leader":
            leader = await self._environment.leader()
            return [leader] if leader else []
        count = {"one": 1, "minority": max(1, (len(group) - 1) // 2), "all": len(group)}[kind]
        chosen = self._random.sample(group, count)
        return [node for node in chosen if node not in self._killed]


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
