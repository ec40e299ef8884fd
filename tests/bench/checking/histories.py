"""The histories that both judge, in the form of either."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from jepsen.checkers.linearizable._machine import observed
from jepsen.checkers.linearizable.models import Register
from jepsen.history import OpType, operations
from tests.unit.jepsen.histories import made_history

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op, Operation

MODEL = Register(failed_cas_observes=True)
DOMAIN = 5
NEVER_WRITTEN = 99
NOTHING = -1
FUNCTIONS = {"read": 0, "write": 1, "cas": 2}


def one_register(
    operation_count: int, concurrency: int, *, seed: int = 1, crashes: float = 0.0
) -> list[Op]:
    """Reads, writes and compare-and-sets in equal parts: linearizable."""
    return made_history(
        random.Random(seed),
        operation_count=operation_count,
        concurrency=concurrency,
        domain=DOMAIN,
        crashes=crashes,
    )


def with_crashed(operation_count: int, concurrency: int, crashed: int) -> list[Op]:
    """One register's history in which so many operations have an unknown outcome."""
    seed = 0
    while True:
        seed += 1
        lines = one_register(
            operation_count, concurrency, seed=seed, crashes=crashed / operation_count
        )
        if sum(op.type is OpType.INFO for op in lines) == crashed:
            return lines


def last_read_spoiled(lines: Sequence[Op]) -> list[Op]:
    """The history with a value that nobody has written in its last read: not linearizable."""
    last = max(op.index for op in lines if op.type is OpType.OK and op.f == "read")
    return [
        *lines[:last],
        replace(lines[last], value=NEVER_WRITTEN),
        *lines[last + 1 :],
    ]


def many_registers(keys: int, operations_each: int, concurrency: int) -> list[Op]:
    """The histories of as many registers, one line of each after the other."""
    each = [one_register(operations_each, concurrency, seed=key) for key in range(keys)]
    merged: list[Op] = []
    for at in range(max(map(len, each))):
        for key, lines in enumerate(each):
            if at < len(lines):
                op, index = lines[at], len(merged)
                process = key * concurrency + int(op.process)
                merged.append(replace(op, index=index, time=index, process=process, key=key))
    return merged


def porcupine_lines(lines: Sequence[Op]) -> Iterator[str]:
    """A line an operation, as `porcupine/main.go` reads them."""
    for one in operations(lines):
        if line := porcupine_line(one, len(lines)):
            yield line


def porcupine_line(one: Operation, end: int) -> str:
    """The operation's line, or none if it has not happened.

    Porcupine knows no unknown outcomes: such an operation returns at the `end`, after all others,
    and what it returned says nothing.
    """
    invoke, completion = one.invoke, one.completion
    if one.type is OpType.FAIL and not observed(one, MODEL):
        return ""
    known = completion is not None and one.type is not OpType.INFO
    argument, following, value = NOTHING, NOTHING, NOTHING
    if invoke.f == "write":
        argument = invoke.value
    elif invoke.f == "cas":
        argument, following = invoke.value
    elif known and completion is not None and completion.value is not None:
        value = completion.value
    words = (
        0 if invoke.key is None else invoke.key,
        invoke.process,
        FUNCTIONS[invoke.f],
        argument,
        following,
        one.type,
        value,
        invoke.index,
        completion.index if known and completion is not None else end,
    )
    return " ".join(map(str, words))
