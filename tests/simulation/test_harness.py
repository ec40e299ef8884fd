"""Tests of the harness in the deterministic world: `jepsen test --env sim`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path


def run_test(store: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The results of one run."""
    arguments = ["test", *words, "--env", "sim", "--store", str(store), "--output", "json"]
    status = run(arguments)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert status == {True: 0, False: 1, "unknown": 2}[found["valid"]]
    return found


@pytest.mark.req("J1", "J2", "J3")
@pytest.mark.parametrize(
    ("workload", "nemesis", "checker"),
    [
        ("register", "partition", "linearizable"),
        ("set", "kill", "set"),
        ("lock", "pause", "lock"),
        ("queue", "kill", "kafka"),
    ],
)
def test_a_workload_is_valid_while_things_break(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: str, nemesis: str, checker: str
) -> None:
    words = [workload, "--nemesis", nemesis, "--time-limit", "6", "--interval", "1.5"]
    found = run_test(tmp_path, capsys, *words, "--rate", "20", "--seed", "7")
    assert found["checkers"][checker]["valid"] is True, found
    assert "cluster" not in found["checkers"], found
    assert found["operations"] > 40
    lines = (tmp_path / "latest" / "history.jsonl").read_text()
    assert f'"f":"{nemesis}"' in lines


@pytest.mark.req("J1")
def test_the_same_seed_is_the_same_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["queue", "--nemesis", "kill", "--time-limit", "2", "--rate", "20", "--interval", "0.5"]
    folders = [run_test(tmp_path, capsys, *words, "--seed", "3")["folder"] for _ in range(2)]
    first, again = ((tmp_path / f"{folder}/history.jsonl").read_text() for folder in folders)
    assert first == again
    assert folders[0] != folders[1]
