"""Registers, many side by side: arrays of a row an operation and a column a key.

Each operation takes effect at one moment between its invocation and its completion, so a history
is linearizable; those that crash take effect or not. In a key that is to be wrong three operations,
one after the other, write a value, write another, and read the first: both occur nowhere else, so
that nothing explains it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jepsen.history.table import NULL
from jepsen.spark.generate.recipe import UNIQUE_REGISTER, Expected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.spark.generate.recipe import Recipe

DOMAIN = 5
"""Values that operations draw from unless each write has one of its own."""
_READ, _WRITE, _CAS = range(3)
_NAMES = np.array(["read", "write", "cas"])
_NIL = -1
_NEAR = 0.4
"""What two neighbours that reach no further apart from their moments do not overlap."""
Array = Any
"""Of numpy; a row an operation, a column a key."""


@dataclass
class _Plan:
    """What the operations are to do, before anything has happened."""

    f: Array
    argument: Array
    compared: Array
    """What `cas` compares with."""
    crashed: Array
    effective: Array
    moments: Array
    """When operations take effect, in the order of their numbers; keys have the same."""
    invoked: Array
    completed: Array


def expected(recipe: Recipe) -> Iterator[Expected]:
    """The keys that are not linearizable."""
    for key in range(recipe.keys):
        for _ in recipe.faults_of(key):
            yield Expected(json.dumps(key), "nonlinearizable", None)


def batches(recipe: Recipe, group: int) -> Iterator[dict[str, Any]]:
    """The operations of a group of keys, by column."""
    rng = np.random.default_rng([recipe.seed, group])
    keys = np.array(recipe.keys_of(group))
    plan = _plan(recipe, rng, len(keys))
    wrong = np.flatnonzero([len(recipe.faults_of(key)) for key in keys.tolist()])
    misread = _plant(plan, wrong, recipe, rng)
    found, process = _happen(plan, recipe.processes)
    for at, column, value in misread:
        found[at, column] = value
    invoke_index, complete_index = _lines(plan, keys, recipe.keys)
    failed = (plan.f == _CAS) & (found != plan.compared)
    kind = np.where(plan.crashed, "info", np.where(failed, "fail", "ok"))
    # A process is one key's alone, and after a crash goes on as another.
    first = keys * (2 * recipe.processes + recipe.operations_a_key)
    argument = _arguments(plan)
    read = pa.array(((plan.f == _READ) & ~plan.crashed & (found != _NIL)).ravel())
    yield {
        "key": pc.cast(pa.array(np.broadcast_to(keys, plan.f.shape).ravel()), pa.string()),
        "process": (process + first).ravel(),
        "f": _NAMES[plan.f].ravel(),
        "type": kind.ravel(),
        "invoke_index": invoke_index.ravel(),
        "complete_index": complete_index.ravel(),
        "argument": argument,
        "result": pc.if_else(read, _text(found), argument),
    }


def _plan(recipe: Recipe, rng: np.random.Generator, keys: int) -> _Plan:
    shape = recipe.operations_a_key, keys
    numbers = np.arange(shape[0])[:, None]
    unique = recipe.workload == UNIQUE_REGISTER
    # The next operation of the same process comes `processes` later: they never overlap.
    reach = recipe.processes / 2
    moments = numbers
    crashed = rng.random(shape) < recipe.crashes
    f = rng.integers(_WRITE + 1 if unique else _CAS + 1, size=shape)
    if recipe.barrier_every:
        # Those on both sides of a barrier reach no further than to its middle.
        moments = numbers + numbers // recipe.barrier_every * recipe.processes
        crashed &= f == _READ
    return _Plan(
        f=f,
        argument=np.tile(numbers, keys) if unique else rng.integers(DOMAIN, size=shape),
        compared=rng.integers(DOMAIN, size=shape),
        crashed=crashed,
        effective=~crashed | (rng.random(shape) < 0.5),
        moments=moments[:, 0],
        invoked=moments - rng.random(shape) * reach,
        completed=moments + rng.random(shape) * reach,
    )


def _plant(
    plan: _Plan, wrong: Array, recipe: Recipe, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    """Puts the three operations into the keys; (operation, key, value) of what is read wrongly."""
    count = len(plan.f)
    one, other = count + DOMAIN, count + DOMAIN + 1
    misread = []
    for column in wrong.tolist():
        at = int(rng.integers(count - 2))
        here = slice(at, at + 3), column
        plan.f[here] = _WRITE, _WRITE, _READ
        plan.argument[here] = one, other, 0
        plan.crashed[here] = False
        plan.effective[here] = True
        plan.invoked[here] = plan.moments[at : at + 3] - _NEAR
        plan.completed[here] = plan.moments[at : at + 3] + _NEAR
        misread.append((at + 2, column, one))
    return misread


def _happen(plan: _Plan, processes: int) -> tuple[Array, Array]:
    """(the value that each operation finds, the process that does it)."""
    found, process = np.empty_like(plan.f), np.empty_like(plan.f)
    state = np.full(plan.f.shape[1], _NIL)
    clients = np.tile(np.arange(processes)[:, None], plan.f.shape[1])
    for at, f in enumerate(plan.f):
        found[at] = state
        client = clients[at % processes]
        process[at] = client
        client += processes * plan.crashed[at]
        writes = (f == _WRITE) | ((f == _CAS) & (state == plan.compared[at]))
        state = np.where(writes & plan.effective[at], plan.argument[at], state)
    return found, process


def _lines(plan: _Plan, keys: Array, all_keys: int) -> tuple[Array, Array]:
    """(invoke_index, complete_index): the keys take turns, so lines differ, and within a key they
    are in the order of the moments.
    """
    order = np.argsort(np.concatenate((plan.invoked, plan.completed)), axis=0)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(order))[:, None], axis=0)
    invoked, completed = np.split(ranks * all_keys + keys, 2)
    return invoked, completed


def _arguments(plan: _Plan) -> pa.Array:
    """What was asked, as text."""
    value = _text(plan.argument)
    pairs = pc.binary_join_element_wise("[", _text(plan.compared), ",", value, "]", "")
    written = pc.if_else(pa.array((plan.f == _CAS).ravel()), pairs, value)
    return pc.if_else(pa.array((plan.f == _READ).ravel()), NULL, written)


def _text(numbers: Array) -> pa.Array:
    return pc.cast(pa.array(numbers.ravel()), pa.string())
