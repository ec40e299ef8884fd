"""Rules of access hold in clusters that break: `jepsen test acl --env sim`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.test_harness import SHORT, run_test

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.simulator.runner.fork_server import ForkServers

SECURED = ["--security", "SASL_PLAINTEXT"]


@pytest.mark.req("S4", "S7", "J1", "J2")
@pytest.mark.parametrize("nemesis", ["kill", "pause", "partition"])
def test_nobody_uses_a_right_that_was_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nemesis: str
) -> None:
    words = ["acl", *SECURED, "--nemesis", nemesis, *SHORT, "--rate", "40", "--seed", "7"]
    found: dict[str, Any] = run_test(tmp_path, capsys, *words)
    assert found["valid"] is True, found
    told = found["checkers"]["acl"]["statistics"]
    assert told["certain_uses"] > told["uses"] / 2 > 20, told


@pytest.mark.req("S7", "J1", "J2")
def test_clients_of_other_workloads_log_in_and_may_do_what_they_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["group", *SECURED, "--nemesis", "kill", *SHORT, "--seed", "7"]
    found = run_test(tmp_path, capsys, *words)
    assert found["valid"] is True, found


@pytest.mark.req("S4", "J1")
def test_rules_hold(simulator: ForkServers) -> None:
    result = simulator.run("tests.simulation.acl_scenarios:rules_hold", 1)
    assert result.ok, result.output
