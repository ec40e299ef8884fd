"""The smallest part of a run's faults with which it is still invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.errors import InputError
from jepsen.nemesis.plan import performed, smallest

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.checkers.verdict import Valid
    from jepsen.core.spec import RunSpec
    from jepsen.nemesis.plan import Places, Plan
    from jepsen.store import RunFolder


def shrink(folder: RunFolder, run: Callable[[RunSpec], Valid]) -> Plan | None:
    """Leave faults out of a run's plan while `run` of the rest is invalid.

    The plan is that of the specification, or else what the nemesis did by chance. `run` performs a
    specification and returns its verdict. Returns None if the whole plan does not fail again.
    InputError for a run without faults.
    """
    spec = folder.spec
    plan = spec.plan or performed(folder.history())
    if not plan:
        raise InputError(f"{folder.path}: no fault struck in this run")

    def fails(places: Places, operations: int = 0) -> bool:
        del operations
        return run(spec.with_plan(tuple(plan[place] for place in places))) is False

    if not fails(tuple(range(len(plan)))):
        return None
    places, _ = smallest(len(plan), fails)
    return tuple(plan[place] for place in places)
