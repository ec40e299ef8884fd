"""Whole clusters of production code and unmodified clients on virtual time, replayed by seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.replication.trace import (
    ASSIGNMENT,
    HIGH_WATERMARK_WENT_BACK,
    RECORD,
    REPLICA,
    check_trace,
)
from jepsen.history.formats import read_text
from jepsen.simulator.runner.determinism import run_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.simulator.runner.fork_server import ForkServers

SCENARIOS = "tests.simulation.cluster_scenarios"


@pytest.mark.req("Q1", "Q3", "Q5", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_controllers_fail_over(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(f"{SCENARIOS}:controllers_fail_over", seed)
    assert result.ok, result.output


@pytest.mark.req("Q2", "Q6", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_snapshots_bring_back_who_was_away(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(f"{SCENARIOS}:snapshots_bring_back_who_was_away", seed)
    assert result.ok, result.output


@pytest.mark.req("C2", "C5", "R1", "R4", "R6", "T1", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_nothing_acknowledged_is_lost_when_a_leader_dies(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(f"{SCENARIOS}:leader_dies_under_load", seed)
    assert result.ok, result.output


@pytest.mark.req("J1")
def test_a_seed_replays_identically_and_another_does_not(
    simulator: ForkServers, tmp_path: Path
) -> None:
    target, servers = f"{SCENARIOS}:leader_dies_under_load", tmp_path / "servers.jsonl"
    first = simulator.run(target, 7)
    # To write down what servers do makes no other run of it.
    again = run_in_subprocess(target, 7, options=("--servers", str(servers)))
    assert first.ok, first.output
    assert first.trace_hash == again.trace_hash
    assert first.trace_hash != simulator.run(target, 8).trace_hash
    told = read_text(servers.read_text())
    assert {op.f for op in told} == {REPLICA, RECORD, ASSIGNMENT}
    assert check_trace(told).anomalies == ()
    # All of it happens to two nodes that are one: they contradict each other.
    mixed = [replace(op, process="node-1") for op in told]
    assert {one.name for one in check_trace(mixed).anomalies} >= {HIGH_WATERMARK_WENT_BACK}


@pytest.mark.req("R2", "R4", "C5", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["follower_restarts_then_leader_dies", "both_replicas_crash"])
def test_nothing_acknowledged_is_lost_by_the_failures_that_have_names(
    simulator: ForkServers, name: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.partition_scenarios:{name}", seed)
    assert result.ok, result.output


@pytest.mark.req("L8", "R5", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "all_brokers_lose_power",
        "last_replica_standing",
        "syncs_fail_before_the_power",
        "syncs_fail_before_a_restart_and_the_power",
    ],
)
def test_nothing_acknowledged_is_lost_with_the_power_where_acks_all_means_flushed(
    simulator: ForkServers, name: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.partition_scenarios:{name}", seed)
    assert result.ok, result.output


@pytest.mark.req("C7", "J1")
def test_a_partition_moves_no_faster_than_its_throttle(simulator: ForkServers) -> None:
    target = "tests.simulation.reassignment_scenarios:throttled_move_keeps_to_its_rate"
    result = simulator.run(target, 1)
    assert result.ok, result.output


@pytest.mark.req("C14", "C5", "R3", "J1")
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("log_directory_of_a_replica_fails", 1),
        ("log_directory_of_a_replica_fails", 9),
        ("log_directories_of_all_replicas_fail", 4),
    ],
)
def test_nothing_acknowledged_is_lost_when_log_directories_fail(
    simulator: ForkServers, name: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.partition_scenarios:{name}", seed)
    assert result.ok, result.output


@pytest.mark.req("C7", "C5", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost_when_a_partition_moves(
    simulator: ForkServers, seed: int
) -> None:
    target = "tests.simulation.reassignment_scenarios:partition_moves_while_its_leader_dies"
    result = simulator.run(target, seed)
    assert result.ok, result.output


@pytest.mark.req("L9", "R4", "J1")
@pytest.mark.parametrize(
    "name", ["leaders_fail_while_they_send", "segments_are_removed_while_they_are_sent"]
)
def test_what_waits_to_be_sent_from_a_file_is_what_was_written(
    simulator: ForkServers, name: str
) -> None:
    result = simulator.run(f"tests.simulation.sending_scenarios:{name}", 1)
    assert result.ok, result.output


@pytest.mark.req("C2", "C5", "C8", "C11", "J1")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_replica_that_stopped_cleanly_stays_eligible_to_lead(
    simulator: ForkServers, seed: int
) -> None:
    target = "tests.simulation.restart_scenarios:eligible_leader_comes_back"
    result = simulator.run(target, seed)
    assert result.ok, result.output


@pytest.mark.req("C3", "Q11", "J1")
@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize(
    "scenario",
    [
        "the_same_controller_gets_it_late",
        "a_controller_that_leads_again_gets_it_late",
        "a_change_of_voters_gets_there_late",
    ],
)
def test_a_request_that_was_given_up_is_not_done_later(
    simulator: ForkServers, scenario: str, seed: int
) -> None:
    result = simulator.run(f"tests.simulation.delayed_scenarios:{scenario}", seed)
    assert result.ok, result.output
