"""Histories of registers as the tables that compiled loops take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._machine import observed
from jepsen.compiled import codes
from jepsen.history import OpType, operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.checkers.linearizable.models import Register
    from jepsen.history import Op, Operation

NIL = -(2**40)
"""The code of nil."""


def table_of(histories: Sequence[list[Op]], model: Register) -> tuple[Any, Any]:
    """(starts, rows) for `jepsen.compiled.registers.judge_table`, a key for each history."""
    import numpy as np

    starts, rows = [0], []
    for lines in histories:
        relevant = [
            one for one in operations(lines) if observed(one, model) or one.type is OpType.INFO
        ]
        rows += [_row(one) for one in sorted(relevant, key=lambda one: one.invoke.index)]
        starts.append(len(rows))
    return np.array(starts), np.array(rows, np.int64).reshape(-1, 6)


def _row(one: Operation) -> tuple[int, ...]:
    """(f, a, b, invoked, returned, returned)."""
    invoke, completion = one.invoke, one.completion
    known = completion is not None and one.type is not OpType.INFO
    returned = completion.index if known and completion is not None else codes.NEVER
    a, b = NIL, 0
    if invoke.f == "cas":
        a, b = invoke.value
        f = codes.FAILED_CAS if one.type is OpType.FAIL else codes.CAS
    else:
        f = codes.READ if invoke.f == "read" else codes.WRITE
        value = invoke.value if invoke.f == "write" or completion is None else completion.value
        a = NIL if value is None else value
    return f, a, b, invoke.index, returned, returned
