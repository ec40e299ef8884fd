"""The harness on Apache Kafka, the control: what is found wrong there is wrong in the harness."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run
from tests.peers.programs import JavaTools
from tests.peers.tools import INSTALL_TIMEOUT_S, KAFKA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

WORKLOADS = ["queue", "queue-txn", "list-append", "bank", "group", "topics"]
SHORT = ["--time-limit", "6", "--rate", "20", "--concurrency", "4", "--replication", "1"]


@pytest.mark.req("J3", "J5")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 300)
@pytest.mark.xdist_group("apache_kafka")
def test_apache_kafka_keeps_what_it_promises(
    apache_kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--env", "external", "--bootstrap-servers", apache_kafka]
    kept = ["--store", str(tmp_path), "--output", "json"]
    run(["test-all", "--workload", ",".join(WORKLOADS), *where, *SHORT, *kept])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [one["workload"] for one in found] == WORKLOADS
    assert [one for one in found if one["valid"] is not True] == []


@pytest.mark.req("J3")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 120)
def test_java_clients_write_and_read_a_log_that_is_judged(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = JavaTools(KAFKA_VERSION).home(tmp_path)
    where = ["--env", "external", "--bootstrap-servers", bootstrap, "--kafka-home", str(home)]
    shape = ["--time-limit", "4", "--concurrency", "2", "--topic", "java"]
    run(["test", "verifiable", *where, *shape, "--store", str(tmp_path), "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    assert found["checkers"]["kafka"]["valid"] is True, found
    assert found["checkers"]["kafka"]["statistics"]["polled"] >= 20
