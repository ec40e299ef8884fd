"""Random faults of the packages: a generator of the nemesis' operations.

The value of an operation names a role. The nemesis chooses nodes when the operation begins, and
records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jepsen.generator.combinators import AnyOf, Cycle, Sleep, Then, TimeLimit, nemesis
from jepsen.generator.core import NEMESIS, NOTHING, Context, Generator, Next, Once, Plain, Todo
from jepsen.history import OpType
from jepsen.nemesis.plan import DISK, FEATURES, HEAL, PACKAGES, Package

if TYPE_CHECKING:
    from jepsen.history import Op

ROUND_INTERVALS = 4
TAKES_PART = 0.6
OPENING_PART = 0.5
"""Of a short test, about: in so much of it each kind of fault strikes once."""
PATIENCE_INTERVALS = 4
"""How long a kind is tried at first, before it is the next one's turn."""


_KINDS = {one.begin: name for name, one in PACKAGES.items()} | {"stop": "restart"}
"""By operation. `stop` is the first half of a restart, in a plan."""
_HIT_LAST = ("partition", "slow", "renew-certificates")
"""Operations whose values have what was hit at their end."""


def kind_struck(op: Op) -> str:
    """Return the kind of fault that this line shows to have struck; empty if none.

    A completion of the nemesis lists the nodes that were hit. The list is empty if there was no
    node to hit. If the attempt failed, the value is that of the invocation, which is no list.
    """
    kind = kind_tried(op)
    hit = op.value if isinstance(op.value, list | tuple) else ()
    if op.f in _HIT_LAST and hit:
        hit = hit[-1]
    return kind if hit else ""


def kind_tried(op: Op) -> str:
    """Return the kind of fault whose attempt ends with this line; empty if none."""
    if op.process != NEMESIS or op.type is OpType.INVOKE:
        return ""
    if op.f == "inject":
        # By a plan for the simulator, where the kind is a part of the value.
        return str(op.value[0]) if isinstance(op.value, list | tuple) and op.value else ""
    return _KINDS.get(op.f, "")


def in_words(op: Op) -> str:
    """Describe what the nemesis has done by this line: `partition: broker-3 cut off`."""
    if op.error is not None and not kind_struck(op):
        return f"{op.f} failed: {op.error}"
    if op.f == HEAL:
        return "all healed"
    if not isinstance(op.value, list | tuple) or not op.value:
        return op.f if op.f not in _KINDS else f"{op.f}: nobody"
    match op.f, op.value:
        case "partition", [kind, links]:
            return f"partition: {_cut_off(kind, links)}"
        case "slow", [quality, links]:
            return f"slow: links of {links[0][0] if links else 'nobody'} {_slower(quality)}"
        case "break-disk", [node, kind]:
            return f"break-disk: {node} {kind}"
        case "skew", skewed:
            return "skew: " + ", ".join(f"{node} {by_ms / 1000:+.0f} s" for node, by_ms in skewed)
        case "reassign", [number, replicas]:
            return f"reassign: partition {number} to {', '.join(map(str, replicas))}"
        case "renew-certificates", [authority, nodes]:
            return f"renew-certificates: {', '.join(nodes)} by authority {authority}"
        case "lower-feature", [feature, level]:
            return f"lower-feature: {feature} to {level}"
    return f"{op.f}: {', '.join(map(str, op.value))}"


def _cut_off(kind: str, links: Sequence[Sequence[str]]) -> str:
    role = kind.removeprefix("isolate-")
    of_role = f" ({role})" if role != kind else ""
    if kind.startswith("isolate"):
        return f"{links[0][0] if links else 'nobody'} cut off{of_role}"
    if kind == "one_way":
        return f"{links[0][0]} sends to nobody" if links else kind
    if kind == "halves" and links:
        one = sorted({link[0] for link in links if link[1] == links[0][1]})
        other = sorted({link[0] for link in links} - set(one))
        return f"{', '.join(one)} from {', '.join(other)}"
    return f"{kind} of {', '.join(sorted({node for link in links for node in link}))}"


def _slower(quality: Sequence[float]) -> str:
    delay_ms, loss, bytes_per_s = quality
    if delay_ms:
        return f"delay by {delay_ms:g} ms"
    return f"lose {loss:.0%}" if loss else f"carry {bytes_per_s:g} bytes/s"


@dataclass(frozen=True, slots=True)
class _UntilItStrikes(Generator):
    """Until a fault of the kind has struck."""

    kind: str
    inner: Generator
    done: bool = False

    def next_op(self, context: Context) -> Next:
        found = None if self.done else self.inner.next_op(context)
        return None if found is None else (found[0], replace(self, inner=found[1]))

    def updated(self, context: Context, event: Op) -> Generator:
        done = self.done or kind_struck(event) == self.kind
        return _UntilItStrikes(self.kind, self.inner.updated(context, event), done)


@dataclass(frozen=True, slots=True)
class _Chance(Plain):
    """Operations `begin` of any of the kinds, each followed by `end`, with chance pauses."""

    begin: str
    end: str
    kinds: Sequence[str]
    interval_s: float

    def next_op(self, context: Context) -> Next:
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
    time_limit_s: float | None = None,
    roles: bool = False,
    disks: Sequence[str] = (),
    features: Sequence[str] = (),
) -> Generator:
    """Return the faults of these names, on average `interval_s` apart; several come in rounds.

    Each strikes once before that, one after the other: a kind that never struck was not tested.
    Where `time_limit_s` is short for that, they follow each other sooner. `roles`: the cluster has
    partition leaders and coordinators that can be meant. `disks`: what the environment can do to a
    disk; `features`: those that the cluster has. KeyError.
    """
    kinds = {DISK: tuple(disks), FEATURES: tuple(features)}
    packages = PACKAGES | {name: replace(PACKAGES[name], kinds=kinds[name]) for name in kinds}
    if not names:
        return NOTHING
    parts = [Cycle(_of(packages[name], interval_s, roles=roles)) for name in names]
    first_s = interval_s
    if time_limit_s is not None:
        # A fault takes an interval until it strikes, and one until it ends.
        first_s = min(interval_s, OPENING_PART * time_limit_s / (2 * len(names)))
    opening = [_opening(name, packages[name], first_s, roles=roles) for name in names]
    rest = parts[0] if len(parts) == 1 else Cycle(_Round(tuple(parts), interval_s))
    return nemesis(Then((*opening, rest)))


def _opening(name: str, one: Package, interval_s: float, *, roles: bool) -> Generator:
    """A fault that is tried until it strikes, or for long enough; then it ends."""
    tries = Cycle(_of(replace(one, end=""), interval_s, roles=roles))
    strikes = TimeLimit(PATIENCE_INTERVALS * interval_s, _UntilItStrikes(name, tries))
    if not one.end:
        return strikes
    return Then((strikes, Sleep(interval_s), Once(Todo(one.end))))


def _of(one: Package, interval_s: float, *, roles: bool) -> Generator:
    kinds = (*one.kinds, *one.by_role) if roles else one.kinds
    return _Chance(one.begin, one.end, kinds, interval_s)


def healing() -> Generator:
    """Return the last operation: whatever is broken is made whole."""
    return nemesis(Once(Todo(HEAL)))
