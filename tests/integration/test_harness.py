"""The harness against real processes: `jepsen test --env local` and `external`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path


def results(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    run(["test", *words, "--output", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.req("J1", "J2", "J3")
def test_a_real_cluster_is_broken_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["queue", "--nemesis", "kill,partition", "--time-limit", "5", "--interval", "1"]
    words += ["--rate", "20", "--seed", "4", "--store", str(tmp_path)]
    found = results(capsys, *words)
    assert found["checkers"]["kafka"]["valid"] is True, found
    history = (tmp_path / "latest" / "history.jsonl").read_text()
    assert '"f":"kill"' in history
    assert '"f":"partition"' in history
    assert '"f":"heal-all"' in history
    assert list((tmp_path / "latest" / "nodes").glob("*/node.log"))
