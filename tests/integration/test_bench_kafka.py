"""`python -m tests.bench kafka` for a moment, ours alone: every part gives its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import ROOT

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ["--peer", "none", "--turns", "1", "--megabytes", "1", "--warmup-megabytes", "1"]
PARTS = ["startup", "produce_acks_all", "consume_cold", "failover"]


@pytest.mark.timeout(300)
def test_ours_alone(tmp_path: Path) -> None:
    file = tmp_path / "out" / "figures.json"
    command = [sys.executable, "-m", "tests.bench", "kafka", *QUICK, "--cold-megabytes", "1"]
    done = subprocess.run(
        [*command, "--output", str(file), "--only", *PARTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())["figures"]
    for name in ("start", "produce_acks_all", "produce_acks_all_memory", "consume_cold"):
        assert figures[f"{name}_raftctl"]["median"] > 0, name
    # A leader that is killed cannot answer; another one does within seconds.
    named, resumed = (figures[f"{n}_raftctl"]["median"] for n in ("failover_named", "failover"))
    assert 0 < named < 60
    assert 0 < resumed < 60
    assert not any("kafka" in name for name in figures)
    assert "produce_acks_all_raftctl: " in done.stdout
