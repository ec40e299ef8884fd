"""Series of what clients push: names, sums, bounds, and when they end (row O4)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.telemetry._points import Kind, Point
from broker.telemetry._series import PREFIX, SOFTWARE_MAX, ClientSeries, series_name
from raftctl.ids import uuid_text
from raftctl.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.req("O4")

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))
RDKAFKA, JAVA = ("librdkafka", "2.11.0"), ("apache-kafka-java", "4.3.1")
Series = dict[tuple[str, tuple[str, ...]], float]


def gauge(name: str, value: float) -> Point:
    return Point(name, (), Kind.GAUGE, value, 1)


def delta(name: str, value: float) -> Point:
    return Point(name, (), Kind.DELTA, value, 1)


def total(value: float, since: int = 1, **attributes: str) -> Point:
    return Point("c", tuple(sorted(attributes.items())), Kind.TOTAL, value, since)


def series(of: ClientSeries) -> Series:
    of.invariants()
    return {
        (family.metric.name.removeprefix(PREFIX), sample.labels): value
        for family in of.families()
        for sample in family.samples
        if isinstance(value := sample.value, float)
    }


async def text_of(of: ClientSeries) -> str:
    metrics = Metrics()
    metrics.add(of.families)
    return b"".join([piece async for piece in metrics.text()]).decode()


def test_names_are_those_of_prometheus_and_cannot_be_others() -> None:
    for pushed, expected in {
        "org.apache.kafka.producer.connection.creation.rate": "producer_connection_creation_rate",
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg": (
            "consumer_fetch_manager_fetch_latency_avg"
        ),
        "vendor.Thing-1": "vendor_thing_1",
        'x"} 1\nfake 7': "x_1_fake_7",
        "ends.in_total": "ends_in",
        "total_total": "",
        "a" * 400: "a" * 150,
        "Ünïcode": "n_code",
        "...": "",
    }.items():
        assert series_name(pushed, is_total=False) == (expected and PREFIX + expected)
        assert series_name(pushed, is_total=True) == (expected and f"{PREFIX}{expected}_total")


def test_gauges_are_averaged_over_instances_and_points() -> None:
    found = ClientSeries(100, 0)
    found.add(ONE, RDKAFKA, [gauge("g", 1.0), gauge("g", 3.0)])
    found.add(TWO, RDKAFKA, [gauge("g", 8.0)])
    found.add(THREE, JAVA, [gauge("g", 5.0)])
    assert series(found) == {
        ("g", (*RDKAFKA, "", "avg")): 4.0,
        ("g", (*RDKAFKA, "", "max")): 8.0,
        ("g", (*JAVA, "", "avg")): 5.0,
        ("g", (*JAVA, "", "max")): 5.0,
    }
    found.add(TWO, RDKAFKA, [gauge("g", 0.5)])
    assert series(found)["g", (*RDKAFKA, "", "max")] == 3.0


def test_what_totals_grow_by_is_added() -> None:
    found = ClientSeries(100, 0)
    found.add(ONE, RDKAFKA, [delta("c", 2.0)])
    found.add(TWO, RDKAFKA, [delta("c", 3.0), delta("c", 4.0)])
    found.add(ONE, RDKAFKA, [delta("c", 5.0)])
    assert series(found) == {("c_total", (*RDKAFKA, "")): 14.0}


def test_totals_are_added_by_what_they_grow() -> None:
    found = ClientSeries(100, 0)
    for point in (total(10.0, topic="a"), total(4.0, topic="b"), total(12.0, topic="a")):
        found.add(ONE, RDKAFKA, [point])
    assert series(found) == {("c_total", (*RDKAFKA, "")): 16.0}
    found.add(ONE, RDKAFKA, [total(3.0, topic="a")])
    assert series(found) == {("c_total", (*RDKAFKA, "")): 19.0}
    found.add(ONE, RDKAFKA, [total(5.0, since=2, topic="a")])
    assert series(found) == {("c_total", (*RDKAFKA, "")): 24.0}


def test_a_total_does_not_fall_when_one_of_its_instances_goes() -> None:
    found = ClientSeries(100, 0)
    found.add(ONE, RDKAFKA, [delta("c", 2.0), gauge("g", 1.0)])
    found.add(TWO, RDKAFKA, [total(3.0), gauge("g", 3.0)])
    found.forget(TWO)
    assert series(found)["c_total", (*RDKAFKA, "")] == 5.0
    assert series(found)["g", (*RDKAFKA, "", "avg")] == 1.0
    found.forget(ONE)
    assert series(found) == {}
    found.forget(ONE)


def test_the_first_instances_have_series_of_their_own() -> None:
    found = ClientSeries(100, 1)
    found.add(ONE, RDKAFKA, [delta("c", 1.0)])
    found.add(TWO, RDKAFKA, [delta("c", 2.0)])
    assert series(found) == {
        ("c_total", (*RDKAFKA, uuid_text(ONE))): 1.0,
        ("c_total", (*RDKAFKA, "")): 2.0,
    }
    found.forget(ONE)
    found.add(THREE, RDKAFKA, [delta("c", 4.0)])
    assert series(found)["c_total", (*RDKAFKA, uuid_text(THREE))] == 4.0


def test_kinds_of_software_are_bounded() -> None:
    found = ClientSeries(1_000, 0)
    for number in range(SOFTWARE_MAX + 5):
        found.add(UUID(int=number), ("evil", str(number)), [delta("c", 1.0)])
    shown = series(found)
    assert len(shown) == SOFTWARE_MAX + 1
    assert shown["c_total", ("other", "other", "")] == 5.0


def test_series_are_bounded_and_what_has_no_room_is_counted() -> None:
    found = ClientSeries(10, 0)
    dropped = found.add(ONE, RDKAFKA, [gauge(f"g{number}", 1.0) for number in range(100)])
    assert (len(series(found)), dropped) == (10, 95)
    assert found.add(ONE, RDKAFKA, [gauge("g0", 7.0), delta("c", 1.0)]) == 1
    assert series(found)["g0", (*RDKAFKA, "", "avg")] == 7.0
    found.forget(ONE)
    assert found.add(TWO, RDKAFKA, [delta(f"c{number}", 1.0) for number in range(100)]) == 90


def test_a_name_without_letters_is_dropped() -> None:
    found = ClientSeries(10, 0)
    assert found.add(ONE, RDKAFKA, [gauge("//", 1.0), delta("", 1.0)]) == 2
    assert series(found) == {}


async def test_hostile_names_write_one_line_each() -> None:
    found = ClientSeries(100, 5)
    for number, name in enumerate(('a"} 1\nup{x="', "process_open_fds", "a\u2028b", "#", "a b")):
        software = ('evil"\n', "\\")
        found.add(UUID(int=number), software, [gauge(name, 1.0), delta(name, 1.0)])
    for line in (await text_of(found)).splitlines():
        assert line.startswith(("#", PREFIX, "raftctl_metrics_")), line


def test_whatever_comes_the_counts_agree() -> None:
    chance = random.Random(7)
    found = ClientSeries(40, 3)
    ids = [UUID(int=number) for number in range(12)]
    for _ in range(3_000):
        one = chance.choice(ids)
        if chance.random() < 0.2:
            found.forget(one)
        else:
            found.add(one, (chance.choice("ab"), chance.choice("12")), list(some_points(chance)))
        found.invariants()
    for one in ids:
        found.forget(one)
    assert series(found) == {}
    assert found._values == 0


def some_points(chance: random.Random) -> Iterable[Point]:
    for _ in range(chance.randrange(5)):
        name = f"m{chance.randrange(12)}"
        kind = chance.choice(list(Kind))
        yield Point(name, (("n", str(chance.randrange(3))),), kind, chance.randrange(9), 1)
