"""All figures: goals and what became of them, the table of parts, the page and its pictures."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.bench.all import charts, page
from tests.bench.all.__main__ import LATE, OK, _ended, run
from tests.bench.all.goals import GOALS, Better, Goal, State, beside, outcome
from tests.bench.all.parts import HOUR_S, PARTS, Part, figures_of
from tests.bench.figures import figure, overloaded

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = Goal("commits of one coordinator", "commits_ratio", "x", 1.2, Better.HIGHER, "groups")
IDLE = Goal("idle", "idle_cpu", "%", 1.5, Better.LOWER, "idle")


def figures(ratio: float) -> dict[str, Any]:
    return {
        "commits_raftctl": figure([ratio * 1000], "commits/s", ""),
        "commits_kafka": figure([1000], "commits/s", ""),
        "commits_ratio": figure([ratio], "x", ""),
        "commits_cpu_ratio": figure([0.5], "x", ""),
    }


@pytest.mark.parametrize(
    ("goal", "value", "state"),
    [
        (COMMITS, 1.2, State.MET),
        (COMMITS, 1.19, State.MISSED),
        (IDLE, 1.5, State.MET),
        (IDLE, 1.51, State.MISSED),
    ],
)
def test_a_goal_is_a_bound_with_a_direction(goal: Goal, value: float, state: State) -> None:
    found = outcome(goal, {goal.figure: figure([value], goal.unit, "")})
    assert (found.state, found.value) == (state, value)


def test_a_goal_beside_an_overloaded_peer_says_so() -> None:
    found = outcome(COMMITS, {"commits_ratio": overloaded("kafka kept half", "x", "")})
    assert (found.state, found.value, found.said) == (State.OVERLOADED, None, "kafka kept half")
    assert outcome(COMMITS, {}).state is State.ABSENT


def test_both_values_stand_beside_a_ratio() -> None:
    assert [*beside("commits_ratio", figures(2.0))] == ["raftctl", "kafka"]
    assert [*beside("idle_cpu", {"idle_cpu": figure([1], "%", "")})] == ["raftctl"]


def test_every_goal_has_a_part_and_its_own_figure() -> None:
    assert {goal.part for goal in GOALS} <= set(PARTS)
    names = [goal.figure for goal in GOALS]
    assert len(names) == len(set(names))


def test_the_parts_of_the_hour_fit_an_hour() -> None:
    assert sum(part.budget_s for part in PARTS.values() if part.within_hour) <= HOUR_S


def test_a_part_that_ends_late_or_badly_is_named() -> None:
    assert _ended([sys.executable, "-c", "import time; time.sleep(60)"], 0.3) == LATE
    assert _ended([sys.executable, "-c", "raise SystemExit(3)"], 20) == "exit status 3"
    assert _ended([sys.executable, "-c", ""], 20) == OK


def test_a_part_without_a_file_has_no_figures() -> None:
    ran, found = run(Part("nothing", 20, "tests.bench.figures", ""), quick=True)
    assert (ran["ended"], found) == (OK, {})


def test_figures_of_other_forms_become_figures() -> None:
    judges = {"raftctl": {"wall_s": 1.2}, "porcupine": {"wall_s": 1.0}}
    case = {"goal": "", "wall_ratio": 1.2, "wall_ratios": [1.1, 1.2, 1.4], **judges}
    row = {"partitions": 2000, "created_per_s": 30_000, "takeover_stall_ms": [12.0, 70.5]}
    part = Part("", 1, "", "", prefix="more_")
    found = figures_of(part, {"figures": {"many_keys_valid": case}, "rows": [row]})
    assert found["more_many_keys_valid_ratio"]["median"] == 1.2
    assert found["more_many_keys_valid_porcupine"]["median"] == 1.0
    assert found["more_scale_2000_stall"]["median"] == 70.5


def test_the_page_has_the_table_and_pictures(tmp_path: Path) -> None:
    sizes = {f"produce_{size}_B_raftctl": figure([size / 10], "MB/s", "") for size in (100, 1024)}
    stalls = {f"scale_{size}_stall": figure([size / 100], "ms", "") for size in (1000, 10_000)}
    found = figures(1.5) | sizes | stalls
    ran = {
        "about": "groups",
        "seconds": 7,
        "budget_s": 60,
        "ended": OK,
        "warmth": {"given": {"kafka": {"megabytes": 2100.0, "seconds": {"commits": 121.5}}}},
    }
    document = {
        "machine": {"cores": 2, "python": "3.11"},
        "commit": "abc",
        "parts": {"groups": ran},
        "figures": found,
    }
    page.write(document, tmp_path)
    text = (tmp_path / "figures.md").read_text()
    row = "| commits of one coordinator | 1,500 commits/s | 1,000 commits/s (Apache Kafka) | 1.50 "
    assert row + "| 0.50 | at least 1.2 x | met |" in text
    assert "Apache Kafka: 2,100; commits 12" in text
    for name in ("groups", "by-record-size", "by-partitions-stall"):
        assert f"(images/{name}.svg)" in text
        ElementTree.parse(tmp_path / "images" / f"{name}.svg")


def test_bars_are_as_long_as_their_values() -> None:
    row = charts.Row("puts", "1/s", 400.0, 100.0, "etcd", "4 x, goal 8", met=False)
    root = ElementTree.fromstring(charts.bars("Puts", [row]))
    widths = [
        float(one.attrib["width"])
        for one in root.iter("{http://www.w3.org/2000/svg}rect")
        if float(one.attrib["height"]) == charts.BAR
    ]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)
    assert "prefers-color-scheme: dark" in charts.bars("Puts", [row])


def test_a_curve_rises_to_the_right_on_logarithmic_axes() -> None:
    svg = charts.curves("Growth", "n", "s", {"raftctl": [(1, 1), (10, 10), (100, 100)], "k": []})
    (line,) = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}polyline")
    places = [tuple(map(float, one.split(","))) for one in line.attrib["points"].split()]
    steps = [b[0] - a[0] for a, b in pairwise(places)]
    assert steps[0] == pytest.approx(steps[1], abs=0.2)
    assert places[0][1] > places[1][1] > places[2][1]


@pytest.mark.parametrize(
    ("value", "text"), [(0.1834, "0.183"), (1500, "1,500"), (12_345, "12.3k"), (2e6, "2M")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.short(value) == text


def test_titles_are_escaped() -> None:
    assert "a &lt; b" in charts.curves("a < b", "", "", {})
