"""The page about what Spark has judged, without Spark."""

from __future__ import annotations

import re

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.report._plots import COLOURS, LEFT, QUANTILES, WIDTH
from jepsen.report.steps import (
    ANOMALIES_SHOWN_MAX,
    HISTORIES_PLOTTED_MAX,
    HISTORIES_SHOWN_MAX,
    Series,
    latency_steps,
    plotted,
    rate_steps,
    spark_page,
)

FAST: tuple[float, ...] = (1.0, 2.0, 3.0, 10.0)
SLOW: tuple[float, ...] = (10.0, 10.0, 10.0, 1000.0)


def _places(plot: str, colour: str) -> list[list[tuple[float, float]]]:
    """The lines of a colour, as places."""
    found = re.findall(rf'<polyline points="([^"]*)" fill="none" stroke="{colour}"', plot)
    return [[(float(x), float(y)) for x, y in re.findall(r"(\S+),(\S+)", one)] for one in found]


@pytest.mark.req("J7", "J8")
def test_the_page_says_what_is_wrong_first() -> None:
    lost = [Anomaly("lost-write", {"value": f"<{n}>"}, (n, n + 1)) for n in range(30)]
    found = (*lost, Anomaly("G1c", {"cycle": list(range(1000))}, tuple(range(3, 900))))
    verdicts = {
        "good": Verdict(True, statistics={"keys": 7, "keys_by_kernel": 3}),
        "dark": Verdict("unknown", why_unknown="no poll & no send"),
        "b<d": Verdict(False, found, statistics={"keys": 2, "found": {"lost-write": 3000}}),
    }
    page = spark_page(verdicts, "jepsen spark check 'a b'").partition("<body>")[2]
    places = [page.index(text) for text in ("b&lt;d", "dark", "good", "jepsen spark check")]
    assert places == sorted(places)
    assert "<td>lost-write</td><td>3000</td>" in page
    assert "<br>keys 7</p>" in page, "not by which algorithm"
    assert "no poll &amp; no send" in page
    assert page.count("&lt;") == 1 + ANOMALIES_SHOWN_MAX
    assert "<td>G1c</td><td>3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, …</td>" in page
    assert "100, 101" in page
    assert "998, 999" not in page
    assert "http" not in page


@pytest.mark.req("J7")
def test_the_page_is_bounded() -> None:
    many = {f"history {n}": Verdict(True) for n in range(HISTORIES_SHOWN_MAX + 5)}
    page = spark_page(many, "")
    assert "and 5 more" in page
    assert "latency" not in page
    assert "<svg" not in page


@pytest.mark.req("J7", "J8")
def test_the_page_plots_what_was_kept_and_says_what_the_lines_are() -> None:
    latency = {"re<ad": {0: FAST, 1: SLOW}, "write": {0: FAST}}
    merged = Series(0, 400, 3, {0: (60, 3, 0)}, latency, functions=9)
    single = Series(0, 2, 1, {0: (1, 0, 0)}, {"read": {0: FAST}}, functions=1)
    verdicts = {"bad": Verdict(False), "good": Verdict(True), "empty": Verdict(True)}
    page = spark_page(verdicts, "", {"good": single, "bad": merged})
    assert "<code>latency</code>" in page
    of_bad, _, of_good = page.partition("<h2>good</h2>")
    assert of_bad.count("<svg") == 3
    assert 'aria-label="Latency of re&lt;ad"><desc>The slowest took 1000.0 ms, at 3 s.' in of_bad
    assert "of each 3 seconds, the second in which the line is highest" in of_bad
    assert "the mean of each 3 seconds" in of_bad
    assert "and 7 more, of which fewer succeeded" in of_bad
    for key in ("p50", "max", "info"):
        assert f"</i>{key}</span>" in of_bad
    assert of_good.count("<svg") == 2
    assert "of each" not in of_good
    assert "more, of which" not in of_good
    assert "http" not in page


@pytest.mark.req("J7")
def test_the_histories_that_are_wrong_are_plotted_first() -> None:
    many = {f"history {n}": Verdict(n != 7) for n in range(HISTORIES_PLOTTED_MAX + 5)}
    names = plotted(many)
    assert len(names) == HISTORIES_PLOTTED_MAX
    assert names[:2] == ["history 7", "history 0"]


@pytest.mark.req("J7", "J8")
def test_a_step_without_success_is_a_gap_and_functions_share_a_scale() -> None:
    latency = {"read": {0: FAST, 1: SLOW, 3: FAST}, "write": {0: FAST}}
    plots = latency_steps(Series(100, 8, 2, latency=latency))
    slowest = _places(plots["read"], QUANTILES[1.0])
    width = (WIDTH - LEFT) / 4
    assert [[x for x, _ in line] for line in slowest] == [
        [LEFT, LEFT + width, LEFT + width, LEFT + 2 * width],
        [LEFT + 3 * width, WIDTH],
    ]
    assert _places(plots["write"], QUANTILES[1.0])[0] == slowest[0][:2]
    assert ">100 s<" in plots["read"]
    assert ">0 s<" not in plots["read"]
    assert ">1 s<" in plots["write"]


@pytest.mark.req("J7", "J8")
def test_rates_are_by_the_second_also_in_a_last_step_that_is_shorter() -> None:
    series = Series(0, 7, 3, {0: (60_000, 0, 6), 2: (20_000, 0, 0)})
    assert [list(one.values()) for one in series.rates().values()] == [
        [20_000, 0, 20_000],
        [0, 0, 0],
        [2, 0, 0],
    ]
    plot = rate_steps(series)
    assert ">20k/s<" in plot
    assert "At most, ok 20000.0/s, fail 0.0/s, info 2.0/s." in plot
    ((*_, before_last, last),) = _places(plot, next(iter(COLOURS.values())))
    assert before_last == (round(LEFT + 6 / 7 * (WIDTH - LEFT), 1), 10.0)
    assert last == (WIDTH, 10.0)
