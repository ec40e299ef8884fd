"""Nodes forked from one warm process are what nodes started one by one are."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.localcluster.fork_server import NodeLauncher
from raftctl.localcluster.processes import ProcessRef, wait_gone
from tests.integration.clusters import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

END_S = 30.0


@pytest.fixture(scope="module")
def launcher() -> Iterator[NodeLauncher]:
    with NodeLauncher() as made:
        yield made


@pytest.fixture
def absent(tmp_path: Path) -> Path:
    """A configuration that is not there, so that the node ends with a line about it."""
    return tmp_path / "absent.properties"


def ended(process: ProcessRef, log: Path) -> str:
    """What a node wrote that ends by itself."""
    assert wait_gone([process], END_S) == []
    return log.read_text()


def test_a_node_that_cannot_start_leaves_a_line(
    launcher: NodeLauncher, tmp_path: Path, absent: Path
) -> None:
    log = tmp_path / "node.log"
    log.write_text("of its former life\n")
    told = ended(launcher.launch(absent, log), log)
    assert told.startswith("of its former life\n")
    assert f"--config {absent}: cannot be read" in told


@pytest.mark.req("A1")
def test_nodes_are_processes_of_their_own_and_outlive_the_launcher(tmp_path: Path) -> None:
    with NodeLauncher() as launcher:
        cluster = LocalCluster.open(
            tmp_path / "cluster",
            ClusterSpec(1, 1),
            random_uuid_text,
            format_storage,
            launcher.launch,
        )
        cluster.start_all()
    try:
        cluster.wait_ready(60, lambda _: None)
        for node in cluster.layout.nodes:
            process = cluster.process(node)
            assert process is not None
            assert os.getsid(process.pid) == process.pid
            title = " ".join(psutil.Process(process.pid).cmdline())
            file = cluster.directory / node.name / "node.properties"
            assert title.strip().endswith(f"-m raftctl start --config {file}")
        broker = cluster.layout.brokers[0]
        cluster.kill(broker)
        # The launcher is gone: an interpreter of its own is started.
        cluster.start(broker)
        cluster.wait_ready(60, lambda _: None)
        assert cluster.stop_all(60) == []
    finally:
        cluster.kill_all()


def test_what_ends_is_reaped(launcher: NodeLauncher, tmp_path: Path, absent: Path) -> None:
    process = launcher.launch(absent, tmp_path / "node.log")
    # A parent that does not reap would leave a zombie of that id for as long as it lives.
    wait_until(lambda: not psutil.pid_exists(process.pid), "the process to be reaped", END_S)


def test_threads_get_nodes_of_their_own(
    launcher: NodeLauncher, tmp_path: Path, absent: Path
) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(8)]
    with ThreadPoolExecutor(len(logs)) as threads:
        nodes = list(threads.map(lambda log: launcher.launch(absent, log), logs))
    assert len({node.pid for node in nodes}) == len(logs)
    for node, log in zip(nodes, logs, strict=True):
        assert ended(node, log).count("cannot be read") == 1


def test_without_its_process_nodes_start_all_the_same(tmp_path: Path, absent: Path) -> None:
    log = tmp_path / "node.log"
    with NodeLauncher() as launcher:
        launcher._server._process.send_signal(signal.SIGKILL)
        launcher._server._process.wait()
        assert "cannot be read" in ended(launcher.launch(absent, log), log)


def test_an_interrupted_request_does_not_answer_the_next(
    tmp_path: Path, absent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NodeLauncher() as launcher:
        with monkeypatch.context() as patched:
            patched.setattr(launcher._server._process, "stdout", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                launcher.launch(absent, tmp_path / "lost.log")
        log = tmp_path / "node.log"
        assert "cannot be read" in ended(launcher.launch(absent, log), log)


class Interrupted:
    """A stream whose reader is told to end."""

    def readline(self) -> str:
        raise KeyboardInterrupt

    def close(self) -> None:
        """Nothing is open."""
