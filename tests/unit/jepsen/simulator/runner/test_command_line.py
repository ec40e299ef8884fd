"""The command line of the simulator: files written to the end, arguments that name nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from jepsen.store import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = "tests.unit.jepsen.simulator.runner.scenarios:websocket"


def simulator(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jepsen.simulator", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_files_of_a_run_are_open_until_its_world_has_ended(tmp_path: Path) -> None:
    trace, servers = tmp_path / "trace.txt", tmp_path / "servers.jsonl"
    ran = simulator("run", SCENARIO, "--trace", str(trace), "--servers", str(servers))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].startswith("seed 1: ok, trace ")
    assert len(trace.read_text().splitlines()) > 10
    assert servers.exists()


@pytest.mark.parametrize("command", ["run", "many"])
@pytest.mark.parametrize(
    "target", ["no_such_module:scenario", "tests.no_such:one", "scenario", ":"]
)
def test_what_names_no_scenario_is_one_line(command: str, target: str) -> None:
    ran = simulator(command, target)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert ran.stderr.startswith(f"{target}: ")


def test_a_scenario_that_its_module_lacks_or_a_file_that_cannot_be_written_is_named() -> None:
    lacks = simulator("run", "tests.unit.jepsen.simulator.runner.scenarios:nosuch")
    assert (lacks.returncode, len(lacks.stderr.splitlines())) == (2, 1)
    assert "has no scenario nosuch" in lacks.stderr
    unwritable = simulator("run", SCENARIO, "--trace", "/no/such/folder/trace")
    assert unwritable.returncode == 2
    assert (
        unwritable.stderr
        == "--trace /no/such/folder/trace: cannot be written: No such file or directory\n"
    )


def test_a_seed_that_fails_leaves_the_folder_of_a_run(tmp_path: Path) -> None:
    failing = "tests.unit.jepsen.simulator.runner.scenarios:failing"
    ran = simulator("many", failing, "--seeds", "1", "--store", str(tmp_path))
    assert ran.returncode == 1
    folder = RunFolder.open(tmp_path / "latest")
    assert f"kept: {folder.path} invalid\n" in ran.stdout
    assert (folder.spec.workload, folder.spec.seed) == (failing, 1)
    found = (folder.results or {})["checkers"]["simulator-properties"]
    assert (found["valid"], found["anomalies"][0]["what"]) == (False, "as planned")


def test_a_mutant_that_is_not_there_is_refused() -> None:
    for module in ("tests.mutants", "tests.mutants.harness"):
        command = [sys.executable, "-m", module, "nosuch"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 2
        assert "nosuch: no mutant" in ran.stderr
