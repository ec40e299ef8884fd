"""kafka-python's integration tests, as its source distribution brings them, on one of our brokers.

They assume much of their broker: its id, and what it is configured with. The two files that the
distribution leaves out serve tests that start brokers themselves; these are skipped.
"""

from __future__ import annotations

import sys
import tarfile
import venv
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.integration.quorum_nodes import QuorumNodes
from tests.peers.tools import INSTALL_TIMEOUT_S, installed, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "3.0.12"
TOOLS = (
    "pytest==9.2.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    "crc32c==2.9.post0",
    "lz4==4.4.5",
    "python-snappy==0.7.3",
    "zstandard==0.25.0",
)
SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    pass
"""
NOT_OFFERED = "test/integration/test_ssl_integration.py"
"""Brokers have no TLS."""
REFUSED = "test/integration/test_admin_integration.py::test_create_describe_delete_acls"
"""It wants an authorizer. Without one rules of access are refused, as by Apache Kafka."""
INFERS = "test/integration/test_consumer_integration.py::test_kafka_version_infer"
"""It names one release, and infers another from the newest versions of requests offered here."""
PASSED = 52
"""All that run on a broker that they have not started; a release may bring more."""
SUITE_TIMEOUT_S = 600
ASSUMED = {
    "num_partitions": "4",
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "group_min_session_timeout_ms": "1000",
    "group_initial_rebalance_delay_ms": "0",
    # Nothing is gained if the broker is fenced because the machine is busy.
    "broker_session_timeout_ms": "60000",
}


def suite() -> Path:
    """The folder of the distribution, with a Python in `venv` beside it."""

    def install(folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip"]
        run([*pip, "install", "--quiet", *TOOLS], timeout_s=INSTALL_TIMEOUT_S)
        source = ["--no-deps", "--no-binary", "kafka-python", f"kafka-python=={VERSION}"]
        run([*pip, "download", "--quiet", *source], folder=folder, timeout_s=INSTALL_TIMEOUT_S)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        tests = folder / f"kafka_python-{VERSION}" / "test"
        (tests / "__init__.py").touch()
        (tests / "service.py").write_text(SERVICE)
        (tests.parent / "servers" / "4.0.0" / "kafka-bin").mkdir(parents=True)

    recipe = f"{VERSION} {TOOLS} {SERVICE} {sys.version}"
    return installed("kafka-python-suite", recipe, install) / f"kafka_python-{VERSION}"


@pytest.fixture
def broker_zero(tmp_path: Path) -> Iterator[str]:
    """`host:port` of the broker 0, the only one of its controller."""
    nodes = QuorumNodes(tmp_path)
    try:
        (controller,) = nodes.add("controller", [100])
        (broker,) = nodes.add("broker", [0])
        address = f"PLAINTEXT://{broker.address}"
        nodes.configure(controller, [controller], **ASSUMED)
        nodes.configure(broker, [controller], advertised_listeners=address, **ASSUMED)
        nodes.format(controller, "--standalone")
        nodes.format(broker)
        nodes.start(controller)
        nodes.start(broker)
        yield broker.address
    finally:
        nodes.kill_all()


@pytest.mark.req("N1", "A1", "G2", "G3", "T2")
@pytest.mark.timeout(2 * INSTALL_TIMEOUT_S + SUITE_TIMEOUT_S)
def test_kafka_pythons_own_tests_pass(broker_zero: str, tmp_path: Path) -> None:
    folder, report = suite(), tmp_path / "report.xml"
    quiet = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
    limits = ["--timeout=120", "--timeout-method=signal"]
    run(
        [
            *(folder.parent / "venv" / "bin" / "python", "-m", "pytest", "test/integration"),
            *(*quiet, *limits, f"--junitxml={report}", f"--ignore={NOT_OFFERED}"),
            *(f"--deselect={REFUSED}", f"--deselect={INFERS}"),
        ],
        folder=folder,
        environment={"KAFKA_VERSION": "4.0.0", "KAFKA_URI": f"kafka://{broker_zero}"},
        timeout_s=SUITE_TIMEOUT_S,
    )
    cases = ElementTree.parse(report).iter("testcase")
    assert sum(case.find("skipped") is None for case in cases) == PASSED
