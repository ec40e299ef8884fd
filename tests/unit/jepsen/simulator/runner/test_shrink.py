"""A failing run is made smaller as long as it fails, in a bounded number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jepsen.nemesis.plan import RUNS_MAX, Fault
from jepsen.simulator.cuts import Cuts
from jepsen.simulator.runner.many import shrink

if TYPE_CHECKING:
    from jepsen.nemesis.plan import Plan

pytestmark = pytest.mark.req("J1")


def plan_of(faults: int) -> Plan:
    return tuple(Fault("kill", number, 1, ("broker-1",)) for number in range(faults))


def size(faults: int, operations: int) -> str:
    cuts = Cuts()
    cuts.keep_faults(plan_of(faults))
    cuts.keep_operations(operations)
    return cuts.size_line()


@pytest.mark.parametrize("needed", [(), (3,), (0, 7), (2, 4, 9)])
def test_only_the_faults_that_matter_are_left(needed: tuple[int, ...]) -> None:
    def fails(cuts: Cuts) -> bool:
        assert cuts.faults is not None
        return set(needed) <= set(cuts.faults) and (cuts.operations or 64) >= 10

    small = shrink(size(10, 64), fails)
    assert small == Cuts(needed, 16)


def test_what_cannot_be_cut_stays_whole() -> None:
    assert shrink(size(4, 1), lambda cuts: False) is None
    assert shrink("Traceback: no size was told", lambda cuts: True) is None


def test_the_number_of_runs_is_bounded() -> None:
    runs = []

    def fails(cuts: Cuts) -> bool:
        runs.append(cuts)
        return len(cuts.faults or ()) >= 150

    shrink(size(200, 1000), fails)
    assert len(runs) == RUNS_MAX


def test_cuts_survive_the_command_line() -> None:
    for cuts in (Cuts(), Cuts((), 5), Cuts((0, 3)), Cuts(None, 7)):
        options = cuts.options()
        faults = options[options.index("--faults") + 1] if "--faults" in options else None
        assert Cuts.parse(faults, cuts.operations) == cuts


def test_cuts_keep_places_of_the_plan() -> None:
    cuts = Cuts((1, 9), 4)
    plan = plan_of(3)
    assert cuts.keep_faults(plan) == cuts.kept == (plan[1],)
    assert Cuts(plan=plan[2:]).keep_faults(plan) == (plan[2],)
    assert Cuts(plan=()).keep_faults(plan) == ()
    assert (cuts.keep_operations(3), cuts.keep_operations(10)) == (3, 4)
