"""`jepsen test`: what it refuses, and what it keeps to run the same again."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.cli._options import rerun_command
from jepsen.cli.main import run
from jepsen.core import PROPERTIES, Ending, judge, overall
from jepsen.core.spec import RunSpec
from jepsen.errors import InputError
from jepsen.generator.core import SECOND_NS
from jepsen.history import Op, OpType
from jepsen.runner import judge_folder
from jepsen.store import RunFolder, put_aside, runs

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
        (["queue", "--env", "local", "--command-config", "f"], "--command-config"),
        (["queue", *EXTERNAL, "--command-config", "/nowhere/f"], "--command-config /nowhere/f"),
        (["queue", *EXTERNAL, "--nemesis", "kill"], "external needs --control COMMAND"),
        (["queue", *EXTERNAL, "--control", "breaker", "--nemesis", "slow"], "--nemesis slow"),
        (["queue", "--brokers", "1"], "--replication"),
        (["queue", "--barrier-every", "9"], "--barrier-every"),
        (["register", "--concurrency", "0"], "--concurrency"),
        (["register", "--network", "pigeons"], "--network pigeons"),
        (["queue", "--security", "SSL"], "--security SSL"),
        (["queue", "--security", "SASL_PLAINTEXT"], "use SASL_SSL there"),
        (["queue", *EXTERNAL, "--security", "SASL_SSL"], "--command-config"),
        (["register", "--security", "SASL_SSL"], "only for queue"),
        (
            ["acl", "--security", "SASL_SSL", "--nemesis", "rules"],
            "--nemesis rules: only for queue",
        ),
        (
            ["scenario:anything", "--env", "sim", "--security", "SASL_PLAINTEXT"],
            "--security SASL_PLAINTEXT",
        ),
        (["queue", "--nemesis", "passwords"], "only with --security SASL_SSL"),
        (["queue", *EXTERNAL, "--nemesis", "rules"], "--control"),
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
    folder.make_latest()
    assert RunFolder.open(tmp_path / "latest").spec == spec
    assert RunFolder.open(tmp_path / spec.name / "latest").path == folder.path
    words = shlex.split(folder.command)
    assert words[:3] == ["jepsen", "test", "queue"]
    assert words[words.index("--seed") + 1] == "7"
    assert words[words.index("-o") + 1] == "a.b=c d"


def test_runs_are_listed_the_newest_first(tmp_path: Path) -> None:
    spec = RunSpec("set", "sim")
    made = [RunFolder.create(tmp_path, spec, "") for _ in range(3)]
    made[1].make_latest()
    assert [folder.path for folder in runs(tmp_path)] == [folder.path for folder in made[::-1]]
    assert (tmp_path / "latest").resolve() == made[1].path


def test_what_was_refused_leaves_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    RunFolder.create(store, RunSpec("set", "sim"), "").remove()
    assert not store.exists()
    kept = RunFolder.create(store, RunSpec("lock", "sim"), "")
    kept.make_latest()
    RunFolder.create(store, RunSpec("set", "sim"), "").remove()
    assert [folder.path for folder in runs(store)] == [kept.path]
    assert (store / "latest").resolve() == kept.path


def test_a_run_is_found_while_it_runs(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path, RunSpec("set", "sim"), "")
    assert (tmp_path / "current").resolve() == first.path
    second = RunFolder.create(tmp_path, RunSpec("lock", "sim"), "")
    first.remove()
    assert (tmp_path / "current").resolve() == second.path, "only a run's own end takes it away"
    second.put_aside("why")
    assert not (tmp_path / "current").is_symlink()
    assert [folder.path for folder in runs(tmp_path)] == []


def test_what_broke_off_is_kept_aside(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RunSpec("set", "sim"), "")
    where = folder.put_aside("not ready after 90 s")
    assert (where / "why.txt").read_text() == "not ready after 90 s\n"
    assert runs(tmp_path) == []
    assert put_aside(tmp_path, "set-sim-healthy") == str(where)
    assert put_aside(tmp_path, "lock-sim-healthy") == ""


def test_a_store_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(["test", "set", "--env", "sim", "--store", str(file / "store")]) == 254
    told = capsys.readouterr().err
    assert (
        told
        == f"jepsen: --store {file / 'store'}: cannot be written: Not a directory; choose another\n"
    )


@pytest.mark.req("J1")
def test_what_there_is_of_a_run_is_judged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RunSpec("register", "sim"), "")
    with folder.writer() as writer:
        for index, (kind, value) in enumerate([("invoke", None), ("ok", 4)]):
            writer.append(Op(index, index, 0, OpType(kind), "read", value, 0))
    with (folder.path / "history.jsonl").open("a") as file:
        file.write('{"index":2,"time":')  # the process was killed here
    verdicts = judge_folder(folder)
    unfinished, unjudged = verdicts["interrupted"], verdicts[PROPERTIES]
    assert unfinished.why_unknown.startswith("the run never came to an end")
    assert unjudged.why_unknown == "the run never said how it ended"
    broken = Anomaly("one_leader_per_epoch", {"what": "101 and 102 lead 7"})
    folder.write_ending(Ending((broken,)).to_json())
    verdicts = judge_folder(folder)
    assert "interrupted" not in verdicts
    assert verdicts["linearizable"].valid is False
    assert verdicts[PROPERTIES] == Verdict(False, (broken,))
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
    with pytest.raises(InputError, match="not a run"):
        RunFolder.open(tmp_path)
    with pytest.raises(InputError, match="no test"):
        RunSpec.from_json({"workload": "set", "colour": "red"})


def test_ctrl_c_is_quiet_while_the_program_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", interrupted)
    assert run(["serve"]) == 130
    assert capsys.readouterr().err == "jepsen: interrupted\n"


@pytest.mark.parametrize("command", ["test", "test-all", "check", "convert", "report", "serve"])
def test_help_of_options_are_phrases_of_their_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    told = capsys.readouterr().out
    # A phrase that begins so goes on from a name that the reader has to guess.
    assert re.findall(r" (?:Of|On|Only|Else) [a-z]\w+.*\.", told) == []
    assert "Usage" in told
