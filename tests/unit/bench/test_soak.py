"""A soak: which faults it plans, and what it finds in what nodes noted."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.bench.all.charts import round_up, timeline
from tests.bench.soak.rounds import ENDING, KINDS, Judged, Shape, plan_of, specs_of
from tests.bench.soak.verdict import MEBIBYTE, Sample, Soak, Span, has_grown, judge, series

CONTROLLERS = ["controller-101", "controller-102", "controller-103"]
BROKERS = ["broker-1", "broker-2", "broker-3"]
HOURS = 3
SOAK = Soak(
    Span(0, HOURS * 3600), [Span(hour * 3600 - 30, hour * 3600) for hour in range(1, HOURS + 1)]
)
Value = Callable[[float], float]


def noted(memory_mib: Value, files: Value = lambda _: 50, pid: Value = lambda _: 7) -> list[Sample]:
    """By functions of the hour."""
    times = range(0, HOURS * 3600, 10)
    return [
        Sample(
            "broker-1",
            at,
            int(pid(at / 3600)),
            int(memory_mib(at / 3600) * MEBIBYTE),
            int(files(at / 3600)),
            4,
            20,
        )
        for at in times
    ]


def test_memory_that_grows_only_at_first_is_flat() -> None:
    found, problems = judge(noted(lambda hour: min(hour * 200, 95 + hour)), SOAK, ["broker-1"])
    assert problems == []
    assert len(found["broker-1"]["memory_mib"]) == 15
    assert found["broker-1"]["files_at_rest"] == [50, 50, 50]


@pytest.mark.parametrize("slope", [5, -5])
def test_memory_that_goes_on_changing_is_a_problem(slope: float) -> None:
    _, problems = judge(noted(lambda hour: 100 + slope * hour), SOAK, [])
    assert len(problems) == 1
    assert problems[0].startswith("broker-1: memory changed by ")


def test_a_peak_of_a_minute_is_none() -> None:
    assert judge(noted(lambda hour: 200 if 1.5 < hour < 1.516 else 100), SOAK, [])[1] == []


def test_files_that_stay_open_are_a_problem() -> None:
    _, problems = judge(noted(lambda _: 100, files=lambda hour: 50 + 5 * hour), SOAK, [])
    assert problems == ["broker-1: files at rest: [54, 59, 64]"]


def test_a_node_that_was_not_to_end_must_have_lived() -> None:
    restarted = noted(lambda _: 100, pid=lambda hour: 7 + int(hour))
    assert judge(restarted, SOAK, ["broker-1"])[1] == ["broker-1: did not live to the end"]
    assert judge(restarted, SOAK, [])[1] == []
    silent = [one for one in noted(lambda _: 100) if one.at_s < 2 * 3600]
    assert judge(silent, SOAK, ["broker-1"])[1] == ["broker-1: did not live to the end"]


@pytest.mark.parametrize(
    ("counts", "grown"),
    [
        ([], False),
        ([5, 90], False),
        ([50, 55, 53], False),
        ([50, 55, 54], True),
        ([5, 9, 5], False),
    ],
)
def test_what_is_left_over(counts: list[int], grown: bool) -> None:
    assert has_grown(counts) is grown


@pytest.mark.parametrize("seconds", [10.0, 600.0])
def test_every_kind_of_fault_has_its_turn_and_few_nodes_end(seconds: float) -> None:
    shape = Shape(seconds, 40, seed=3)
    plan = plan_of(1, shape, CONTROLLERS, BROKERS)
    assert {fault.kind for fault in plan} == set(KINDS)
    ended = {node for fault in plan if fault.kind in ENDING for node in fault.nodes}
    assert ended <= {"controller-103", "broker-3"}
    last = max(fault.at_ms + fault.for_ms for fault in plan)
    assert last <= seconds * 1000
    assert plan == plan_of(1, shape, CONTROLLERS, BROKERS)
    assert plan != plan_of(2, shape, CONTROLLERS, BROKERS)


def test_only_the_first_test_of_a_round_has_faults() -> None:
    shape = Shape(60, 40, seed=3)
    first, *others = specs_of(0, shape, plan_of(0, shape, CONTROLLERS, BROKERS))
    assert first.plan
    assert "kill" in first.nemesis
    assert not any(one.plan or one.nemesis for one in others)
    assert len({one.topic for one in [first, *others]}) == 4


def test_the_plot_begins_at_nothing() -> None:
    lines = series(noted(lambda _: 100), SOAK, "memory_bytes", most=10)
    assert len(lines["broker-1"]) <= 11
    root = ElementTree.fromstring(timeline("Memory", "hours", "MiB", lines))
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    heights = {one.split(",")[1] for one in line.attrib["points"].split()}
    assert len(heights) == 1


@pytest.mark.parametrize(("value", "rounded"), [(0, 1), (0.9, 1), (3, 3), (71, 80), (9.1, 10)])
def test_the_top_of_an_axis_is_round(value: float, rounded: float) -> None:
    assert round_up(value) == pytest.approx(rounded)


def test_a_round_names_what_was_invalid_and_what_showed_nothing() -> None:
    verdicts = {"queue": True, "group": "unknown", "register": False}
    judged = Judged({name: {"valid": of, "folder": name} for name, of in verdicts.items()}, [])
    assert judged.with_verdict(False) == ["register: False: register"]
    assert judged.with_verdict("unknown") == ["group: unknown: group"]
