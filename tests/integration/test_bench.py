"""`raftctl bench quorum` as a user runs it, for a moment only: the figures are not judged here."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from raftctl.bench import quorum
from raftctl.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Bench = Callable[..., "Told"]

QUICK = ["--seconds", "0.3", "--turns", "1"]
ALONE = {"puts_raftctl", "put_cpu_raftctl", "put_fsyncs_raftctl", "put_latency_raftctl"}


class Told(NamedTuple):
    """What a command left."""

    status: int
    stdout: str
    stderr: str


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs the command, which spends no time on figures that mean something."""
    monkeypatch.setattr(quorum, "WARMUP_S", 0.1)
    monkeypatch.setattr(quorum, "REJOIN_S", 0.0)

    def run_command(*arguments: str) -> Told:
        capsys.readouterr()
        status = run(["bench", "quorum", *arguments])
        return Told(status, *capsys.readouterr())

    return run_command


def test_alone_it_tells_figures(bench: Bench) -> None:
    done = bench("--peer", "none", "--outstanding", "16", *QUICK, "--output", "json")
    assert done.status == 0, done.stderr
    document = json.loads(done.stdout)
    assert "raftctl: limited by" in " ".join(document["limits"])
    assert set(document["figures"]) == ALONE
    assert document["figures"]["puts_raftctl"]["median"] > 0
    # A put is answered when two of three have synced it; sixteen share a sync at best.
    assert document["figures"]["put_fsyncs_raftctl"]["median"] >= 2 / 16
    assert document["machine"]["cores"] >= 1


def test_without_etcd_it_says_what_is_missing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = bench("--peer", "etcd", "--outstanding", "4", *QUICK)
    assert done.status == 0, done.stderr
    assert "missing: etcd (Debian: apt-get install etcd-server) and Go" in done.stderr
    assert "puts a second" in done.stdout
    assert "raftctl: limited by" in done.stdout


@pytest.mark.skipif(
    shutil.which("etcd") is None or shutil.which("go") is None, reason="needs etcd and Go"
)
def test_beside_etcd_it_shows_ratios_and_failover(bench: Bench) -> None:
    done = bench("--outstanding", "8", "--failovers", "1", *QUICK, "--output", "json")
    assert done.status == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    ratio = figures["puts_raftctl"]["median"] / figures["puts_etcd"]["median"]
    assert figures["puts_ratio"]["median"] == pytest.approx(ratio, abs=0.02)
    assert figures["put_fsyncs_etcd"]["median"] > 0
    assert figures["quorum_failover_etcd"]["median"] > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--outstanding", "0"], "--outstanding"),
        (["--peer", "zookeeper"], "--peer"),
        (["--output", "bench.json"], "--output"),
    ],
)
def test_bad_input_is_named_before_anything_starts(
    bench: Bench, arguments: list[str], complaint: str
) -> None:
    done = bench(*arguments)
    assert done.status == 2
    assert complaint in done.stderr
