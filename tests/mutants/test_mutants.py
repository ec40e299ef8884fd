"""The catalogue of planted bugs is sound, and a few of them are caught here and now."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.runner.determinism import RunResult
from tests.mutants import node_scenarios
from tests.mutants.catalog import CATALOG
from tests.mutants.core_scenarios import SCENARIOS as CORE_SCENARIOS
from tests.mutants.core_scenarios import broken_property, try_mutant
from tests.mutants.harness import HUNTS, PAGE, Found, Hunter, finding, page, row, rows_of
from tests.mutants.node_scenarios import SCENARIOS as NODE_SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.runner.fork_server import ForkServers


@pytest.mark.req("J9")
def test_the_catalogue_has_many_bugs_half_of_them_in_whole_nodes() -> None:
    names = [mutant.name for mutant in CATALOG]
    in_nodes = [mutant for mutant in CATALOG if mutant.level == "node"]
    assert len(set(names)) == len(names) >= 20
    assert 2 * len(in_nodes) >= len(names)


def test_every_mutant_names_properties_and_a_scenario_and_leaves_nothing_behind() -> None:
    for mutant in CATALOG:
        scenarios = CORE_SCENARIOS if mutant.level == "core" else NODE_SCENARIOS
        assert mutant.scenario in scenarios
        assert mutant.properties
        before = [patch.original for patch in mutant.patches]
        restore = mutant.plant()
        planted = [patch.original for patch in mutant.patches]
        restore()
        after = [patch.original for patch in mutant.patches]
        assert all(one is not other for one, other in zip(before, planted, strict=True))
        assert all(one is other for one, other in zip(before, after, strict=True))


def test_every_planted_function_is_called_as_the_one_in_whose_place_it_stands() -> None:
    """Else the run fails for another reason than the bug."""
    wrong = []
    for mutant in CATALOG:
        for patch in mutant.patches:
            original = patch.original
            if not inspect.isfunction(original) or not inspect.isfunction(patch.replacement):
                continue
            if _shape(original) != (found := _shape(patch.replacement)) and "*" not in found:
                wrong.append(f"{mutant.name}: {patch.attribute}")
    assert wrong == []


def _shape(function: Callable[..., object]) -> list[str]:
    """The number of positional parameters and the names of the others; * where there are any."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return ["*"]
    named = sorted(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    return [str(len(parameters) - len(named)), *named]


@pytest.mark.req("J9", "Q11", "G4")
@pytest.mark.parametrize(
    "name",
    [
        "two_votes_in_an_epoch",
        "own_log_counts_before_fsync",
        "leader_appends_something_else",
        "leader_appends_twice",
        "leader_never_resigns",
        "downgrade_begins_generations_anew",
        "upgrade_takes_all_for_released",
    ],
)
def test_a_core_mutant_is_caught(name: str) -> None:
    seeds, caught_by, _ = try_mutant(name, 10)
    mutant = next(one for one in CATALOG if one.name == name)
    assert caught_by in mutant.properties
    assert 1 <= seeds <= 10


@pytest.mark.req("J9")
@pytest.mark.timeout(300)
def test_a_planted_bug_is_found_by_a_test_of_the_harness(simulator: ForkServers) -> None:
    """`make bugs-found` tries all; the same run is valid without the bug, or `go` raises."""
    found = Hunter(simulator).go(HUNTS[0], range(1, 3))
    assert found.by


def test_hunts_are_for_bugs_of_the_catalogue() -> None:
    known = {mutant.name for mutant in CATALOG if mutant.level == "node"}
    assert {hunt.mutant for hunt in HUNTS} <= known


@pytest.mark.req("J9")
def test_every_hunt_has_its_row_on_the_page_and_found_its_bug() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert [hunt.scenario for hunt in HUNTS if hunt not in rows] == []
    assert [row for row in rows.values() if "not found" in row] == []
    assert page(rows) == PAGE.read_text(encoding="utf-8")


def test_a_hunt_gone_on_again_replaces_its_row_alone() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    found = Found(HUNTS[1], "a|b", 3, 12.0, 4.0)
    lines = page(rows | {HUNTS[1]: row(found)}).splitlines()
    assert sum(" | a&#124;b | 3 | 12 | 4 |" in line for line in lines) == 1
    assert rows_of("\n".join(lines)) == rows | {HUNTS[1]: row(found)}


def test_a_run_that_was_cut_short_has_found_nothing() -> None:
    """As faulthandler ends it, in the words of its C code."""
    cut = RunResult(7, ok=False, trace_hash="", output="Timeout (0:05:00)!\nThread 0x00007f2 ...")
    with pytest.raises(TimeoutError, match="seed 7"):
        finding(cut)
    told = "ended: InvariantViolation: two lead\nseed 7: FAILED"
    assert (
        finding(RunResult(7, ok=False, trace_hash="", output=told))
        == "simulator-properties: cluster-failed"
    )


@pytest.mark.req("Q2", "Q11")
def test_logs_of_leaders_that_die_early_come_together_again() -> None:
    """Seed 0: a leader's end of an epoch is in the middle of a batch of its follower."""
    assert [broken_property("leaders_die_early", seed) for seed in (0, 1)] == [None, None]


def test_a_property_is_named_also_where_a_client_failed_before_it() -> None:
    raised = (
        "jepsen.simulator.properties._invariants.Violation: one_leader_per_epoch: 1 and 2 lead 3\n"
    )
    told = (
        "WorldFailed: reader at 1000.7 s: OffsetOutOfRangeError({'events': 21})\n"
        'scenario at 1000.8 s: Violation("one_leader_per_epoch: 1 and 2 lead 3")\n'
    )
    for output in (raised, told):
        assert node_scenarios.broken_property(output) == "one_leader_per_epoch"
