"""Topics of a Kafka cluster: acknowledged creations and deletions hold, each is done once.

`create` with a number of partitions, `grow` to more, `delete`, of a topic, which is the key;
`topics` at the end, answered by all brokers alike: `{topic: partitions}`. Each topic must be
linearizable, as far as Kafka promises that: what is acknowledged is done, once, in between. A
refusal says nothing. Brokers send again what was not answered, so that a creation may be refused
because of itself, and a controller that was deposed without noticing refuses by what was once true.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable import Budget, check_linearizable, nonlinearizable
from jepsen.checkers.linearizable.models import ILLEGAL, Model
from jepsen.checkers.verdict import Verdict, judge
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.checkers.linearizable.models import Call
    from jepsen.history import Op

TOPICS = "topics"
CHANGES = ("create", "grow", "delete")
ABSENT = 0


class Topic(Model):
    """The numbers of partitions that a topic may have, 0 where it may not be there.

    Several, since a refused change may have been made: a set of states is one state here.
    """

    initial = frozenset({ABSENT})
    observed_failures = CHANGES

    def only_reads(self, call: Call) -> bool:
        return False  # a look shows which of several states it is

    def overwrites(self, call: Call) -> bool:
        return False

    def step(self, state: frozenset[int], call: Call) -> Any:
        changed = frozenset(self._changed(state, call))
        if call.type is OpType.FAIL:
            return state | changed
        # Nobody knows, and it had no effect: then it may as well not have happened.
        return changed or (state if call.type is OpType.INFO else ILLEGAL)

    def _changed(self, state: frozenset[int], call: Call) -> Iterator[int]:
        """What the topic is after the call, wherever it can be done."""
        for partitions in state:
            match call.f:
                case "create" if partitions == ABSENT:
                    yield call.argument
                case "grow" if ABSENT < partitions < call.argument:
                    yield call.argument
                case "delete" if partitions != ABSENT:
                    yield ABSENT
                case "topics" if partitions == call.result:
                    yield partitions
                case "create" | "grow" | "delete" | "topics":
                    pass
                case _:
                    raise ValueError(f"a topic has no {call.f}")


def check_topics(history: Sequence[Op], budget: Budget | None = None) -> Verdict:
    """`nonlinearizable`; unknown if nobody has read the topics at the end, or the budget is spent.

    Raises HistoryError.
    """
    result = check_linearizable(_by_topic(history), Topic(), budget or Budget())
    reasons = {one.why_unknown for one in result.keys if one.why_unknown}
    read = any(op.f == TOPICS and op.type is OpType.OK for op in history)
    if not read:
        reasons.add("the topics were not read at the end")
    return judge(
        [nonlinearizable(one) for one in result.failures],
        why_unknown="; ".join(sorted(reasons)),
        topics=len(result.keys),
        operations=sum(one.operation_count for one in result.keys),
    )


def _by_topic(history: Sequence[Op]) -> Iterator[Op]:
    """The operations on topics, with a read of each topic for the one that read all.

    A read of a topic is by a process of its own, since several are under way at once.
    """
    names = list(dict.fromkeys(op.key for op in history if op.by_client and op.f in CHANGES))
    invoked: dict[int | str, Op] = {}
    for op in history:
        if not op.by_client or op.f not in (*CHANGES, TOPICS):
            continue
        if op.f in CHANGES:
            yield op
        elif op.type is OpType.INVOKE:
            invoked[op.process] = op
        elif op.type is OpType.OK:
            for number, name in enumerate(names):
                process = -1 - number
                yield replace(invoked[op.process], process=process, key=name)
                seen = op.value.get(str(name), ABSENT)
                yield replace(op, process=process, key=name, value=seen)
