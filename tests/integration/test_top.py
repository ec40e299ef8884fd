"""`raftctl top` on a cluster of real processes: a page, and a live picture on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

pytestmark = pytest.mark.req("O2")
TOP = [sys.executable, "-m", "raftctl", "top"]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[LocalCluster]:
    with running_cluster(folder / "raftctl-cluster", 1, 2) as running:
        yield running


def test_a_page_has_every_node_without_an_option(small: LocalCluster, folder: Path) -> None:
    run = [*TOP, "--interval", "0.3", "--output", "json"]
    shown = subprocess.run(run, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
    document = json.loads(shown.stdout)
    assert document["cluster_id"] == small.layout.cluster_id
    assert document["leader_id"] == small.layout.controllers[0].node_id
    assert [one["role"] for one in document["quorum"]] == ["leader"]
    assert [one["state"] for one in document["brokers"]] == ["active", "active"]
    assert all(one["requests"] is not None for one in document["brokers"])
    assert document["silent"] == []


def test_the_live_picture_names_a_silent_node_and_leaves_the_terminal_as_it_was(
    small: LocalCluster, folder: Path
) -> None:
    broker = small.layout.brokers[-1]
    running = small.process(broker)
    assert running is not None
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [*TOP, "--interval", "0.2"],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = bytearray()

    def wait_for(text: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in shown:
            assert time.monotonic() < until, shown.decode(errors="replace")[-3_000:]
            shown.extend(os.read(ours, 65_536))

    try:
        wait_for(b"BROKERS")
        running.send(signal.SIGSTOP)
        wait_for(f"broker {broker.node_id} ({broker.http_address}) is silent".encode())
        os.write(ours, b"h")
        wait_for(b"stops the picture")
        os.write(ours, b"q")
        wait_for(b"\x1b[?1049l")
        assert process.wait(PATIENCE_S) == 0
    finally:
        running.send(signal.SIGCONT)
        process.kill()
        process.wait()
        os.close(ours)
