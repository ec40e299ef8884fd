"""`jepsen check` as people and programs use it."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from jepsen.checkers.verdict import Anomaly, judge
from jepsen.cli.commands.check import within
from jepsen.cli.main import run
from jepsen.core.spec import RunSpec
from jepsen.history.formats import to_json, write_edn
from jepsen.store import RunFolder
from tests.unit.jepsen.histories import KNOWN, history, known

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.checkers.verdict import Verdict

STALE = history(
    (0, "invoke", "write", 1),
    (0, "ok", "write", 1),
    (1, "invoke", "read", None),
    (1, "ok", "read", 2),
)


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good"
    path.write_text("".join(to_json(op) + "\n" for op in STALE).replace('"value":2', '"value":1'))
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad"
    path.write_text(write_edn(STALE))
    return str(path)


@pytest.mark.req("J4", "J6")
def test_each_file_gets_a_line(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", good, bad]) == 1
    said = capsys.readouterr()
    assert said.out == f"{good} valid\n{bad} invalid\n"
    assert "nonlinearizable" in said.err


@pytest.mark.req("J4")
def test_programs_get_a_document(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", good, bad, "--output", "json"]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["file"], first["valid"], first["anomalies"]) == (good, True, [])
    assert (second["file"], second["valid"]) == (bad, False)
    assert second["anomalies"][0]["name"] == "nonlinearizable"
    assert second["anomalies"][0]["operation"]["value"] == 2


@pytest.mark.req("J4")
def test_the_exit_status_tells_the_verdict(good: str, bad: str, tmp_path: Path) -> None:
    empty = tmp_path / "unread"
    empty.write_text(to_json(STALE[0]) + "\n")
    assert run(["check", good]) == 0
    assert run(["check", good, bad]) == 1
    assert run(["check", "--checker", "set", str(empty)]) == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--checker", "nonsense"], "--checker nonsense"),
        (["--model", "nonsense"], "--model nonsense"),
        (["--model", "cas-register({)"], "--model"),
        (["--nonsense"], "--nonsense"),
        (["--checker", "bank"], "choose another --checker"),
        (["--model", "fifo-queue"], "choose another --checker or --model"),
    ],
)
def test_bad_arguments_are_named(
    good: str, arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", good, *arguments]) == 254
    assert word in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b"no history", b"{}\n", b"\xff\xfe", b"{:process 0\n"])
def test_what_is_no_history_is_refused(
    tmp_path: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.write_bytes(text)
    assert run(["check", str(path)]) == 254
    assert "not a history" in capsys.readouterr().err or text.startswith(b"{")
    assert run(["check", str(tmp_path / "absent")]) == 254


@pytest.mark.req("J4", "J6")
@pytest.mark.parametrize(("origin", "column"), KNOWN)
def test_known_histories_get_their_verdicts(
    histories: Path, origin: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, by_model = known(histories, origin, column)
    found: dict[str, object] = {}
    for model, files in by_model.items():
        run(["check", *files, "--model", model, "--output", "json"])
        found |= {one["file"]: one["valid"] for one in json.loads(capsys.readouterr().out)}
    assert found == wanted


def lost_run(tmp_path: Path) -> Path:
    """A run of a queue in which a value is polled that nobody sent, as `jepsen test` keeps it."""
    folder = RunFolder.create(tmp_path / "store", RunSpec("queue", rate_min=0.0), "jepsen test")
    lines = history(
        (0, "invoke", "send", [["send", "0", 1]]),
        (0, "ok", "send", [["send", "0", [0, 1]]]),
        (1, "invoke", "poll", [["poll"]]),
        (1, "ok", "poll", [["poll", {"0": [[0, 1], [1, 2]]}]]),
    )
    with folder.writer() as writer:
        for op in lines:
            writer.append(op)
    return folder.path


def test_a_run_is_judged_by_what_its_test_looks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lost_run(tmp_path)
    for path in (folder, folder / "history.jsonl"):
        assert run(["check", str(path)]) == 1
        said = capsys.readouterr()
        assert f"{path} invalid" in said.out
        assert "unexpected" in said.err
    assert run(["check", str(folder), "--checker", "availability"]) == 0
    assert run(["check", str(tmp_path)]) == 254
    assert "not a run: name a folder with history.jsonl" in capsys.readouterr().err


def test_a_damaged_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "damaged.jsonl"
    for damaged, why in (("garbage", "Expecting value at column 1"), ('{"index":1}', "has no")):
        path.write_text(f"{to_json(STALE[0])}\n{damaged}\n{to_json(STALE[1])}\n")
        assert run(["check", str(path)]) == 254
        said = capsys.readouterr().err
        assert f"{path}: line 2: no operation: {damaged!r}" in said
        assert why in said


@pytest.mark.parametrize("checker", ["linearizable", "set", "counter"])
def test_a_check_that_takes_too_long_is_unknown(
    tmp_path: Path, checker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[int] | int = [1] if checker == "set" else 1
    f = "write" if checker == "linearizable" else "add"
    path = tmp_path / "history.jsonl"
    lines = history(
        (0, "invoke", f, 1), (0, "ok", f, 1), (1, "invoke", "read", None), (1, "ok", "read", read)
    )
    path.write_text("".join(f"{to_json(op)}\n" for op in lines))
    assert run(["check", str(path), "--checker", checker, "--time-limit", "0"]) == 2
    assert "longer than --time-limit 0" in capsys.readouterr().err


def _work_for_a_minute() -> None:
    """Fail the test when nothing cuts it short."""
    given_up = time.monotonic() + 60.0
    while time.monotonic() < given_up:
        pass
    raise AssertionError("nothing cut the check short")


def test_a_check_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jepsen.cli.commands.check.PATIENCE_S", 0.0)
    begun = []

    def endless() -> Verdict:
        begun.append(True)
        _work_for_a_minute()
        return judge(())

    verdict = within(0.01, endless)
    assert verdict.valid == "unknown"
    assert begun


def test_a_check_is_cut_short_when_a_finalizer_took_the_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jepsen.cli.commands.check.PATIENCE_S", 0.0)
    taken = []

    def endless() -> Verdict:
        with suppress(BaseException):  # As Python drops what is raised in a finalizer.
            _work_for_a_minute()
        taken.append(time.monotonic())
        _work_for_a_minute()
        return judge(())

    begun = time.monotonic()
    assert within(0.01, endless).valid == "unknown"
    assert taken
    assert time.monotonic() - begun < 30.0


def test_what_was_found_in_time_or_not_stands() -> None:
    found = judge([Anomaly("lost")])
    assert within(0.0, lambda: found) is found
    assert within(60.0, lambda: judge(())).valid is True
