"""What `--env local` does to clocks and disks, each on a process or a folder alone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from jepsen.core.spec import faults_in, faults_ready
from jepsen.environments.local import clocks
from jepsen.environments.local.clocks import Clocks
from jepsen.environments.local.environment import (
    BIT_FLIP,
    TRUNCATE,
    allow_writes,
    damage,
    refuse_writes,
)
from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

WRITES = """
import sys
for line in sys.stdin:
    try:
        with open(line.strip(), "ab") as file:
            file.write(b"x" * 100)
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
TELLS = "import sys, time\nfor line in sys.stdin:\n    print(time.time(), flush=True)\n"


class Asked:
    """A process that answers each line with a number."""

    def __init__(self, program: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, line: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def writer() -> Iterator[Asked]:
    process = Asked(WRITES)
    yield process
    process.end()


@pytest.mark.req("J2")
def test_no_file_of_a_process_grows_until_its_disk_is_mended(writer: Asked, tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert writer.ask(str(file)) == 0
    refuse_writes(writer.process.pid)
    assert writer.ask(str(file)) == errno.EFBIG
    assert file.stat().st_size == 100
    allow_writes(writer.process.pid)
    assert writer.ask(str(file)) == 0


def a_log(data: Path, name: str, size: int, *, noted: bool) -> Path:
    """A partition's log, older than the recovery points if they cover it."""
    folder = data / name
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"a" * 10)
    segment = folder / "00000000000000000007.log"
    segment.write_bytes(b"b" * size)
    os.utime(segment, (100 if noted else 300,) * 2)
    return segment


@pytest.mark.req("J2")
@pytest.mark.parametrize(
    ("kind", "left"), [(TRUNCATE, b"b" * 1000), (BIT_FLIP, b"b" * 1990 + b"c" + b"b" * 9)]
)
def test_only_the_end_of_what_grew_since_recovery_points_is_damaged(
    tmp_path: Path, kind: str, left: bytes
) -> None:
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_text("0\n0\n")
    os.utime(points, (200, 200))
    grown = a_log(tmp_path, "topic-0", 2000, noted=False)
    spared = [
        a_log(tmp_path, "topic-1", 2000, noted=True),
        a_log(tmp_path, "__cluster_metadata-0", 2000, noted=False),
        grown.parent / "00000000000000000000.log",
    ]
    before = [one.read_bytes() for one in spared]
    assert damage(tmp_path, kind) == ["topic-0/00000000000000000007.log"]
    assert grown.read_bytes() == left
    assert [one.read_bytes() for one in spared] == before


@pytest.mark.req("J2")
def test_without_recovery_points_every_log_is_checked_and_may_be_damaged(tmp_path: Path) -> None:
    short = a_log(tmp_path, "topic-0", 3, noted=False)
    assert damage(tmp_path, BIT_FLIP) == ["topic-0/00000000000000000007.log"]
    assert short.read_bytes() == b"bbb"
    damage(tmp_path, TRUNCATE)
    assert short.read_bytes() == b""


@pytest.mark.req("J2")
def test_the_clock_of_a_process_is_wrong_until_it_is_reset(tmp_path: Path) -> None:
    of_cluster = Clocks()
    process = Asked(TELLS, of_cluster.variables("broker-1", tmp_path))
    assert abs(process.ask("now") - time.time()) < 30
    of_cluster.set({"broker-1": 120_000})
    # It reads the file again within a second, however long that takes on a busy machine.
    while process.ask("now") - time.time() < 90:
        time.sleep(0.05)
    assert of_cluster.variables("broker-1", tmp_path)["LD_PRELOAD"]  # as at a restart
    while not 90 < process.ask("now") - time.time() < 150:
        time.sleep(0.05)
    of_cluster.set({})
    while process.ask("now") - time.time() > 30:
        time.sleep(0.05)
    process.end()


@pytest.mark.req("J2")
def test_clocks_need_a_library_which_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults_ready("local") == faults_in("local")
    monkeypatch.setattr(clocks, "find_library", lambda: None)
    with pytest.raises(InputError, match=r"\.\[clock\]"):
        Clocks()
    assert set(faults_in("local")) - set(faults_ready("local")) == {"clock"}
    assert faults_ready("sim") == faults_in("sim")
