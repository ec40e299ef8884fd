"""Puts by how many are under way: rates and times with their ratios."""

from __future__ import annotations

import pytest

from tests.bench.quorum.grid import cell
from tests.bench.quorum.main import Turn


def turn(puts_per_s: float, p50_ms: float) -> Turn:
    return Turn(puts_per_s, p50_ms, cpu_us=20.0, fsyncs=0.1, leader_share=0.5, machine_share=0.5)


TURNS = {"raftctl": [turn(900, 0.5), turn(700, 0.7)], "etcd": [turn(400, 1.2)] * 2}


def test_one_put_at_a_time_has_its_time() -> None:
    figures = cell(1, 256, TURNS)
    assert figures["puts_1_of_256_B_ratio"]["median"] == 2.0
    assert figures["puts_1_of_256_B_time_ratio"]["median"] == 0.5
    assert figures["puts_1_of_256_B_time_etcd"]["unit"] == "ms"


@pytest.mark.parametrize(("outstanding", "goal"), [(16, "at least 1"), (256, "at least 8")])
def test_many_puts_have_their_rate(outstanding: int, goal: str) -> None:
    figures = cell(outstanding, 16384, TURNS)
    assert goal in figures[f"puts_{outstanding}_of_16384_B_ratio"]["goal"]
    assert not any("_time_" in name for name in figures)


def test_alone_there_is_no_ratio() -> None:
    assert not any("ratio" in name for name in cell(1, 256, {"raftctl": TURNS["raftctl"]}))
