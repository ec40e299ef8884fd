"""A run in numbers: writes that were acknowledged, and how long they were interrupted."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication.trace import LEADER
from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.history import Op

SEND = "send"


def summary_of(history: Sequence[Op], time_limit_s: float) -> dict[str, Any]:
    """Operations, acknowledged records, and seconds of interruption and failover.

    `longest_interruption_s` is the longest time before `time_limit_s` in which no client's write
    succeeded, `new_controller_s` the time from the kill of the active controller until another was
    observed; None if it was not killed, or none was observed.
    """
    sends = [op for op in history if op.by_client and op.f == SEND and op.type is OpType.OK]
    times = [op.time for op in sends if op.time <= time_limit_s * SECOND_NS]
    longest_ns = max((later - earlier for earlier, later in pairwise(times)), default=0)
    return {
        "operations": sum(op.by_client and op.type is OpType.INVOKE for op in history),
        "acknowledged": sum(len(op.value) for op in sends),
        "longest_interruption_s": round(longest_ns / SECOND_NS, 3),
        "new_controller_s": _new_controller_s(history),
    }


def _new_controller_s(history: Sequence[Op]) -> float | None:
    leader, killed_ns = "", None
    for op in history:
        if op.process == OBSERVER and op.f == LEADER and op.value:
            if killed_ns is not None and op.value[0] != leader:
                return round((op.time - killed_ns) / SECOND_NS, 3)
            leader = op.value[0] if killed_ns is None else leader
        elif (op.process, op.f, op.type) == (NEMESIS, "kill", OpType.INFO) and leader in op.value:
            killed_ns = op.time
    return None
