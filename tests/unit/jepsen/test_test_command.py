"""`jepsen test`: what it refuses, and what it keeps to run the same again."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.cli.options import rerun_command
from jepsen.core import RunSpec, judge, overall
from jepsen.errors import InputError
from jepsen.generator.core import SECOND_NS
from jepsen.history import Op, OpType
from jepsen.running import judge_folder
from jepsen.store import RunFolder, runs

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.checkers.verdict import Valid


EXTERNAL = ["--env", "external", "--bootstrap-servers", "h:1"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nonsense"], "nonsense"),
        (["register", "--env", "moon"], "--env moon"),
        (["register", "--nemesis", "kill,rain"], "--nemesis rain"),
        (["register", "--acks", "2"], "--acks 2"),
        (["register", "--nemesis", "reassign"], "--nemesis reassign"),
        (
            ["queue", "--env", "external", "--bootstrap-servers", "h:1", "--nemesis", "disk"],
            "--nemesis disk",
        ),
        (["register", "-o", "nonsense"], "-o nonsense"),
        (["queue", "--env", "sim", "--client", "librdkafka"], "--client librdkafka"),
        (["queue", "--client", "pigeon"], "--client pigeon"),
        (["register", "--env", "external", "--bootstrap-servers", "h:1"], "--env external"),
        (["queue", "--env", "external"], "--bootstrap-servers"),
        (["queue", "--env", "sim", "--bootstrap-servers", "h:1"], "--bootstrap-servers"),
        (["queue", "--env", "sim", "--control", "breaker"], "--control"),
        (["queue", *EXTERNAL, "--nemesis", "kill"], "--nemesis kill"),
        (["queue", *EXTERNAL, "--control", "breaker", "--nemesis", "slow"], "--nemesis slow"),
        (["queue", "--brokers", "1"], "--replication"),
        (["queue", "--barrier-every", "9"], "--barrier-every"),
        (["register", "--concurrency", "0"], "--concurrency"),
        (["register", "--network", "pigeons"], "--network pigeons"),
        (["register", "--env", "sim", "--network", "namespaces"], "--network namespaces"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(
    tmp_path: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert run(["test", *words, "--store", str(store)]) == 254
    assert named in capsys.readouterr().err
    assert not store.exists()


@pytest.mark.req("J1")
def test_a_folder_has_what_makes_the_run_again(tmp_path: Path) -> None:
    spec = RunSpec("queue", "sim", ("kill",), seed=7, overrides={"a.b": "c d"})
    folder = RunFolder.create(tmp_path, spec, rerun_command(spec))
    assert RunFolder.open(tmp_path / "latest").spec == spec
    assert RunFolder.open(tmp_path / spec.name / "latest").path == folder.path
    words = shlex.split(folder.command)
    assert words[:3] == ["jepsen", "test", "queue"]
    assert words[words.index("--seed") + 1] == "7"
    assert words[words.index("-o") + 1] == "a.b=c d"


def test_runs_are_listed_the_newest_first(tmp_path: Path) -> None:
    spec = RunSpec("set", "sim")
    made = [RunFolder.create(tmp_path, spec, "").path for _ in range(3)]
    assert [folder.path for folder in runs(tmp_path)] == made[::-1]
    assert (tmp_path / "latest").resolve() == made[-1]


@pytest.mark.req("J1")
def test_what_there_is_of_a_run_is_judged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RunSpec("register", "sim"), "")
    with folder.writer() as writer:
        for index, (kind, value) in enumerate([("invoke", None), ("ok", 4)]):
            writer.append(Op(index, index, 0, OpType(kind), "read", value, 0))
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"index":2,"time":')  # the process was killed here
    verdicts = judge_folder(folder, "broker-1 ended")
    assert verdicts["linearizable"].valid is False
    assert verdicts["cluster"].anomalies[0].detail == {"what": "broker-1 ended"}
    assert json.loads((folder.path / "results.json").read_text())["valid"] is False


@pytest.mark.req("J1")
@pytest.mark.parametrize(
    ("rate_min", "succeed", "valid"), [(0.2, 2, True), (0.2, 1, "unknown"), (0, 1, True)]
)
def test_a_run_in_which_hardly_anything_succeeded_is_unknown(
    rate_min: float, succeed: int, valid: Valid
) -> None:
    history: list[Op] = []
    for number in range(3):
        ended = OpType.OK if number < succeed else OpType.FAIL
        # The last one comes after the time of the test, when everything was healed.
        for kind, at_s in ((OpType.INVOKE, 5 * number), (ended, 5 * number + 5)):
            history.append(Op(len(history), at_s * SECOND_NS, 0, kind, "write", 1, 0))
    verdicts = judge(RunSpec("register", time_limit_s=10, rate_min=rate_min), history)
    assert overall(verdicts) == valid
    why = f"{succeed} operations succeeded in 10.0 s, which is less than --min-rate 0.2 a second"
    assert [one.why_unknown for one in verdicts.values() if one.valid == "unknown"] == (
        [why] if valid == "unknown" else []
    )


@pytest.mark.parametrize("env", ["local", "sim"])
def test_a_key_that_nodes_do_not_know_is_named(
    tmp_path: Path, env: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["set", "--env", env, "--store", str(tmp_path), "-o", "controller.quorum.speed=9"]
    assert run(["test", *words]) == 254
    assert "controller.quorum.speed" in capsys.readouterr().err


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run"):
        RunFolder.open(tmp_path)
    with pytest.raises(InputError, match="no test"):
        RunSpec.from_json({"workload": "set", "colour": "red"})
