"""Processes are signalled only while they are the ones that were started."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from raftctl.errors import ConfigError
from raftctl.localcluster import cluster as cluster_module
from raftctl.localcluster import processes
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.layout import make_layout
from raftctl.localcluster.processes import (
    ProcessRef,
    load_process,
    lock_holder,
    save_process,
    start_node,
    wait_gone,
)
from raftctl.localcluster.status import ClusterStatus
from tests.unit.raftctl.localcluster.stub_controller import answer, broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def sleeper() -> Iterator[ProcessRef]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        yield ProcessRef(child.pid, psutil.Process(child.pid).create_time())
        child.kill()


def test_kill_and_wait(sleeper: ProcessRef) -> None:
    assert sleeper.is_alive()
    assert wait_gone([sleeper], 0.05) == [sleeper]
    sleeper.send(signal.SIGKILL)
    assert wait_gone([sleeper], 10.0) == []
    sleeper.send(signal.SIGKILL)


def test_a_stranger_with_the_same_id_is_left_alone(sleeper: ProcessRef) -> None:
    stranger = dataclasses.replace(sleeper, started=sleeper.started - 100)
    assert not stranger.is_alive()
    stranger.send(signal.SIGKILL)
    assert sleeper.is_alive()


def test_a_process_is_remembered(tmp_path: Path, sleeper: ProcessRef) -> None:
    path = tmp_path / "process.json"
    assert load_process(path) is None
    save_process(path, sleeper)
    assert load_process(path) == sleeper
    path.write_text("{}")
    assert load_process(path) is None


def test_a_node_that_cannot_start_leaves_a_line(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    process = start_node(tmp_path / "absent.properties", log)
    assert os.getsid(process.pid) == process.pid
    assert wait_gone([process], 30.0) == []
    assert "absent.properties: cannot be read" in log.read_text()


def test_the_process_table_is_not_littered(tmp_path: Path) -> None:
    process = start_node(tmp_path / "absent.properties", tmp_path / "node.log")
    wait_gone([process], 30.0)
    assert not psutil.pid_exists(process.pid)
    processes._reap(process.pid)


LOCKS = """
import sys, time
from raftctl.runtime.real import RealFileSystem
lock = RealFileSystem().lock_directory(sys.argv[1])
print("locked", flush=True)
time.sleep(60)
"""


def test_who_has_locked_a_directory_is_found_and_nobody_else(
    tmp_path: Path, sleeper: ProcessRef
) -> None:
    assert lock_holder(tmp_path) is None
    command = [sys.executable, "-c", LOCKS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        found = lock_holder(tmp_path)
        assert found is not None
        assert found.pid == child.pid
        assert found.is_alive()
        found.send(signal.SIGKILL)
    assert lock_holder(tmp_path) is None
    (tmp_path / ".lock").write_text(f"{sleeper.pid}\n")
    assert lock_holder(tmp_path) is None, "an id that another program has now"
    for damaged in ("", "nobody", "-1", "9" * 30):
        (tmp_path / ".lock").write_text(damaged)
        assert lock_holder(tmp_path) is None


@pytest.mark.parametrize(
    ("command", "refused"), [(("start", "--config", "x"), True), (("x",), False)]
)
def test_a_node_of_another_user_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], refused: bool
) -> None:
    def hidden(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    (tmp_path / ".lock").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(psutil.Process, "open_files", hidden)
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["python", *command])
    expected = pytest.raises(ConfigError, match=f"process {os.getpid()}, of another user")
    with expected if refused else contextlib.nullcontext():
        assert lock_holder(tmp_path) is None


@pytest.mark.parametrize(("threads", "is_alive"), [(2, True), (1, False), (0, False)])
def test_a_killed_process_lives_as_long_as_a_thread_of_it(
    sleeper: ProcessRef, monkeypatch: pytest.MonkeyPatch, threads: int, is_alive: bool
) -> None:
    monkeypatch.setattr(psutil.Process, "status", lambda _: psutil.STATUS_ZOMBIE)
    monkeypatch.setattr(psutil.Process, "num_threads", lambda _: threads)
    assert sleeper.is_alive() == is_alive


def test_brokers_need_not_answer_in_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with much else to do each may be too slow now and then."""
    made = LocalCluster(tmp_path, make_layout("cluster", [3], [1, 2], {}))
    answers = iter([True, False, True])
    told = ClusterStatus({"c": answer(101, role="leader", brokers=[broker(1), broker(2)])})
    monkeypatch.setattr(cluster_module, "serves", lambda *_, **__: next(answers))
    monkeypatch.setattr(LocalCluster, "status", lambda _: told)
    monkeypatch.setattr(LocalCluster, "check_none_stopped", lambda _: None)
    assert made.wait_ready(60, lambda _: None).active_brokers == [1, 2]
    assert next(answers, None) is None


def test_an_interrupt_while_a_node_starts_comes_after_it_is_remembered(tmp_path: Path) -> None:
    def interrupted(_properties: Path, _log: Path) -> ProcessRef:
        signal.raise_signal(signal.SIGINT)
        return ProcessRef(1, 2.0)

    cluster = LocalCluster(tmp_path, make_layout("cluster", [2], [1], {}), interrupted)
    node = cluster.layout.nodes[0]
    (tmp_path / node.name).mkdir()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(node)
    assert cluster.process(node) == ProcessRef(1, 2.0)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_node_of_another_user_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: psutil.Process, number: int) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "send_signal", refuse)
    own = psutil.Process()
    node = ProcessRef(own.pid, own.create_time())
    with pytest.raises(ConfigError, match=f"process {own.pid} is another user's"):
        node.send(signal.SIGTERM)
