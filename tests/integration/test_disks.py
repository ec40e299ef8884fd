"""Real processes on disks that are full or damaged: they end with a sentence and lose nothing."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import run
from raftctl.localcluster.ports import free_ports
from tests.integration.clusters import wait_until
from tests.integration.commands import ROOT, raftctl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.req("Q12")

ENDS_WITHIN_S = 60
ROOM_BYTES = 700
"""What the disk still takes when it is about to be full."""


class Controller:
    """One controller, a quorum of its own."""

    def __init__(self, directory: Path) -> None:
        (self.port,) = free_ports(1)
        self.config = directory / "node.properties"
        self.log = directory / "data" / "__cluster_metadata-0"
        self.config.write_text(
            "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{self.port}\n"
            f"listeners=CONTROLLER://127.0.0.1:{self.port}\nlog.dirs={directory}/data\n"
            # There is nobody else to wait for.
            "controller.quorum.election.timeout.ms=100\n"
            "controller.quorum.fetch.timeout.ms=100\n"
        )
        chosen = raftctl("storage", "random-uuid").stdout.strip()
        raftctl("storage", "format", "--config", str(self.config), "--cluster-id", chosen)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """The process, which is ended if it has not ended by itself."""
        command = [sys.executable, "-m", "raftctl", "start", "--config", str(self.config)]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def put(self, key: str, value: str = "v") -> bool:
        """Whether it was acknowledged."""
        return run(["kv", "put", key, value, *self._where()]) == 0

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return run(["kv", "get", key, *self._where()]) == 0

    def _where(self) -> list[str]:
        return ["--controllers", f"127.0.0.1:{self.port}", "--timeout", "5"]

    def ends(self) -> tuple[int, str]:
        """Exit status and last line of a start that fails."""
        with self.running() as process:
            _, errors = process.communicate(timeout=ENDS_WITHIN_S)
            return process.returncode, errors.rstrip().rpartition("\n")[2]

    def segment(self) -> Path:
        """The newest segment of the log."""
        return max(self.log.glob("*.log"))


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def test_a_full_disk_ends_the_node_before_anything_is_acknowledged(
    controller: Controller,
) -> None:
    with controller.running() as process:
        wait_until(lambda: controller.put("first"), "a put is acknowledged")
        limit = controller.segment().stat().st_size + ROOM_BYTES
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        keys = [f"key-{number}" for number in range(8)]
        acknowledged = list(takewhile(lambda key: controller.put(key, "x" * 200), keys))
        _, errors = process.communicate(timeout=ENDS_WITHIN_S)
        assert process.returncode == 1
    assert len(acknowledged) < 8
    last = errors.rstrip().rpartition("\n")[2]
    assert last.startswith(f"raftctl: {controller.segment()}: File too large; ")
    assert "make room" in last
    with controller.running():
        wait_until(lambda: controller.put("last"), "a put is acknowledged")
        assert all(controller.has(key) for key in ["first", *acknowledged, "last"])


def test_a_flipped_bit_in_the_newest_batch_is_named_at_the_next_start(
    controller: Controller,
) -> None:
    with controller.running():
        wait_until(lambda: controller.put("key"), "a put is acknowledged")
    path = controller.segment()
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    for _ in range(2):
        status, last = controller.ends()
        assert status == 1
        assert last.startswith(f"raftctl: {path}: corrupt at byte ")
        assert "restore the disk, or format the directory again" in last
        assert path.read_bytes() == content
    content[-3] ^= 4
    path.write_bytes(content)
    with controller.running():
        wait_until(lambda: controller.has("key"), "the key is there")


@pytest.mark.parametrize("name", ["quorum-state", "recovery-point"])
def test_damage_of_the_small_files(controller: Controller, name: str) -> None:
    """The vote must be right; the note of what was durable is not believed, and made anew."""
    with controller.running():
        wait_until(lambda: controller.put("key"), "a put is acknowledged")
    path = controller.log / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    if name == "quorum-state":
        status, last = controller.ends()
        assert status == 1
        assert last.startswith(f"raftctl: {path}: ")
        assert "restore the disk" in last
    else:
        with controller.running():
            wait_until(lambda: controller.has("key"), "the key is there")
