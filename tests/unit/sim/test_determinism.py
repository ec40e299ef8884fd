"""The same seed makes the same run, also with libraries that reach past the seams."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jepsen.env.sim.determinism import RunResult, prepare, run_in_subprocess
from tests.unit.sim import scenarios


def run(scenario: str, seed: int) -> RunResult:
    result = run_in_subprocess(f"{scenarios.__name__}:{scenario}", seed, timeout_s=100)
    assert result.ok, result.output
    assert len(result.trace_hash) == 64
    return result


@pytest.mark.req("J1")
@pytest.mark.parametrize("scenario", ["websocket", "chaos", "kafka", "chance"])
def test_a_seed_is_a_run(scenario: str) -> None:
    first = run(scenario, 1)
    assert run(scenario, 1).output == first.output
    assert run(scenario, 2).trace_hash != first.trace_hash


def test_a_failing_seed_tells_its_story_and_how_to_replay_it() -> None:
    result = run_in_subprocess(f"{scenarios.__name__}:failing", 7)
    assert not result.ok
    assert "LookupError: as planned" in result.output
    assert f"replay: python -m jepsen.env.sim run {scenarios.__name__}:failing" in result.output
    assert result.output.splitlines()[-1].startswith("seed 7: FAILED, trace ")


def test_the_command_fixes_the_hash_seed_by_itself() -> None:
    target = f"{scenarios.__name__}:chance"
    command = [sys.executable, "-m", "jepsen.env.sim", "run", target, "--seed", "1"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert finished.stdout == run("chance", 1).output


def test_it_refuses_an_interpreter_of_random_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(RuntimeError, match="PYTHONHASHSEED"):
        prepare()
