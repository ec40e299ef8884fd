"""A scrape: each family once, in Prometheus' format, and bounded in what clients can make grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raftctl.errors import InvariantViolation
from raftctl.metrics import (
    Distribution,
    Family,
    Meter,
    Metric,
    Metrics,
    Sample,
    counter,
    gauge,
    single,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime import Slices

BYTES = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes of records.", "topic")
LEADERS = gauge("kafka_server_replicamanager_leadercount", "Partitions that the broker leads.")
TIMES = summary("kafka_network_requestmetrics_totaltimems", "Milliseconds a request.", "request")


async def scrape(metrics: Metrics) -> str:
    return "".join([piece.decode() async for piece in metrics.text()])


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.req("N4")
async def test_a_scrape_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    times = Distribution()
    metrics.keep(times)
    times.add(2_000)

    def collect() -> Iterator[Family]:
        yield Family(BYTES, [Sample(("orders",), 7), Sample(('a"b\\c\n',), 8)])
        yield single(LEADERS, 3)
        yield Family(TIMES, [Sample(("Produce",), times.summary(0.001))])

    metrics.add(collect)
    found = values(await scrape(metrics))
    assert found[BYTES.name, (("topic", "orders"),)] == 7
    assert found[BYTES.name, (("topic", 'a"b\\c\n'),)] == 8
    assert found[LEADERS.name, ()] == 3
    produce = ("request", "Produce")
    assert found[f"{TIMES.name}_count", (produce,)] == 1
    assert found[f"{TIMES.name}_sum", (produce,)] == 2
    assert found[TIMES.name, (("quantile", "0.99"), produce)] == pytest.approx(2, rel=0.125)
    again = values(await scrape(metrics))
    assert again["raftctl_metrics_series", ()] == len(found)
    assert again["raftctl_metrics_scrapes_total", ()] == 1


async def test_a_name_that_two_collectors_yield_is_a_bug() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.add(lambda: [single(LEADERS, 3)])
    with pytest.raises(InvariantViolation, match="one collector"):
        await scrape(metrics)


def test_names_follow_the_conventions() -> None:
    with pytest.raises(InvariantViolation, match="counters end in _total"):
        counter("raftctl_scrapes", "Scrapes.")
    with pytest.raises(InvariantViolation, match="counters end in _total"):
        gauge("raftctl_scrapes_total", "Scrapes.")
    with pytest.raises(InvariantViolation, match="lower case"):
        gauge("raftctl-Scrapes", "Scrapes.")


@pytest.mark.parametrize(
    "family",
    [
        Family(TIMES, [Sample(("x",), 1.0)]),
        Family(BYTES, [Sample(("x",), Distribution().summary())]),
    ],
    ids=["number", "summary"],
)
async def test_a_value_of_another_kind_is_a_bug(family: Family) -> None:
    metrics = Metrics()
    metrics.add(lambda: [family])
    with pytest.raises(InvariantViolation):
        await scrape(metrics)


def test_only_what_is_kept_is_ticked() -> None:
    metrics = Metrics()
    kept, other = Meter(), Meter()
    metrics.keep(kept)
    kept.count = other.count = 5
    metrics.tick()
    assert kept.rates[1] == 1
    assert other.rates[1] == 0


@pytest.mark.req("O1")
@pytest.mark.parametrize(
    ("samples", "complaint"),
    [
        ([Sample(("a",), 1), Sample(("b",), 2), Sample(("a",), 3)], "a series comes once"),
        ([Sample(("a", "b"), 1)], "a value for each label"),
    ],
)
def test_series_that_prometheus_would_not_take_are_a_bug(
    samples: list[Sample], complaint: str
) -> None:
    metrics = Metrics()
    metrics.add(lambda: [Family(BYTES, samples)])
    with pytest.raises(InvariantViolation, match=complaint):
        list(metrics.families())


class Topics:
    """Details that take all the room they get."""

    def __init__(self, metric: Metric = BYTES, series_min: int = 0) -> None:
        self.metric = metric
        self.series_min = series_min
        self.rooms: list[int] = []
        self.prepared = 0

    async def prepare(self, slices: Slices) -> None:
        self.prepared += 1

    def collect(self, room: int) -> Iterator[Family]:
        self.rooms.append(room)
        yield Family(self.metric, [Sample((str(number),), number) for number in range(room)])


@pytest.mark.req("O1")
async def test_details_get_the_room_that_others_leave() -> None:
    metrics, topics = Metrics(series_max=1_000), Topics()
    metrics.add_details(topics)
    metrics.add(lambda: [single(LEADERS, 3)])
    text = await scrape(metrics)
    # Those of the registry itself are the other two.
    assert topics.rooms == [1_000 - 3]
    assert topics.prepared == 1
    found = values(text)
    assert len(found) == 1_000
    assert found[BYTES.name, (("topic", "996"),)] == 996
    # The head of a family comes once, though its lines come some at a time.
    assert text.count(f"# TYPE {BYTES.name}") == 1
    assert values(await scrape(metrics))["raftctl_metrics_series", ()] == 1_000


@pytest.mark.req("O1")
async def test_details_get_no_room_where_others_are_too_many() -> None:
    metrics, topics = Metrics(series_max=2), Topics()
    metrics.add_details(topics)
    await scrape(metrics)
    assert topics.rooms == [0]


@pytest.mark.req("O1")
async def test_details_leave_the_room_that_those_after_them_need() -> None:
    first, second = Topics(), Topics(gauge("raftctl_groups", "Of each.", "topic"), series_min=8)
    metrics = Metrics(series_max=100)
    metrics.add_details(first)
    metrics.add_details(second)
    assert len(values(await scrape(metrics))) == 100
    assert (first.rooms, second.rooms) == ([90], [8])
