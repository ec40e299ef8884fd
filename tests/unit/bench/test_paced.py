"""Records at a steady pace: ratios of medians, and no ratio beside a peer that fell behind."""

from __future__ import annotations

from tests.bench.figures import OVERLOADED, line
from tests.bench.kafka.paced import Turn, compared
from tests.bench.kafka.paced_client import at
from tests.bench.kafka.warmth import Moved, Warmth


def turn(p50_ms: float, arrived_per_s: float = 1000.0) -> Turn:
    return Turn(1000.0, arrived_per_s, p50_ms, 10 * p50_ms, 100 * p50_ms)


def test_the_ratio_is_of_medians() -> None:
    ours, theirs = [turn(1.0), turn(3.0), turn(2.0)], [turn(4.0), turn(4.0), turn(90.0)]
    figures = compared("paced_1000", 1000, {"raftctl": ours, "kafka": theirs})
    assert figures["paced_1000_p50_ratio"]["median"] == 0.5
    assert figures["paced_1000_p99_kafka"]["turns"] == [40.0, 40.0, 900.0]
    assert figures["paced_1000_cpu_raftctl"]["unit"] == "us"


def test_a_peer_that_falls_behind_has_no_figure_and_no_ratio() -> None:
    behind = [turn(400.0, arrived_per_s=800.0)] * 2 + [turn(1.0)]
    figures = compared("paced_1000", 1000, {"raftctl": [turn(1.0)] * 3, "kafka": behind})
    assert figures["paced_1000_p50_raftctl"]["median"] == 1.0
    for name in ("paced_1000_p50_kafka", "paced_1000_p50_ratio"):
        assert figures[name]["median"] is None
        assert figures[name][OVERLOADED] == "kafka kept 800 of 1,000 records/s (1,000 were sent)"
    printed = line("paced_1000_p50_ratio", figures["paced_1000_p50_ratio"])
    assert printed.startswith("paced_1000_p50_ratio: overloaded: kafka kept 800 of 1,000")


def test_alone_there_is_no_ratio() -> None:
    assert not any("ratio" in name for name in compared("paced_100", 100, {"raftctl": [turn(1.0)]}))


def test_a_percentile_is_the_smallest_that_a_share_does_not_exceed() -> None:
    ordered = list(range(1, 101))
    assert [at(ordered, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert at([7], 0.99) == 7


def test_a_virtual_machine_is_warm_after_so_long_of_the_same_load() -> None:
    warmth = Warmth(megabytes=2000, seconds=120)
    assert warmth.lacks_bulk("kafka")
    warmth.note("kafka", "consume", Moved(2500, 130))
    assert not warmth.lacks_bulk("kafka")
    assert warmth.lacks("kafka", "paced")
    assert not warmth.lacks("kafka", "consume")
    warmth.note("raftctl", "paced", Moved(1, 6))
    assert not warmth.lacks("raftctl", "paced")
    assert warmth.document()["given"]["kafka"] == {"megabytes": 2500, "seconds": {"consume": 130}}


def test_without_a_wish_everything_is_warm() -> None:
    assert not Warmth().lacks("kafka", "paced")
    assert not Warmth().lacks_bulk("kafka")
