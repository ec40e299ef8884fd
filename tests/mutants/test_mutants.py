"""The catalogue of planted bugs is sound, and a few of them are caught here and now."""

from __future__ import annotations

import pytest

from tests.mutants.catalog import CATALOG
from tests.mutants.core_scenarios import SCENARIOS as CORE_SCENARIOS
from tests.mutants.core_scenarios import broken_property, try_mutant
from tests.mutants.node_scenarios import SCENARIOS as NODE_SCENARIOS


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
        before = [vars(patch.owner)[patch.attribute] for patch in mutant.patches]
        restore = mutant.plant()
        planted = [vars(patch.owner)[patch.attribute] for patch in mutant.patches]
        restore()
        after = [vars(patch.owner)[patch.attribute] for patch in mutant.patches]
        assert all(one is not other for one, other in zip(before, planted, strict=True))
        assert all(one is other for one, other in zip(before, after, strict=True))


@pytest.mark.req("J9", "Q11")
@pytest.mark.parametrize(
    "name", ["two_votes_in_an_epoch", "own_log_counts_before_fsync", "leader_never_resigns"]
)
def test_a_core_mutant_is_caught(name: str) -> None:
    seeds, caught_by, _ = try_mutant(name, 10)
    mutant = next(one for one in CATALOG if one.name == name)
    assert caught_by in mutant.properties
    assert 1 <= seeds <= 10


@pytest.mark.req("Q2", "Q11")
def test_logs_of_leaders_that_die_early_come_together_again() -> None:
    """Seed 0: a leader's end of an epoch is in the middle of a batch of its follower."""
    assert [broken_property("leaders_die_early", seed) for seed in (0, 1)] == [None, None]
