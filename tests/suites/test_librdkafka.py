"""librdkafka's own tests, as node-rdkafka's package on npm brings them, on three brokers.

Those that talk to librdkafka's own mock of a broker are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import running_cluster
from tests.peers.tools import installed, need, run

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE, VERSION = "node-rdkafka", "3.6.1"
"""With librdkafka 2.12.0."""
INSTALL_TIMEOUT_S = 1_200
SUITE_TIMEOUT_S = 3_600
BROKERS = {
    "num.partitions": "4",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "60000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
SCRIPTS = "runs Apache Kafka's shell scripts"
AUTHORIZER = "wants rules of access, and brokers have no authorizer: SECURITY_DISABLED"
MOCK = "talks to librdkafka's mock of a broker only"
LEFT_OUT = {
    **dict.fromkeys(("0104", "0105", "0117", "0138", "0139", "0143", "0144"), MOCK),
    **dict.fromkeys(("0145", "0146", "0147", "0148", "0149", "0150", "0151"), MOCK),
    "0052": SCRIPTS,
    "0077": SCRIPTS,
    "0109": AUTHORIZER,
    "0115": AUTHORIZER,
    "0119": AUTHORIZER,
    "8000": "idles for ever, to be looked at",
    "8001": "for trying by hand",
}
FAIL = {
    "0081_admin": AUTHORIZER,
    "0129_fetch_aborted_msgs": "wants segment.bytes below 1 MiB, which Apache Kafka 4 refuses, too",
}
"""The other subtests of 0081 pass one by one."""


def suite() -> Path:
    """The folder of the tests, built."""
    need("npm", "gcc", "g++", "make")

    def install(folder: Path) -> None:
        run(["npm", "pack", f"{PACKAGE}@{VERSION}"], folder=folder, timeout_s=INSTALL_TIMEOUT_S)
        run(["tar", "xzf", f"{PACKAGE}-{VERSION}.tgz"], folder=folder)
        library = folder / "package" / "deps" / "librdkafka"
        for command in (
            ["./configure", "--disable-sasl", "--disable-gssapi", "--disable-curl"],
            ["make", "-j2", "libs"],
            ["make", "-j2", "-C", "tests", "test-runner", "build"],
        ):
            run(command, folder=library, timeout_s=INSTALL_TIMEOUT_S)

    recipe = f"{PACKAGE}@{VERSION}"
    return installed("librdkafka-suite", recipe, install) / "package/deps/librdkafka/tests"


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + SUITE_TIMEOUT_S)
def test_librdkafkas_own_tests_pass(tmp_path: Path) -> None:
    folder, report = suite(), tmp_path / "report.json"
    with running_cluster(tmp_path / "cluster", 1, 3, BROKERS) as cluster:
        (folder / "test.conf").write_text(f"bootstrap.servers={cluster.layout.bootstrap}\n")
        environment = {
            "LD_LIBRARY_PATH": f"{folder.parent}/src:{folder.parent}/src-cpp",
            "TEST_REPORT": str(report),
            "TEST_KAFKA_VERSION": "4.0.0",
            "BROKERS": cluster.layout.bootstrap,
            "TESTS_SKIP": ",".join(LEFT_OUT),
        }
        # Its status tells of tests that are to fail, too: the report says which.
        with (tmp_path / "told.txt").open("w") as told:
            subprocess.run(
                ["./test-runner", "-L", "-p1"],
                cwd=folder,
                env=os.environ | environment,
                stdout=told,
                stderr=subprocess.STDOUT,
                timeout=SUITE_TIMEOUT_S,
                check=False,
            )
    tests = json.loads(report.read_text())["tests"]
    failed = {name for name, test in tests.items() if test["state"] == "FAILED"}
    assert failed == set(FAIL), (tmp_path / "told.txt").read_text()[-10_000:]
    passed = [name for name, test in tests.items() if test["state"] == "PASSED"]
    assert len(passed) >= 60
