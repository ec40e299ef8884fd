"""`jepsen test-all`: which tests it makes, the matrix it shows, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.cli import _options as options
from jepsen.cli.main import run
from jepsen.core.spec import LOG_WORKLOADS, RunSpec, faults_in, workloads_in
from jepsen.runner.matrix import matrix
from jepsen.store import RunFolder

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Valid

pytestmark = pytest.mark.req("J1")


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Valid | None]:
    """By name of the test what its run comes to; valid if nothing is said, None if it breaks."""
    found: dict[str, Valid | None] = {}

    def run_one(
        spec: RunSpec, store: Path, seeds: object = None
    ) -> tuple[RunFolder, dict[str, Verdict]]:
        valid = found.get(spec.name, True)
        folder = RunFolder.create(store, spec, options.rerun_command(spec))
        if valid is None:
            folder.put_aside("a checker's own mistake")
            raise ZeroDivisionError("a checker's own mistake")
        folder.write_results({"valid": valid, "faults": dict.fromkeys(spec.nemesis, 3)})
        folder.make_latest()
        anomalies = (Anomaly("lost"), Anomaly("lost")) if valid is False else ()
        return folder, {"checker": Verdict(valid, anomalies)}

    monkeypatch.setattr(options, "run_one", run_one)
    return found


@pytest.fixture
def interrupted(
    verdicts: dict[str, Valid | None], monkeypatch: pytest.MonkeyPatch
) -> dict[str, type[BaseException] | None]:
    """By name of the test who wants an end in it: an exception outside of it, None inside."""
    found: dict[str, type[BaseException] | None] = {}
    run_one = options.run_one

    def interrupt(
        spec: RunSpec, store: Path, seeds: object = None
    ) -> tuple[RunFolder, dict[str, Verdict]]:
        folder, ended = run_one(spec, store)
        if spec.name in found:
            if (raised := found[spec.name]) is not None:
                raise raised
            folder.write_results({"valid": True, "interrupted": True})
        return folder, ended

    monkeypatch.setattr(options, "run_one", interrupt)
    return found


def kept(store: Path) -> list[dict[str, Any]]:
    """The tests of the latest matrix as it stands in the store."""
    document = json.loads((store / "test-all" / "latest" / "matrix.json").read_text())
    tests: list[dict[str, Any]] = document["tests"]
    return tests


def all_of(store: Path, *words: str) -> int:
    pairs = ["--workload", "set,lock", "--nemesis", "kill", "--seed", "5"]
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


def test_what_came_of_it_so_far_is_kept_with_the_reasons(
    tmp_path: Path, verdicts: dict[str, Valid | None]
) -> None:
    verdicts |= {"lock-sim-healthy": None, "set-sim-kill": False}
    assert all_of(tmp_path) == 255
    tests = kept(tmp_path)
    assert [one["verdict"] for one in tests] == ["valid", "crashed", "invalid", "valid"]
    assert tests[1]["found"] == ['ZeroDivisionError("a checker\'s own mistake")']
    assert tests[2]["found"] == ["checker: lost (2)"]
    assert [one["faults"] for one in tests] == ["", "", "kill 3", "kill 3"]
    assert "/crashed/" in tests[1]["folder"]
    assert [RunFolder.open(Path(one["folder"])).spec.name for one in tests] == [
        "set-sim-healthy",
        "lock-sim-healthy",
        "set-sim-kill",
        "lock-sim-kill",
    ]
    page = (tmp_path / "test-all" / "latest" / "matrix.md").read_text()
    assert "| set | valid | invalid |" in page
    assert "4 tests: 2 valid, 1 invalid, 1 crashed" in page
    assert "* checker: lost (2)" in page
    assert "* lock-sim-kill: kill 3" in page


@pytest.mark.parametrize("raised", [KeyboardInterrupt, None])
def test_a_matrix_that_was_interrupted_goes_on_with_what_has_no_verdict(
    tmp_path: Path,
    verdicts: dict[str, Valid | None],
    interrupted: dict[str, type[BaseException] | None],
    raised: type[BaseException] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts["set-sim-healthy"] = None
    interrupted["set-sim-kill"] = raised
    assert all_of(tmp_path) == 130
    first = kept(tmp_path)
    assert [one["verdict"] for one in first] == ["crashed", "valid", "not run", "not run"]
    latest = str(tmp_path / "test-all" / "latest")
    assert f"--resume {tmp_path}/test-all/2" in capsys.readouterr().err

    verdicts.clear()
    interrupted.clear()
    assert run(["test-all", "--resume", latest]) == 0
    second = kept(tmp_path)
    assert [one["verdict"] for one in second] == ["valid"] * 4
    assert second[1] == first[1]
    topics = [one["spec"]["topic"] for one in second]
    assert topics == ["jepsen-5-0.2", "jepsen-5-1", "jepsen-5-2.2", "jepsen-5-3.2"]


def test_what_is_no_matrix_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["test-all", "--resume", str(tmp_path)]) == 254
    assert "name a folder such as store/test-all/latest" in capsys.readouterr().err
    (tmp_path / "matrix.json").write_text('{"command": "", "tests": [{"verdict": "valid"}]}')
    assert run(["test-all", "--resume", str(tmp_path)]) == 254
    assert "not a matrix" in capsys.readouterr().err


@pytest.mark.usefixtures("verdicts")
@pytest.mark.req("J5")
def test_a_cluster_of_others_is_tested_with_what_every_kafka_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--env", "external", "--bootstrap-servers", "h:1"]
    assert run(["test-all", *where, "--store", str(tmp_path), "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["workload"] for one in found] == list(workloads_in("external"))
    assert not any(one["nemesis"] for one in found)
    broken = [*where, "--control", "breaker", "--workload", "queue", "--store", str(tmp_path)]
    assert run(["test-all", *broken, "--output", "json"]) == 0
    columns = [one["nemesis"] for one in json.loads(capsys.readouterr().out)]
    assert columns == [[], ["kill"], ["pause"], ["restart"], ["rolling"], ["reassign"]]


def test_a_cluster_of_processes_meets_every_workload_with_every_fault_of_processes() -> None:
    columns = [(fault,) for fault in faults_in("local")]
    cells = list(matrix(RunSpec("", replication=3), workloads_in("local"), columns))
    found = {(one.spec.workload, *one.spec.nemesis) for one in cells}
    wanted = {
        (workload, *fault)
        for workload in workloads_in("local")
        for fault in [(), *columns]
        if fault != ("reassign",) or workload in LOG_WORKLOADS
    }
    assert len(cells) == len(found)
    assert found == wanted
