"""Histories for the checkers' tests: made by hand, made at random, judged by trying everything."""

from __future__ import annotations

import csv
from itertools import count
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable._machine import call_of, observed
from jepsen.checkers.linearizable.models import ILLEGAL
from jepsen.history import Op, OpType, operations

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import Path

    from jepsen.checkers.linearizable.models import Model
    from jepsen.history import Operation


KNOWN = [("porcupine", "linearizable"), ("knossos", "valid")]
"""Where verdicts of other checkers come from, and the column that has them."""
_MODELS = {
    "register_cas_nil_init": "cas-register",
    "kv_string_append_per_key": "kv",
    "mutex(false)": "mutex",
}
"""As the command line calls them, where that differs."""


def known(
    histories: Path, origin: str, column: str
) -> tuple[dict[str, bool], dict[str, list[str]]]:
    """The verdicts by file, and the files by the `--model` for which they are."""
    with (histories / origin / "expected.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_model: dict[str, list[str]] = {}
    for row in rows:
        model = _MODELS.get(row["model"], row["model"])
        by_model.setdefault(model, []).append(str(histories / row["file"]))
    return {str(histories / row["file"]): row[column] == "true" for row in rows}, by_model


def history(*lines: tuple[Any, ...]) -> list[Op]:
    """(process, type, f, value[, key]) a line."""
    return [
        Op(index, index, process, OpType(kind), f, value, *rest)
        for index, (process, kind, f, value, *rest) in enumerate(lines)
    ]


def made_history(
    rng: random.Random,
    *,
    operation_count: int,
    concurrency: int,
    domain: int = 3,
    crashes: float = 0.0,
    functions: tuple[str, ...] = ("read", "write", "cas"),
) -> list[Op]:
    """A linearizable history of a register that begins as nil: each call takes effect once.

    Calls that crash take effect or not, perhaps long after.
    """
    value: int | None = None
    processes = count(concurrency)
    idle = list(range(concurrency))
    pending: list[tuple[int, str, Any]] = []
    crashed: list[tuple[str, Any]] = []
    finished: list[tuple[int, str, Any, OpType]] = []
    lines: list[tuple[Any, ...]] = []
    begun = 0
    while begun < operation_count or pending or finished:
        choice = rng.random()
        if choice < 0.4 and idle and begun < operation_count:
            process = idle.pop(rng.randrange(len(idle)))
            f = rng.choice(functions)
            argument: Any = None if f == "read" else rng.randrange(domain)
            argument = [argument, rng.randrange(domain)] if f == "cas" else argument
            lines.append((process, "invoke", f, argument))
            pending.append((process, f, argument))
            begun += 1
        elif choice < 0.7 and pending:
            process, f, argument = pending.pop(rng.randrange(len(pending)))
            if rng.random() < crashes:
                lines.append((process, "info", f, argument))
                crashed.append((f, argument))
                idle.append(next(processes))
                continue
            value, result, kind = _done(value, f, argument)
            finished.append((process, f, result, kind))
        elif choice < 0.75 and crashed:
            value = _done(value, *crashed.pop(rng.randrange(len(crashed))))[0]
        elif finished:
            process, f, result, kind = finished.pop(rng.randrange(len(finished)))
            lines.append((process, kind, f, result))
            idle.append(process)
    return history(*lines)


def _done(value: int | None, f: str, argument: Any) -> tuple[int | None, Any, OpType]:
    if f == "read":
        return value, value, OpType.OK
    if f == "write":
        return argument, argument, OpType.OK
    expected, new = argument
    return (new, argument, OpType.OK) if value == expected else (value, argument, OpType.FAIL)


def spoiled(rng: random.Random, lines: list[Op], domain: int = 3) -> list[Op]:
    """The history with the result of one read or the outcome of one cas changed."""
    at = [op.index for op in lines if op.type in ("ok", "fail") and op.f in ("read", "cas")]
    if not at:
        return lines
    index = rng.choice(at)
    op = lines[index]
    kind, value = op.type, op.value
    if op.f == "read":
        value = rng.randrange(domain)
    else:
        kind = OpType.FAIL if kind is OpType.OK else OpType.OK
    changed = Op(op.index, op.time, op.process, kind, op.f, value)
    return [*lines[:index], changed, *lines[index + 1 :]]


def linearizable_by_force(lines: Iterable[Op], model: Model) -> bool:
    """Tries every order that the times allow, with and without what crashed."""
    relevant = [
        operation
        for operation in operations(lines)
        if observed(operation, model) or operation.type is OpType.INFO
    ]
    return _fits(model.initial, relevant, model)


def _fits(state: Any, left: list[Operation], model: Model) -> bool:
    if all(operation.type is OpType.INFO for operation in left):
        return True
    first_return = min(_end(operation) for operation in left)
    for index, operation in enumerate(left):
        if operation.invoke.index > first_return:
            continue
        after = model.step(state, call_of(operation))
        rest = left[:index] + left[index + 1 :]
        if after is not ILLEGAL and _fits(after, rest, model):
            return True
    return False


def _end(operation: Operation) -> float:
    completion = operation.completion
    crashed = completion is None or completion.type is OpType.INFO
    return float("inf") if crashed or completion is None else completion.index
