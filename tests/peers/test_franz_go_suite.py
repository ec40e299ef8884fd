"""franz-go's own tests of its client, as the module brings them, on our brokers.

Among them are chains of groups and of transactions that copy records from topic to topic while
members come and go, under the classic protocol and KIP-848, with static members too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import running_cluster
from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, need, run

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.2"
GO_MOD = f"module raftctl/suite\n\ngo 1.26.0\n\nrequire {MODULE} {VERSION}\n"
RECORDS = "1000"
"""Through each chain; the suite's own number is 500,000."""
SUITE_TIMEOUT_S = 300
BROKERS = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    # Nothing is gained if a broker is fenced because the machine is busy.
    "broker.session.timeout.ms": "60000",
}
SHARE, SCRAM = "share groups are not offered", "SASL is not offered"
SKIPPED = {
    "TestConsumeRegexShareSkipsInternal": SHARE,
    "TestShareGroup": SHARE,
    "TestShareGroupETL": SHARE,
    "TestShareGroupOffsetsAdmin": SHARE,
    "TestShareGroupAckOnClose": SHARE,
    "TestSCRAMAuth": SCRAM,
    "TestSCRAMAuthBadCredentials": SCRAM,
    "TestIssueProduceBrokerTooOldFailsRecords": "for brokers that know records of magic 1 only",
}
"""Tests that skip themselves on our brokers, and why."""
COUNTS_INTERNAL = "Test848RegexBrokerResolves"
"""It stops when it has read as many topics as it has written to, and may read `__consumer_offsets`
before the last of them: a race of its own, so that one of a few runs has to pass.
"""
TRIES = 8


def suite() -> Path:
    """The program that has all tests of the module's package `kgo`."""
    need("go")

    def install(folder: Path) -> None:
        (folder / "go.mod").write_text(GO_MOD)
        shutil.copy(HERE / "franzgo" / "go.sum", folder)
        fetch = ["go", "get", "-t", f"{MODULE}/pkg/kgo@{VERSION}"]
        run(fetch, folder=folder, timeout_s=INSTALL_TIMEOUT_S)
        build = ["go", "test", "-c", "-o", "kgo.test", f"{MODULE}/pkg/kgo"]
        run(build, folder=folder, timeout_s=INSTALL_TIMEOUT_S)

    return installed("franz-go-suite", GO_MOD, install) / "kgo.test"


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[str]:
    """The bootstrap servers of a cluster of its own."""
    with running_cluster(tmp_path / "cluster", 1, 3, BROKERS) as cluster:
        yield cluster.layout.bootstrap


@pytest.mark.req("N1", "G2", "G3", "G4", "T2", "T4")
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S + SUITE_TIMEOUT_S)
def test_franz_gos_own_tests_pass(three_brokers: str) -> None:
    program = suite()
    where = ["go", "list", "-f", "{{.Dir}}", f"{MODULE}/pkg/kgo"]
    # One of the tests reads the sources.
    sources = Path(run(where, folder=program.parent).strip())
    environment = {
        "KGO_SEEDS": three_brokers,
        "KGO_TEST_RECORDS": RECORDS,
        "KGO_LOG_LEVEL": "none",
    }
    alone = [str(program), f"-test.run=^{COUNTS_INTERNAL}$"]
    assert any(
        subprocess.run(alone, cwd=sources, env=os.environ | environment, check=False).returncode
        == 0
        for _ in range(TRIES)
    )
    told = run(
        [
            "go",
            "tool",
            "test2json",
            program,
            "-test.v=test2json",
            f"-test.skip=^{COUNTS_INTERNAL}$",
        ],
        folder=sources,
        environment=environment,
        timeout_s=SUITE_TIMEOUT_S,
    )
    events = [json.loads(line) for line in told.splitlines()]
    outcomes = {
        one["Test"]: one["Action"] for one in events if one.get("Test", "/").count("/") == 0
    }
    assert {test for test, outcome in outcomes.items() if outcome == "skip"} == set(SKIPPED)
    assert [test for test, outcome in outcomes.items() if outcome not in ("pass", "skip")] == []
    assert {"TestGroupETL", "TestTxnEtl"} <= outcomes.keys()
