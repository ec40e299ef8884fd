"""Rules of access: no broker lets anybody do what the rules that it has do not allow.

`add` and `remove` of a rule, `[permission, principal, operation, resource type, pattern type,
resource name]`, such as `["ALLOW", "User:alice", "WRITE", "TOPIC", "PREFIXED", "orders-"]`. A `use`
asks one broker for something, `[broker, principal, operation, resource type, resource name]`. It
ends `ok` with ALLOWED or DENIED behind that; any other end says nothing. `reached` ends with the
brokers whose rules have every change that was acknowledged before it began.

A change is acknowledged before all brokers have it. Each takes it up at a time of its own: not
before it is asked for, and no later than the end of a `reached` that names the broker. A change
with an unknown outcome may be taken up at any time, or never. What is acknowledged before another
is asked for is taken up before it. So the rules of a broker are a register of which changes are
delayed writes and uses are reads, and its uses must have an order that the times allow. Each
(broker, principal, operation, resource) is judged alone: rules for other resources change nothing.

There are no rules before the first change. A rule that is there is not added twice. Hosts and super
users are not judged. Sources: KIP-11, KIP-290; Herlihy and Wing, linearizability.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.history import OpType, operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.history import Op, Operation

CHANGES = ("add", "remove")
ALLOWED, DENIED = "allowed", "denied"
EVERYBODY, WILDCARD = "User:*", "*"
STATES_MAX = 20_000
"""States of one right that are kept in mind; a search that needs more is cut short."""
_IMPLIED_BY = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}
"""Operation to those whose rules allow it too."""


class Rule(NamedTuple):
    """A rule as a change has it."""

    permission: str
    principal: str
    operation: str
    resource_type: str
    pattern_type: str
    name: str


class Right(NamedTuple):
    """What a use asks for."""

    principal: str
    operation: str
    resource_type: str
    name: str

    def is_matched(self, rule: Rule) -> bool:
        """Return whether the rule is for this principal and resource."""
        named = (
            self.name.startswith(rule.name)
            if rule.pattern_type == "PREFIXED"
            else rule.name in (self.name, WILDCARD)
        )
        return (
            named
            and rule.resource_type == self.resource_type
            and rule.principal in (self.principal, EVERYBODY)
        )

    def decision(self, rules: frozenset[Rule]) -> str:
        """Return what the rules, all of them matching, say: one that denies wins."""
        named = (self.operation, "ALL")
        allowing = (*named, *_IMPLIED_BY.get(self.operation, ()))
        if any(one.permission == "DENY" and one.operation in named for one in rules):
            return DENIED
        allowed = any(one.permission == "ALLOW" and one.operation in allowing for one in rules)
        return ALLOWED if allowed else DENIED


class _Change(NamedTuple):
    begin: int
    """The line at which it was asked for."""
    acknowledged: float
    """The line at which it was; infinite if the outcome is unknown."""
    adds: bool
    rule: Rule

    def applied(self, rules: frozenset[Rule]) -> frozenset[Rule]:
        """Return the rules after it."""
        return rules | {self.rule} if self.adds else rules - {self.rule}


class _Use(NamedTuple):
    begin: int
    end: int
    decision: str


class _Reach(NamedTuple):
    begin: int
    end: int


class _State(NamedTuple):
    """How far a broker may have come."""

    taken_up: frozenset[int]
    """Changes, by number, which it has and need not have."""
    rules: frozenset[Rule]
    explained: frozenset[int]
    """Uses under way, by number, whose decision was right at some time since they began."""


_BEFORE_ALL = _State(frozenset(), frozenset(), frozenset())


@dataclass(slots=True)
class _Found:
    """Findings on one right at one broker."""

    wrong: list[tuple[_Use, list[int]]] = field(default_factory=list)
    """Each with the lines of the changes that had reached the broker."""
    certain: int = 0
    """Uses that one decision alone was right for."""
    cut_short: bool = False


class _Search:
    """The states in which one broker may be, as far as one right is concerned.

    Uses and reaches are taken in the order in which they end, changes as they begin. A change is
    taken up only where an end needs it: to do so earlier allows nothing more.
    """

    def __init__(self, right: Right, changes: Sequence[_Change], states_max: int) -> None:
        self._right = right
        self._changes = changes
        self._states_max = states_max
        self._states = {_BEFORE_ALL}
        self._open: set[int] = set()
        """Changes that have begun, and that the broker need not have."""
        self._reached: list[int] = []
        self._under_way: dict[int, str] = {}
        self.found = _Found()

    def run(self, uses: Sequence[_Use], reaches: Sequence[_Reach]) -> _Found:
        """Judge all uses; those behind a search that was cut short are not judged."""
        steps: list[tuple[int, Callable[[Any], None], Any]] = [
            *((one.begin, self._begin_change, number) for number, one in enumerate(self._changes)),
            *((one.begin, self._begin_use, (n, one)) for n, one in enumerate(uses)),
            *((one.end, self._end_use, (n, one)) for n, one in enumerate(uses)),
            *((one.end, self._reach, one) for one in reaches),
        ]
        for _, step, of in sorted(steps, key=lambda step: step[0]):
            step(of)
            if self.found.cut_short:
                break
        return self.found

    def _begin_change(self, number: int) -> None:
        self._open.add(number)

    def _begin_use(self, numbered: tuple[int, _Use]) -> None:
        number, use = numbered
        self._under_way[number] = use.decision
        self._states = {self._explaining(state) for state in self._states}

    def _end_use(self, numbered: tuple[int, _Use]) -> None:
        number, use = numbered
        possible = self._reachable()
        if self.found.cut_short:
            return
        explained = {state for state in possible if number in state.explained}
        if not explained:
            lines = [int(self._changes[one].acknowledged) for one in self._reached]
            self.found.wrong.append((use, lines))
        decisions = {self._right.decision(state.rules) for state in possible}
        self.found.certain += len(decisions) == 1
        del self._under_way[number]
        self._states = {
            state._replace(explained=state.explained - {number}) for state in explained or possible
        }

    def _reach(self, reach: _Reach) -> None:
        """The broker has every change that was acknowledged before this began."""
        known = {one for one in self._open if self._changes[one].acknowledged < reach.begin}
        if known:
            self._states = {
                state._replace(taken_up=state.taken_up - known)
                for state in self._reachable()
                if state.taken_up >= known
            }
            self._open -= known
            self._reached += sorted(known)

    def _reachable(self) -> set[_State]:
        """The states and those that open changes make of them."""
        found = set(self._states)
        left = list(found)
        while left:
            if len(found) > self._states_max:
                self.found.cut_short = True
                break
            state = left.pop()
            for number in self._open - state.taken_up:
                if not self._waits(number, state):
                    rules = self._changes[number].applied(state.rules)
                    taken_up = state.taken_up | {number}
                    after = self._explaining(state._replace(taken_up=taken_up, rules=rules))
                    if after not in found:
                        found.add(after)
                        left.append(after)
        return found

    def _waits(self, number: int, state: _State) -> bool:
        """Whether a change that was acknowledged before this one began is to be taken up first."""
        begin = self._changes[number].begin
        return any(self._changes[one].acknowledged < begin for one in self._open - state.taken_up)

    def _explaining(self, state: _State) -> _State:
        decision = self._right.decision(state.rules)
        right = {number for number, wanted in self._under_way.items() if wanted == decision}
        return state._replace(explained=state.explained | right)


def check_acl(history: Sequence[Op], states_max: int = STATES_MAX) -> Verdict:
    """`used-without-right`, `denied-with-right`.

    Unknown if the search was cut short, or no use shows anything: each might have been otherwise.
    """
    mine = operations(history)
    changes = [
        _change(one) for one in mine if one.invoke.f in CHANGES and one.type is not OpType.FAIL
    ]
    reaches = _reaches(mine)
    uses = _uses(mine)
    anomalies: list[Anomaly] = []
    certain = 0
    cut_short = []
    for (broker, right), tries in uses.items():
        matching = [one for one in changes if right.is_matched(one.rule)]
        found = _Search(right, matching, states_max).run(tries, reaches.get(broker, ()))
        certain += found.certain
        anomalies += [_anomaly(broker, right, use, lines) for use, lines in found.wrong]
        if found.cut_short:
            cut_short.append(f"broker {broker}: {' '.join(right)}")
    reason = "" if certain else "no use shows what the rules are"
    if cut_short:
        reason = f"more than {states_max} states: {'; '.join(cut_short)}"
    return judge(
        anomalies,
        why_unknown=reason,
        changes=len(changes),
        rights=len(uses),
        uses=sum(len(tries) for tries in uses.values()),
        certain_uses=certain,
    )


def _change(one: Operation) -> _Change:
    known = one.completion is not None and one.type is OpType.OK
    acknowledged = one.completion.index if known and one.completion else float("inf")
    return _Change(one.invoke.index, acknowledged, one.invoke.f == "add", Rule(*one.invoke.value))


def _reaches(mine: Sequence[Operation]) -> dict[Any, list[_Reach]]:
    """By the broker that was reached."""
    found: dict[Any, list[_Reach]] = {}
    for one in mine:
        if one.invoke.f == "reached" and one.type is OpType.OK and one.completion is not None:
            for broker in one.value:
                reach = _Reach(one.invoke.index, one.completion.index)
                found.setdefault(broker, []).append(reach)
    return found


def _uses(mine: Sequence[Operation]) -> dict[tuple[Any, Right], list[_Use]]:
    """By the broker that was asked, and the right."""
    found: dict[tuple[Any, Right], list[_Use]] = {}
    for one in mine:
        if one.invoke.f == "use" and one.type is OpType.OK and one.completion is not None:
            broker, *right, decision = one.value
            use = _Use(one.invoke.index, one.completion.index, decision)
            found.setdefault((broker, Right(*right)), []).append(use)
    return found


def _anomaly(broker: Any, right: Right, use: _Use, lines: Sequence[int]) -> Anomaly:
    name = "used-without-right" if use.decision == ALLOWED else "denied-with-right"
    return Anomaly(name, {"broker": broker, **right._asdict()}, (*lines[-1:], use.begin, use.end))
