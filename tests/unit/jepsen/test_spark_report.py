"""The page about what Spark has judged, without Spark."""

from __future__ import annotations

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.spark.report import ANOMALIES_SHOWN_MAX, HISTORIES_SHOWN_MAX, spark_page


@pytest.mark.req("J7", "J8")
def test_the_page_says_what_is_wrong_first() -> None:
    lost = [Anomaly("lost-write", {"value": f"<{n}>"}, (n, n + 1)) for n in range(30)]
    found = (*lost, Anomaly("G1c", {"cycle": list(range(1000))}, tuple(range(3, 900))))
    verdicts = {
        "good": Verdict(True, statistics={"keys": 7, "keys_by_zones": 3}),
        "dark": Verdict("unknown", why_unknown="no poll & no send"),
        "b<d": Verdict(False, found, statistics={"keys": 2, "found": {"lost-write": 3000}}),
    }
    page = spark_page(verdicts, "jepsen spark check 'a b'")
    places = [page.index(text) for text in ("b&lt;d", "dark", "good", "jepsen spark check")]
    assert places == sorted(places)
    assert "<td>lost-write</td><td>3000</td>" in page
    assert "keys 7, keys by zones 3" in page
    assert "no poll &amp; no send" in page
    assert page.count("&lt;") == 1 + ANOMALIES_SHOWN_MAX
    assert "<td>G1c</td><td>3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, …</td>" in page
    assert "100, 101" in page
    assert "998, 999" not in page
    assert "http" not in page


@pytest.mark.req("J7")
def test_the_page_is_bounded() -> None:
    many = {f"history {n}": Verdict(True) for n in range(HISTORIES_SHOWN_MAX + 5)}
    page = spark_page(many, "", series=False)
    assert "and 5 more" in page
    assert "latency" not in page
