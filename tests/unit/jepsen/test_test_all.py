"""`jepsen test-all`: which tests it makes, the matrix it shows, and its exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.verdict import Verdict
from jepsen.cli import options
from jepsen.cli.main import run
from jepsen.errors import ClusterError
from jepsen.store import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.checkers.verdict import Valid
    from jepsen.core import RunSpec

pytestmark = pytest.mark.req("J1")


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Valid | None]:
    """By name of the test what its run comes to; valid if nothing is said."""
    found: dict[str, Valid | None] = {}

    def run_one(spec: RunSpec, store: Path) -> tuple[RunFolder, dict[str, Verdict]]:
        valid = found.get(spec.name, True)
        if valid is None:
            raise ClusterError("not ready")
        folder = RunFolder.create(store, spec, options.rerun_command(spec))
        return folder, {"checker": Verdict(valid)}

    monkeypatch.setattr(options, "run_one", run_one)
    return found


def all_of(store: Path, *words: str) -> int:
    pairs = ["--workload", "set", "--workload", "lock", "--nemesis", "kill", "--seed", "5"]
    return run(["test-all", "--env", "sim", *pairs, *words, "--store", str(store)])


@pytest.mark.usefixtures("verdicts")
def test_each_workload_meets_each_nemesis_and_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert all_of(tmp_path, "--nemesis", "kill,pause", "--output", "json") == 0
    pairs = [(one["workload"], one["nemesis"]) for one in json.loads(capsys.readouterr().out)]
    columns: list[list[str]] = [[], ["kill"], ["kill", "pause"]]
    assert pairs == [(workload, column) for column in columns for workload in ("set", "lock")]


def test_the_matrix_has_a_line_for_each_workload(
    tmp_path: Path, verdicts: dict[str, Valid | None], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts["lock-sim-kill"] = "unknown"
    assert all_of(tmp_path) == 2
    *runs, head, first, second = capsys.readouterr().out.splitlines()
    assert len(runs) == 4
    assert head.split() == ["healthy", "kill"]
    assert first.split() == ["set", "valid", "valid"]
    assert second.split() == ["lock", "valid", "unknown"]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ({"set-sim-healthy": False, "lock-sim-kill": "unknown"}, 1),
        ({"set-sim-healthy": None, "lock-sim-kill": False}, 255),
    ],
)
def test_the_exit_status_is_the_worst_and_nothing_is_left_out(
    tmp_path: Path,
    verdicts: dict[str, Valid | None],
    outcomes: dict[str, Valid | None],
    status: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts.update(outcomes)
    assert all_of(tmp_path) == status
    assert len(capsys.readouterr().out.splitlines()) == 4 + 3


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--nemesis", "rain"], "--nemesis rain"),
        (["--env", "external", "--bootstrap-servers", "h:1"], "--env external"),
        (["--env", "moon"], "--env moon"),
    ],
)
def test_nothing_runs_if_one_of_them_cannot(
    tmp_path: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert all_of(store, *words) == 254
    assert named in capsys.readouterr().err
    assert not store.exists()
