"""Tests of the harness in the deterministic world: `jepsen test --env sim`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli._options import plan_of
from jepsen.cli.main import run
from jepsen.nemesis.plan import PACKAGES, Fault

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

CHAOS = "tests.simulation.cluster_chaos:chaos"
SHORT = ["--time-limit", "3", "--rate", "15", "--interval", "0.7"]


def run_test(store: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The results of one run."""
    arguments = ["test", *words, "--env", "sim", "--store", str(store), "--output", "json"]
    status = run(arguments)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert status == {True: 0, False: 1, "unknown": 2}[found["valid"]], found
    return found


@pytest.mark.req("J1", "J2", "J3")
@pytest.mark.parametrize(
    ("workload", "nemesis", "checker"),
    [
        ("register", "partition", "linearizable"),
        ("register", "features", "linearizable"),
        ("set", "kill", "set"),
        ("lock", "pause", "lock"),
        ("watch", "voters", "watch"),
        ("topics", "kill", "topics"),
        ("queue-txn", "rolling", "kafka"),
        ("list-append", "partition", "list-append"),
        ("bank", "kill", "bank"),
        ("group", "kill", "group"),
        ("queue", "disk", "kafka"),
        ("queue", "slow", "kafka"),
    ],
)
def test_a_workload_is_valid_while_things_break(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str, nemesis: str, checker: str
) -> None:
    words = [workload, "--nemesis", nemesis, *SHORT, "--seed", "7"]
    found = run_test(tmp_path, capsys, *words)
    assert found["checkers"][checker]["valid"] is True, found
    assert found["checkers"]["simulator-properties"]["valid"] is True, found
    assert found["operations"] > 10
    begins = PACKAGES[nemesis].begin
    assert f'"f":"{begins}"' in (tmp_path / "latest" / "history.jsonl").read_text()


@pytest.mark.req("J1", "J2")
def test_a_plan_has_faults_that_only_simulated_machines_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = (
        Fault("stall", 300, 900, ("broker-1",), 80.0),
        Fault("suspend", 500, 400, ("controller-102",)),
        Fault("kill", 600, 500, ("broker-2",)),
        Fault("half_open", 1_400, 600, ("broker-1", "broker-3")),
    )
    text = json.dumps([fault.to_json() for fault in plan])
    found = run_test(tmp_path, capsys, "queue", "--plan", text, *SHORT, "--seed", "4")
    assert found["valid"] is True, found
    assert found["faults"] == {"kill": 1, "stall": 1, "suspend": 1, "half_open": 1}
    struck = plan_of(str(tmp_path / "latest" / "plan.json"))
    assert [(one.kind, one.nodes, one.amount) for one in struck] == [
        (one.kind, one.nodes, one.amount) for one in plan
    ]
    assert [round(one.for_ms, -2) for one in struck] == [900, 400, 500, 600]


@pytest.mark.req("J1", "J2")
def test_a_scenario_is_a_test_whose_faults_can_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [CHAOS, "--seed", "3"]
    drawn = run_test(tmp_path, capsys, *words)
    assert {name: one["valid"] for name, one in drawn["checkers"].items()} == {
        "kafka": True,
        "simulator-properties": True,
    }
    plan = json.loads((tmp_path / "latest" / "plan.json").read_text())
    assert len(plan) > 3
    assert sum(drawn["faults"].values()) <= len(plan)
    one = run_test(tmp_path, capsys, *words, "--plan", json.dumps(plan[:1]))
    assert json.loads((tmp_path / "latest" / "plan.json").read_text()) == plan[:1]
    assert sum(one["faults"].values()) <= 1
    assert run_test(tmp_path, capsys, *words, "--plan", "[]")["faults"] == {}


@pytest.mark.req("J1", "J2")
def test_seeds_of_a_scenario_are_tests_of_a_matrix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["test-all", "--env", "sim", "--workload", f"{CHAOS},set", "--nemesis", "kill"]
    words += ["--seeds", "2", "--seed", "1", "--jobs", "2", *SHORT, "--store", str(tmp_path)]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].split() == ["own", "healthy", "kill"]
    assert lines[-2].split() == [CHAOS, "2", "valid", "-", "-"]
    assert lines[-1].split() == ["set", "-", *["2", "valid"] * 2]


@pytest.mark.req("J2")
def test_what_disks_do_in_a_simulated_cluster_passes(simulator: ForkServers) -> None:
    target = "tests.simulation.environment_scenarios:every_fault_of_disks_passes"
    result = simulator.run(target, 1)
    assert result.ok, result.output


@pytest.mark.req("J1", "J2", "J3")
def test_the_same_seed_is_the_same_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["queue", "--nemesis", "brokers", *SHORT, "--seed", "3"]
    first, again = (run_test(tmp_path, capsys, *words) for _ in range(2))
    assert first["checkers"]["kafka"]["valid"] is True, first
    assert first["folder"] != again["folder"]
    lines, same = ((Path(one["folder"]) / "history.jsonl").read_text() for one in (first, again))
    assert '"f":"final-poll"' in lines
    assert '"f":"remove-broker","value":["broker-' in lines
    assert lines == same
