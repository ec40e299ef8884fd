"""`python -m tests.bench kafka` and `groups` for a moment, ours alone: parts give their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.commands import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ALONE = ["--peer", "none", "--turns", "1"]
QUICK = ["--megabytes", "1", "--warmup-megabytes", "1", "--cold-megabytes", "1"]
PARTS = ["startup", "produce_acks_all", "consume_cold", "failover"]
QUICK_GROUPS = ["--seconds", "0.2", "--warmup-seconds", "0.1", "--outstanding", "4"]
GROUP_PARTS = ["commits", "transactions_1", "loading"]


def measured(tmp_path: Path, name: str, *words: str) -> tuple[dict[str, Any], str]:
    """The figures in the file, and what was printed."""
    file = tmp_path / "out" / "figures.json"
    command = [sys.executable, "-m", "tests.bench", name, *ALONE, "--output", str(file), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(file.read_text())["figures"]
    assert not any("kafka" in figure for figure in figures)
    return figures, done.stdout


@pytest.mark.timeout(300)
def test_ours_alone(tmp_path: Path) -> None:
    figures, printed = measured(tmp_path, "kafka", *QUICK, "--only", *PARTS)
    for name in ("start", "produce_acks_all", "produce_acks_all_memory", "consume_cold"):
        assert figures[f"{name}_raftctl"]["median"] > 0, name
    # A leader that is killed cannot answer; another one does within seconds.
    named, resumed = (figures[f"{n}_raftctl"]["median"] for n in ("failover_named", "failover"))
    assert 0 < named < 60
    assert 0 < resumed < 60
    assert "produce_acks_all_raftctl: " in printed


@pytest.mark.timeout(300)
def test_our_groups_alone(tmp_path: Path) -> None:
    words = [*QUICK_GROUPS, "--offsets", "1000", "--only", *GROUP_PARTS]
    figures, printed = measured(tmp_path, "groups", *words)
    names = ("commits", "commits_cpu", "transactions_1", "transactions_1_rate", "load")
    assert {f"{name}_raftctl" for name in names} <= set(figures)
    assert "load_longest_wait_raftctl: " in printed
