"""Whole clusters under every fault at once: some seeds of `make sim`, and those that found bugs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.simulator.faults import ALL_KINDS
from jepsen.simulator.properties import Violation
from jepsen.simulator.runner.determinism import run_in_subprocess
from jepsen.simulator.swarm import BESIDE, ELECTION_TIMEOUTS_MS, LASTING_MS, VOTERS, Swarm, draw
from jepsen.simulator.world import World
from tests.simulation.beside import Tokens
from tests.simulation.cluster_chaos import Chaos

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

SCENARIO = "tests.simulation.cluster_chaos:chaos"
SEEDS = range(1, 7)
TOLD_AS_NOT_DONE = (9, 11, 20)
"""A broker that got no answer asked again, and told what was refused then as not done."""


def found_seeds() -> list[int]:
    lines = Path(__file__).with_name("seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if not line.startswith("#")]


@pytest.mark.req("Q1", "Q3", "Q5", "Q11", "C2", "C5", "R1", "R2", "R3", "R4", "R6", "T1", "J1")
@pytest.mark.parametrize("seed", [*SEEDS, *found_seeds()])
def test_every_property_holds_whatever_goes_wrong(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(SCENARIO, seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q1", "Q3", "Q11", "C2", "C5", "R4", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "plan",
    [
        "brokers_lose_power",
        "controllers_lose_power",
        "controllers_lose_power_within_calls",
        "controllers_are_cut_off_for_long",
        "controllers_restart_amid_elections",
        "controllers_disks_fail",
        "brokers_disks_fail",
        "bits_flip",
        "disks_fill_up",
        "rolling_restart",
    ],
)
def test_nothing_is_lost_when_power_fails_or_nodes_restart(
    simulator: ForkServers, plan: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.cluster_chaos:{plan}", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q1", "Q3", "Q11", "C3", "C10", "J1")
@pytest.mark.parametrize("seed", [1, 2, *TOLD_AS_NOT_DONE])
def test_what_administrators_are_told_is_so_whatever_goes_wrong(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run("tests.simulation.admin_chaos:chaos", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q11", "C5", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_every_property_holds_where_eligible_replicas_lead(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run("tests.simulation.cluster_chaos:chaos_with_eligible_leaders", seed)
    assert result.ok, result.output


@pytest.mark.req("C14", "C5", "R3", "R4", "J1")
def test_nothing_is_lost_when_log_directories_fail_one_after_the_other(
    simulator: ForkServers,
) -> None:
    result = simulator.run("tests.simulation.cluster_chaos:directories_fail", 1)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q11", "J1")
def test_every_fault_and_shape_is_drawn_by_some_seed_of_continuous_integration() -> None:
    faults: Counter[str] = Counter()
    swarms: list[Swarm] = []
    for seed in range(200):
        with World(seed) as world:
            swarm = draw(seed)
            planned = [fault.kind for fault in Chaos(world, swarm=swarm).faults]
        assert set(planned) <= swarm.draws.kinds
        swarms.append(swarm)
        faults.update(planned)
    assert set(faults) == set(ALL_KINDS)
    assert min(faults.values()) >= 3
    shapes = Counter((one.voters, one.dynamic) for one in swarms)
    assert set(shapes) == {(voters, dynamic) for voters in VOTERS for dynamic in (True, False)}
    assert {one.election_timeout_ms for one in swarms} == set(ELECTION_TIMEOUTS_MS)
    assert {one.draws.ms_max for one in swarms} == set(LASTING_MS)
    assert {one.combined for one in swarms} == {0, 1, 2, 3}
    beside = Counter(name for one in swarms for name in one.beside)
    assert set(beside) == set(BESIDE)
    assert min(beside.values()) >= 3
    asked = {(one.dynamic, one.asked_by_brokers) for one in swarms}
    assert asked >= {(dynamic, some) for dynamic in (True, False) for some in (0, 1, 2, 3)}


@pytest.mark.req("J1")
def test_a_stale_token_in_a_later_image_is_a_violation() -> None:
    tokens = Tokens()

    def image(offset: int, token: bytes) -> Any:
        entry = SimpleNamespace(value=token)
        return SimpleNamespace(offset=offset, image=SimpleNamespace(kv={"guarded": entry}))

    tokens.look(image(5, b"3"))
    tokens.look(image(4, b"2"))
    tokens.look(image(6, b"3"))
    with pytest.raises(Violation, match="no_stale_token_is_written: 2 at offset 7, after 3"):
        tokens.look(image(7, b"2"))


@pytest.mark.req("Q11", "C5", "R6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_every_property_holds_where_nodes_are_brokers_and_controllers(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run("tests.simulation.cluster_chaos:chaos_of_combined_nodes", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("J1")
def test_clients_of_every_kind_work_beside_those_of_records(simulator: ForkServers) -> None:
    result = simulator.run("tests.simulation.cluster_chaos:chaos_beside", 1)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("J1")
def test_a_run_tells_which_roles_and_states_it_has_reached(simulator: ForkServers) -> None:
    covered = simulator.run("tests.simulation.cluster_chaos:rolling_restart", 1).covered
    assert {"role prospective VoteResponse candidate", "role leader Tick leader"} <= covered
    struck = {line.split()[1] for line in covered if line.startswith("fault ")}
    assert struck == {"stop"}
    assert {"fault stop leader", "fault stop leading-partition"} <= covered


@pytest.mark.req("J1")
def test_chaos_replays_identically(simulator: ForkServers) -> None:
    first, again = simulator.run(SCENARIO, 7), run_in_subprocess(SCENARIO, 7)
    assert first.ok, first.output[-10_000:]
    assert first.trace_hash == again.trace_hash != simulator.run(SCENARIO, 9).trace_hash
