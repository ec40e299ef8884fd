"""A run in an interpreter of its own: what it is given, what it tells, what it refuses.

That the same seed makes the same run is shown by `test_fork_server`, in interpreters of both kinds.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from jepsen.simulator.runner.determinism import prepare, run_in_subprocess
from tests.unit.jepsen.simulator.runner import scenarios


def test_a_failing_seed_tells_its_story_and_how_to_replay_it() -> None:
    result = run_in_subprocess(f"{scenarios.__name__}:failing", 7)
    assert not result.ok
    assert "LookupError: as planned" in result.output
    assert f"replay: python -m jepsen.simulator run {scenarios.__name__}:failing" in result.output
    assert result.output.splitlines()[-1].startswith("seed 7: FAILED, trace ")


def test_the_command_fixes_the_hash_seed_by_itself() -> None:
    target = f"{scenarios.__name__}:chance"
    command = [sys.executable, "-m", "jepsen.simulator", "run", target, "--seed", "1"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    alone = run_in_subprocess(target, 1)
    assert len(alone.trace_hash) == 64
    assert finished.stdout == alone.output


def test_it_refuses_an_interpreter_of_random_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(RuntimeError, match="PYTHONHASHSEED"):
        prepare()
