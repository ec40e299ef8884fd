"""The harness against real processes: `jepsen test --env local` and `external`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run

if TYPE_CHECKING:
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
