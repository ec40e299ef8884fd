"""The harness against real processes: `jepsen test --env local` and `external`."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run
from jepsen.store import RunFolder, runs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT = ["--time-limit", "4", "--interval", "1", "--rate", "20", "--concurrency", "4"]


def results(capsys: pytest.CaptureFixture[str], store: Path, *words: str) -> dict[str, Any]:
    run(["test", *SHORT, *words, "--store", str(store), "--output", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.req("J1", "J2", "J3", "J4")
def test_a_real_cluster_is_broken_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = results(capsys, tmp_path, "queue", "--nemesis", "kill,partition", "--seed", "1")
    assert found["checkers"]["kafka"]["valid"] is True, found
    history = (tmp_path / "latest" / "history.jsonl").read_text()
    for f in ("kill", "partition", "heal-all"):
        assert f'"f":"{f}"' in history
    assert list((tmp_path / "latest" / "nodes").glob("*/node.log"))
    servers = {name: found["checkers"][name] for name in ("trace", "metadata", "replicas")}
    assert [one["valid"] for one in servers.values()] == [True] * 3, servers
    assert servers["replicas"]["statistics"]["partitions"] >= 3


@pytest.mark.req("J2")
@pytest.mark.parametrize(
    ("nemesis", "begins"),
    [("disk", "break-disk"), ("clock", "skew"), ("brokers", "remove-broker")],
)
def test_disks_clocks_and_members_of_real_clusters_change(
    tmp_path: Path, nemesis: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["register", "--nemesis", nemesis, "--time-limit", "2", "--seed", "1"]
    found = results(capsys, tmp_path, *words)
    assert found["checkers"]["linearizable"]["valid"] is True, found
    assert f'"f":"{begins}"' in (tmp_path / "latest" / "history.jsonl").read_text()


@pytest.mark.req("J1", "J3", "J5")
@pytest.mark.parametrize(
    ("workload", "checker", "client"),
    [
        ("queue", "kafka", "librdkafka"),
        ("queue", "kafka", "aiokafka"),
        ("queue-txn", "kafka", "librdkafka"),
        ("group", "group", "librdkafka"),
    ],
)
def test_a_cluster_of_somebody_else_is_judged(
    bootstrap: str,
    tmp_path: Path,
    workload: str,
    checker: str,
    client: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--env", "external", "--bootstrap-servers", bootstrap, "--client", client]
    topic = f"{workload}-{client}"
    found = results(capsys, tmp_path, workload, *words, "--topic", topic)
    assert found["checkers"]["kafka"]["valid"] is True, found
    assert found["checkers"][checker]["valid"] is not False, found
    assert found["operations"] > 20


@pytest.mark.req("J1")
def test_a_program_may_run_a_test_in_a_thread_of_its_own(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--env", "external", "--bootstrap-servers", bootstrap, "--topic", "threaded"]
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(results, capsys, tmp_path, "queue", *words).result()
    assert found["valid"] is True, found


@pytest.mark.req("J1")
def test_an_external_cluster_is_looked_at_before_anything_is_stored(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    words = ["--env", "external", "--bootstrap-servers", bootstrap, "--topic", "used-twice"]
    assert results(capsys, store, "queue", *words)["valid"] is True
    latest = (store / "latest").resolve()
    command = RunFolder.open(latest).command
    assert "--topic" not in command
    refused = ["test", "queue", *SHORT, "--store", str(store), *words]
    assert run(refused) == 254
    assert re.search(r"--topic used-twice: it has \d+ records", capsys.readouterr().err)
    assert run([*refused, "--topic", "too-many", "--replication", "9"]) == 254
    assert "--replication 9: 3 brokers serve" in capsys.readouterr().err
    assert (store / "latest").resolve() == latest
    assert len(runs(store)) == 1


@pytest.mark.req("J1")
@pytest.mark.parametrize("answers", [False, True])
def test_an_address_where_no_kafka_answers_is_refused_at_once(
    tmp_path: Path, answers: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if answers:
            pool.submit(_say_no_kafka, listener)
        else:
            listener.close()
        words = ["--env", "external", "--bootstrap-servers", address, "--store", str(store)]
        began_s = time.monotonic()
        assert run(["test", "queue", *words]) == 254
    assert time.monotonic() - began_s < 10
    told = capsys.readouterr().err
    assert f"--bootstrap-servers {address}: no broker answers" in told
    assert ("does not speak Kafka's protocol" in told) == answers
    assert len(told.splitlines()) == 1
    assert not store.exists()


def _say_no_kafka(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.req("J1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_somebody_ends_is_unknown_and_says_when(tmp_path: Path, number: int) -> None:
    store = tmp_path / "store"
    words = ["test", "queue", "--nemesis", "kill", "--time-limit", "600", "--interval", "300"]
    command = [sys.executable, "-m", "jepsen.cli.main", *words, "--store", str(store)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = list(_lines_until(process.stderr, " operations: "))
        process.send_signal(number)
        told += process.stderr.readlines()
        assert process.wait() == 130
    assert any(re.search(r"interrupted after \d+ of 600 s, 0 faults struck", one) for one in told)
    found = json.loads((store / "latest" / "results.json").read_text())
    assert (found["valid"], found["interrupted"]) == ("unknown", True)
    assert found["faults"] == {"kill": 0}
    assert run(["report", str(store / "latest"), "--again"]) == 0
    assert json.loads((store / "latest" / "results.json").read_text()) == found


def _lines_until(stream: IO[str], part: str) -> Iterator[str]:
    for line in stream:
        yield line
        if part in line:
            return
