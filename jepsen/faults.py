"""Packages of faults: when what goes wrong, as a generator of the nemesis' operations.

An operation's value says who is meant; who that is in truth is chosen when it is done, and noted.

kill        the processes of some nodes end at once, and start again after a while
pause       they stand still, and go on after a while
restart     one node is asked to end, and started again
rolling     all nodes of a role, one after the other, each when the one before is in sync again
partition   some links let nothing pass for a while
slow        some links delay what they carry, deliver some of it late as a network that loses
            packets does, or carry few bytes a second
voters      a controller loses its vote, and gets it back after a while
brokers     a broker is drained, stopped and unregistered, and joins again with an empty disk
reassign    a partition gets other replicas, or prefers another leader
features    a feature of the cluster is finalized at a lower level, and all at their highest later
clock       the wall clocks of some nodes are off for a while
disk        a node's disk fails, or has lost or damaged what was written last, as each environment
            can bring it about
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jepsen.generator.combinators import AnyOf, Cycle, Sleep, Then, TimeLimit, nemesis
from jepsen.generator.core import NOTHING, Context, Generator, Next, Once, Plain, Todo

TARGETS = ("one", "one", "minority", "leader", "all")
ROLES = ("partition-leader", "coordinator")
"""Targets of clusters that serve Kafka's clients in a test."""
PARTITIONS = ("isolate", "isolate-leader", "halves", "ring", "bridge", "one-way")
QUALITIES = ("delay", "loss", "bandwidth")
DISK, FEATURES = "disk", "features"
HEAL = "heal-all"
ROUND_INTERVALS = 4
TAKES_PART = 0.6


@dataclass(frozen=True, slots=True)
class Package:
    """What begins a fault, what ends it (nothing if it ends by itself), and its kinds."""

    begin: str
    end: str
    kinds: tuple[str, ...]
    """Of disks and features: what the environment has."""
    by_role: tuple[str, ...] = ()
    """More kinds, where there are roles."""


PACKAGES = {
    "kill": Package("kill", "start", TARGETS, ROLES),
    "pause": Package("pause", "resume", TARGETS, ROLES),
    "restart": Package("restart", "", ("one", "leader"), ROLES),
    "rolling": Package("rolling", "", ("controllers", "brokers")),
    "partition": Package(
        "partition", "heal", PARTITIONS, tuple(f"isolate-{role}" for role in ROLES)
    ),
    "slow": Package("slow", "restore", QUALITIES),
    "voters": Package("remove-voter", "add-voters", ("one", "leader")),
    "brokers": Package("remove-broker", "add-broker", ("one",), ROLES),
    "reassign": Package("reassign", "", ("one",)),
    FEATURES: Package("lower-feature", "raise-features", ()),
    "clock": Package("skew", "unskew", ("one", "minority", "all")),
    DISK: Package("break-disk", "mend-disk", ()),
}


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


@dataclass(frozen=True, slots=True)
class _Round(Plain):
    """Some of the packages at once for a while, perhaps none; then all is healed and has rest."""

    parts: Sequence[Generator]
    interval_s: float

    def next_op(self, context: Context) -> Next:
        """See `Generator`."""
        some = tuple(part for part in self.parts if context.random.random() < TAKES_PART)
        rest = Sleep(self.interval_s)
        if not some:
            return rest.next_op(context)
        broken = TimeLimit(ROUND_INTERVALS * self.interval_s, AnyOf(some))
        return Then((broken, Once(Todo(HEAL)), rest)).next_op(context)


def package(
    names: Sequence[str],
    interval_s: float,
    *,
    roles: bool = False,
    disks: Sequence[str] = (),
    features: Sequence[str] = (),
) -> Generator:
    """The faults of these names, on average `interval_s` apart; several come in rounds.

    `roles`: the cluster has partition leaders and coordinators that can be meant. `disks`: what
    the environment can do to a disk; `features`: those that the cluster has. KeyError.
    """
    told = {DISK: tuple(disks), FEATURES: tuple(features)}
    packages = PACKAGES | {name: replace(PACKAGES[name], kinds=told[name]) for name in told}
    parts = [Cycle(_of(packages[name], interval_s, roles=roles)) for name in names]
    if not parts:
        return NOTHING
    return nemesis(parts[0] if len(parts) == 1 else Cycle(_Round(tuple(parts), interval_s)))


def _of(one: Package, interval_s: float, *, roles: bool) -> Generator:
    kinds = (*one.kinds, *one.by_role) if roles else one.kinds
    return _Chance(one.begin, one.end, kinds, interval_s)


def healing() -> Generator:
    """The last operation: whatever is broken is made whole."""
    return nemesis(Once(Todo(HEAL)))
