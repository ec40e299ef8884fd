"""Latency and availability by the second: what of them is plotted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.spark.sessions import quick_session

pyspark = pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MS = 1_000_000

# A machine that is busy with other things gives a JVM its time late.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One for all tests of this file, which saves each the start of a JVM."""
    from jepsen.spark.session import java_missing

    missing = java_missing()
    if missing:
        pytest.skip(missing)
    with quick_session("local[1]") as spark:
        yield spark


@pytest.mark.req("J7")
def test_what_is_plotted_of_long_histories_is_bounded(session: Any, tmp_path: Path) -> None:
    from jepsen.spark.series import FUNCTIONS_MAX, STEPS_MAX, read_series

    latency = [("long", "read", "ok", 7, 9, *[_MS] * 4)]
    latency += [
        ("long", f"f{n}", "ok", 7 + second, n + 1, *[_MS] * 4)
        for n in range(FUNCTIONS_MAX)
        for second in range(3 * STEPS_MAX)
    ]
    ended = [("long", "read", 7 + second, 1, 0, 2) for second in range(3 * STEPS_MAX)]
    ended += [("long", "write", 9, 5, 1, 0), ("other", "write", 0, 1, 0, 0)]
    quantiles = ", ".join(f"{name}_ns long" for name in ("p50", "p95", "p99", "max"))
    key = "history string, f string"
    for name, rows, columns in (
        ("latency", latency, f"{key}, type string, second long, operations long, {quantiles}"),
        ("availability", ended, f"{key}, second long, ok long, fail long, info long"),
    ):
        session.createDataFrame(rows, columns).write.parquet(str(tmp_path / name))
    (long,) = read_series(session, tmp_path, ["long", "nothing"]).values()
    assert (long.first_s, long.seconds, long.step_s) == (7, 3 * STEPS_MAX, 3)
    assert sorted(long.ended) == list(range(STEPS_MAX))
    assert (long.ended[0], long.ended[1]) == ((8, 1, 6), (3, 0, 6))
    # The function of which fewest succeeded is left out.
    most = [f"f{n}" for n in reversed(range(FUNCTIONS_MAX))]
    assert list(long.latency) == most
    assert long.functions == FUNCTIONS_MAX + 1
    assert sorted(long.latency[most[0]]) == list(range(STEPS_MAX))


@pytest.mark.req("J7")
def test_of_merged_seconds_each_quantile_is_the_highest(session: Any, tmp_path: Path) -> None:
    from jepsen.spark.series import STEPS_MAX, read_series

    columns = "history string, f string, type string, second long, operations long, "
    columns += "p50_ns long, p95_ns long, p99_ns long, max_ns long"
    latency = [
        ("h", "read", "ok", 0, 9, 1 * _MS, 2 * _MS, 30 * _MS, 40 * _MS),
        ("h", "read", "ok", 1, 9, 5 * _MS, 6 * _MS, 7 * _MS, 8 * _MS),
        ("h", "read", "info", 1, 99, *[9000 * _MS] * 4),
        ("h", "read", "ok", STEPS_MAX, 9, *[_MS] * 4),
    ]
    session.createDataFrame(latency, columns).write.parquet(str(tmp_path / "latency"))
    ended = [("h", "read", 0, 9, 0, 0)]
    columns = "history string, f string, second long, ok long, fail long, info long"
    session.createDataFrame(ended, columns).write.parquet(str(tmp_path / "availability"))
    found = read_series(session, tmp_path, ["h"])["h"]
    assert found.step_s == 2
    assert found.latency == {"read": {0: (5, 6, 30, 40), STEPS_MAX // 2: (1, 1, 1, 1)}}
