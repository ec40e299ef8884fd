"""What is refused before Spark starts, and what is said while it works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.cli.spark import CHECKERS
from jepsen.core.spec import WORKLOADS, RunSpec
from jepsen.errors import InputError
from jepsen.spark import preflight
from jepsen.store import HISTORY_FILE, RunFolder

if TYPE_CHECKING:
    from pathlib import Path

LINE = '{"process": 0, "type": "invoke", "f": "read", "value": null, "time": 0}\n'


def refused_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    started = time.monotonic()
    status = run(["spark", *arguments])
    assert time.monotonic() - started < preflight.MASTER_WAIT_S + 2, "no JVM has started"
    error = capsys.readouterr().err.splitlines()
    assert status == 254
    return error[-1]


@pytest.mark.parametrize("command", ["check", "watch", "replicas"])
def test_files_are_looked_at_before_spark_starts(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere")
    others = [str(tmp_path / "other")] if command == "replicas" else []
    told = refused_at_once([command, missing, *others], capsys)
    assert told == f"jepsen: {missing}: cannot be read: No such file or directory"


@pytest.mark.parametrize("command", ["check", "watch"])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"garbage\n", "it begins with 'garbage'"),
        (b"", "it is empty"),
        (b"\xff\xfe\x00", "not text"),
    ],
)
def test_what_is_no_history_is_refused_before_spark_starts(
    command: str, content: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    path.write_bytes(content)
    told = refused_at_once([command, str(path)], capsys)
    assert told.startswith(f"jepsen: {path}: not a history")
    assert why in told


def test_a_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a run \(test.json\) nor Parquet files"):
        preflight.refuse_files([str(tmp_path)])


@pytest.mark.parametrize("command", ["check", "watch"])
def test_a_run_of_no_registers_is_told_its_checker(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = RunFolder.create(tmp_path, RunSpec("queue", "sim"), "")
    history = made.path / HISTORY_FILE
    history.write_text(LINE.replace("read", "poll"))
    told = refused_at_once([command, str(made.path)], capsys)
    assert told == f"jepsen: {made.path}: a test of queue: name its --checker, such as kafka-log"
    assert refused_at_once([command, str(history)], capsys).endswith("such as kafka-log")


def test_every_workload_has_a_checker_on_spark_and_registers_the_default(tmp_path: Path) -> None:
    fitting = {preflight.CHECKERS_OF.get(name, name) for name in WORKLOADS} - {"register"}
    assert fitting <= set(CHECKERS)
    made = RunFolder.create(tmp_path, RunSpec("register", "sim"), "")
    preflight.refuse_other_workloads([str(made.path), str(tmp_path / "other.jsonl")])


def test_a_history_may_begin_with_a_line_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(LINE.replace("null", f'"{"x" * (2 << 20)}"') + LINE)
    assert preflight.refuse_files([str(path)]) == path.stat().st_size


def test_a_master_that_nobody_runs_is_refused_in_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(LINE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody else gets the port, and nobody listens.
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = refused_at_once(["check", "--master", f"spark://{address}", str(path)], capsys)
    assert told.startswith(f"jepsen: --master spark://{address}: no Spark master answers there")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        preflight.refuse_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        preflight.refuse_master("local[2]")


def test_noise_is_left_out_and_errors_pass(capfd: pytest.CaptureFixture[str]) -> None:
    with preflight.spark_errors() as errors, errors.starting():
        os.write(
            2, b"WARNING: Using incubator modules: jdk.incubator.vector\nspark: disk is full\n"
        )
    deadline = time.monotonic() + 10
    seen = ""
    while "disk is full" not in seen and time.monotonic() < deadline:
        seen += capfd.readouterr().err
        time.sleep(0.01)
    assert seen == "spark: disk is full\n"


def test_it_is_said_that_the_work_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    with preflight.progress("starting", 100, every_s=0.02) as now:
        now.begin("judging")
        time.sleep(0.1)
    hint, start, first, second, *_ = capfd.readouterr().err.splitlines()
    assert hint == (
        "jepsen: 100 bytes are little for Spark, `jepsen check` judges them in one process"
    )
    assert start == "jepsen: starting, 0 s"
    assert first == second == "jepsen: judging, 0 s"


def test_below_spark_submit_nothing_is_said(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(preflight.SUBMITTED, "1")
    with preflight.progress("starting", 100, every_s=0.01) as now:
        now.begin("judging")
        time.sleep(0.05)
    assert capfd.readouterr() == ("", ""), "stderr comes into the document on stdout there"


@pytest.mark.timeout(120)
def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(LINE + LINE.replace("invoke", "ok"))
    program = "from jepsen.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "spark", "check", str(path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:
            lines.append(line.rstrip())
            if "judging on Spark" in line:
                process.send_signal(signal.SIGINT)
        status = process.wait(60)
    finally:
        process.kill()
        process.communicate()
    assert status == 130
    told = ("judging on Spark", "starting Spark", "little for")
    said = [line for line in lines if not any(one in line for one in told)]
    assert said == []
