"""What a session beside a peer keeps, when one of its parts fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.figures import figure
from tests.bench.kafka.main import _growth
from tests.bench.kafka.session import Report

if TYPE_CHECKING:
    from pathlib import Path


def failing() -> dict[str, Any]:
    raise TimeoutError("nobody answers")


def test_a_part_that_fails_is_named_and_costs_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Report(tmp_path / "out" / "figures.json", "4.3.1")
    told.attempt("failover", failing)
    told.attempt("latency", lambda: {"latency_raftctl": figure([2.0], "ms", "below 1", 1)})
    assert told.failures == ["failover"]
    assert "failover: failed: nobody answers\n" in capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert written["figures"]["latency_raftctl"]["median"] == 2.0


def test_a_defect_of_the_benchmark_is_not_taken_for_a_figure_that_failed(tmp_path: Path) -> None:
    def defect() -> dict[str, Any]:
        raise KeyError("no such name")

    told = Report(tmp_path / "figures.json", "4.3.1")
    with pytest.raises(KeyError):
        told.attempt("latency", defect)


def test_partitions_are_measured_up_to_what_was_asked_for() -> None:
    assert _growth(1000) == ["partitions_1", "partitions_100", "partitions_1000"]
    assert _growth(10_000)[-1] == "partitions_10000"
