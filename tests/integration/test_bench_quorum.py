"""`python -m tests.bench.quorum.main` for a moment: the figures are not judged here."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.bench.quorum import main as quorum

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Bench = Callable[..., "Result"]

QUICK = ["--seconds", "0.3", "--turns", "1"]
ALONE = {"puts_raftctl", "put_cpu_raftctl", "put_fsyncs_raftctl", "put_latency_raftctl"}


class Result(NamedTuple):
    """What a run left."""

    document: dict[str, Any]
    stdout: str
    stderr: str


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Bench:
    """Runs the benchmark, which spends no time on figures that mean something."""
    monkeypatch.setattr(quorum, "WARMUP_S", 0.1)
    monkeypatch.setattr(quorum, "REJOIN_S", 0.0)

    def run(*arguments: str) -> Result:
        output = tmp_path / "figures.json"
        capsys.readouterr()
        quorum.main([*arguments, *QUICK, "--output", str(output)])
        return Result(json.loads(output.read_text()), *capsys.readouterr())

    return run


def test_alone_it_has_figures(bench: Bench) -> None:
    document = bench("--peer", "none", "--outstanding", "16", "--failovers", "0").document
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
    done = bench("--peer", "etcd", "--outstanding", "4", "--failovers", "0")
    assert "missing: etcd (Debian: apt-get install etcd-server) and Go" in done.stderr
    assert "puts a second" in done.stdout
    assert "raftctl: limited by" in done.stdout


@pytest.mark.skipif(
    shutil.which("etcd") is None or shutil.which("go") is None, reason="needs etcd and Go"
)
def test_beside_etcd_it_shows_ratios_and_failover(bench: Bench) -> None:
    figures = bench("--outstanding", "8", "--failovers", "1").document["figures"]
    ratio = figures["puts_raftctl"]["median"] / figures["puts_etcd"]["median"]
    assert figures["puts_ratio"]["median"] == pytest.approx(ratio, abs=0.02)
    assert figures["put_fsyncs_etcd"]["median"] > 0
    assert figures["quorum_failover_etcd"]["median"] > 0
