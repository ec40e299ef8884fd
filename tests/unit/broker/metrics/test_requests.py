"""Times of requests: each stage has its share, and a slow request has one line in the log."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker.metrics import OTHERS, RequestTimes
from broker.metrics._requests import SLOW_LINES_PER_SECOND_MAX, why_slow
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import ClientConnection, ReplicaWait, RequestContext, WaitEnd
from raftctl.metrics import Metrics
from raftctl.metrics._meter import WINDOW_TICKS

MS = 0.001


def produce(start: float = 100.0) -> RequestContext:
    """A request of which the stages take 1, 2, 4, 8 and 16 ms."""
    return RequestContext(
        ClientConnection(listener="CLIENTS", host="10.0.0.1", id_prefix="4.19a7c3.17"),
        number=3,
        size=1_000,
        api_key=ApiKey.PRODUCE,
        api_version=9,
        correlation_id=7,
        client_id="orders",
        arrived_at=start,
        started_at=start + 1 * MS,
        returned_at=start + 3 * MS,
        answered_at=start + 7 * MS,
        queued_at=start + 15 * MS,
        sent_at=start + 31 * MS,
    )


def values(metrics: Metrics) -> dict[tuple[str, ...], Any]:
    return {
        (family.metric.name, *sample.labels): sample.value
        for family in metrics.families()
        for sample in family.samples
    }


@pytest.mark.req("N4")
def test_each_stage_of_a_request_has_its_time() -> None:
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    times.sent(produce())
    found = values(metrics)
    expected = {
        "requestqueuetime": 1,
        "localtime": 2,
        "remotetime": 4,
        "responsequeuetime": 8,
        "responsesendtime": 16,
        "totaltime": 31,
        "throttletime": 0,
    }
    for stage, milliseconds in expected.items():
        value = found[f"kafka_network_requestmetrics_{stage}ms", "Produce"]
        assert value.count == 1
        assert value.total == pytest.approx(milliseconds, abs=0.002)


@pytest.mark.req("N4")
def test_requests_are_counted_by_api_and_version() -> None:
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    for version in (9, 9, 11):
        context = produce()
        context.api_version = version
        times.sent(context)
    metrics.tick()
    found = values(metrics)
    assert found["kafka_network_requestmetrics_requests_total", "Produce", "9"] == 2
    assert found["kafka_network_requestmetrics_requests_total", "Produce", "11"] == 1
    assert found["kafka_network_requestmetrics_requestspersec", "Produce", "1"] == 3 / 5
    assert found["kafka_network_requestmetrics_requestbytes", "Produce"].total == 3_000


@pytest.mark.req("N4", "O1")
def test_fetches_of_followers_are_counted_apart_from_those_of_consumers() -> None:
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    for is_of_replica in (False, True, True):
        context = produce()
        context.api_key, context.is_of_replica = ApiKey.FETCH, is_of_replica
        times.sent(context)
    found = values(metrics)
    assert found["kafka_network_requestmetrics_requests_total", "FetchConsumer", "9"] == 1
    assert found["kafka_network_requestmetrics_requests_total", "FetchFollower", "9"] == 2


@pytest.mark.req("O1")
def test_errors_are_counted_by_api_and_by_the_names_of_kafka() -> None:
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    for errors in ({}, {6: 2, 3: 1}, {6: 1}, {12345: 1}):
        context = produce()
        context.errors = errors
        times.sent(context)
    name = "kafka_network_requestmetrics_errors_total"
    counts = {key[1:]: count for key, count in values(metrics).items() if key[0] == name}
    assert counts == {
        ("Produce", "NONE"): 1,
        ("Produce", "NOT_LEADER_OR_FOLLOWER"): 3,
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("Produce", "UNKNOWN_SERVER_ERROR"): 1,
    }


@pytest.mark.req("O2")
def test_a_slow_request_has_a_line_with_all_its_stages_and_a_quick_one_has_none() -> None:
    with capture_logs() as lines:
        RequestTimes(Metrics(), structlog.get_logger(), 40).sent(produce())
        assert lines == []
        RequestTimes(Metrics(), structlog.get_logger(), 30).sent(produce())
    (line,) = lines
    assert line["event"] == "slow_request"
    assert (line["api"], line["correlation_id"], line["client_id"]) == ("PRODUCE", 7, "orders")
    assert line["request_id"] == "4.19a7c3.17.3"
    assert line["RemoteTime_ms"] == pytest.approx(4)
    assert line["TotalTime_ms"] == pytest.approx(31)


@pytest.mark.req("O2")
@pytest.mark.parametrize(("api", "slow"), [(ApiKey.FETCH, False), (ApiKey.METADATA, True)])
def test_what_waits_on_purpose_is_not_slow(api: ApiKey, *, slow: bool) -> None:
    context = produce()
    context.api_key = api
    with capture_logs() as lines:
        RequestTimes(Metrics(), structlog.get_logger(), 28).sent(context)
    assert bool(lines) == slow


def slow(**stages: float) -> RequestContext:
    """A request of which one stage takes the given milliseconds, and the others nothing."""
    context = RequestContext(ClientConnection(), arrived_at=100.0, api_key=ApiKey.PRODUCE)
    now = 100.0
    for end in ("started_at", "returned_at", "answered_at", "queued_at", "sent_at"):
        now += stages.get(end, 0) * MS
        setattr(context, end, now)
    return context


WAITS: list[tuple[ReplicaWait | str | None, str]] = [
    (ReplicaWait("t", 0, (3,)), "waited 412 ms for broker 3 to have the records of t-0"),
    (
        ReplicaWait("t", 0, (2, 3), WaitEnd.TIMED_OUT),
        "waited 412 ms in vain for broker 2 and broker 3 to have the records of t-0",
    ),
    (
        ReplicaWait("t", 0, (3,), WaitEnd.LEFT_ISR),
        "waited 412 ms for broker 3 to leave the ISR of t-0",
    ),
    ("400 ms for the active controller", "waited 400 ms for the active controller"),
    (None, "waited 412 ms for work that it had begun"),
]


@pytest.mark.req("O2")
@pytest.mark.parametrize(("wait", "sentence"), WAITS)
def test_the_line_says_what_the_answer_waited_for(
    wait: ReplicaWait | str | None, sentence: str
) -> None:
    context = slow(answered_at=412)
    context.waited_for = wait
    assert why_slow(context) == sentence


@pytest.mark.req("O2")
@pytest.mark.parametrize(
    ("stage", "sentence"),
    [
        ("started_at", "waited 50 ms for the requests before it on the connection"),
        ("returned_at", "the event loop worked at it for 50 ms"),
        ("queued_at", "its answer waited 50 ms for those before it on the connection"),
        ("sent_at", "its answer waited 50 ms for the client to read"),
    ],
)
def test_the_line_names_the_longest_stage(stage: str, sentence: str) -> None:
    assert why_slow(slow(answered_at=1, **{stage: 50})) == sentence


@pytest.mark.req("O2")
def test_the_line_names_the_quota_that_muted_the_connection() -> None:
    context = slow(started_at=50)
    context.connection.muted_by = "producer_byte_rate"
    context.connection.unmuted_at = 100.045
    expected = "waited 45 ms while the quota producer_byte_rate muted its connection"
    assert why_slow(context) == expected
    context.connection.unmuted_at = 99.9
    assert "quota" not in why_slow(context)


@pytest.mark.req("O2")
def test_a_storm_of_slow_requests_has_few_lines_and_a_count_of_the_others() -> None:
    metrics = Metrics()
    with capture_logs() as lines:
        times = RequestTimes(metrics, structlog.get_logger(), 10)
        for _ in range(1_000):
            times.sent(produce(100.0))
        assert len(lines) == SLOW_LINES_PER_SECOND_MAX
        times.sent(produce(101.0))
        assert lines[-1]["left_out"] == 1_000 - SLOW_LINES_PER_SECOND_MAX
        for _ in range(SLOW_LINES_PER_SECOND_MAX):
            times.sent(produce(101.0))
        del lines[:]
        metrics.tick()
        metrics.tick()
    assert lines == [{"event": "slow_requests_left_out", "log_level": "warning", "count": 1}]


@pytest.mark.req("O1")
def test_what_is_not_served_makes_no_series() -> None:
    """ApiVersions is answered in every version; each would have a series."""
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 0)
    times.sent(RequestContext())
    for version in range(100, 200):
        times.sent(RequestContext(api_key=ApiKey.API_VERSIONS, api_version=version))
    assert not [labels for name, *labels in values(metrics) if "requestmetrics" in name]


@pytest.mark.req("O1")
def test_an_api_that_nobody_uses_any_more_keeps_its_totals_and_has_no_quantiles() -> None:
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    times.sent(produce())
    name = "kafka_network_requestmetrics_totaltimems"
    assert values(metrics)[name, "Produce"].quantiles
    for _ in range(2 * WINDOW_TICKS):
        metrics.tick()
    idle = values(metrics)[name, "Produce"]
    assert (idle.count, idle.quantiles) == (1, ())
    times.sent(produce())
    assert values(metrics)[name, "Produce"].quantiles


@pytest.mark.req("O1")
def test_what_comes_when_the_room_is_used_up_counts_as_other_and_no_total_falls() -> None:
    metrics = Metrics(0)
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    prefix = "kafka_network_requestmetrics"
    for number, key in enumerate((ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.LIST_GROUPS)):
        context = produce()
        context.api_key, context.api_version = key, SERVED[key][-1]
        for count in (1, 2):
            times.sent(context)
            found = values(metrics)
            name = "Produce" if key == ApiKey.PRODUCE else OTHERS
            before = 2 if number == 2 else 0
            assert found[f"{prefix}_requests_total", name, OTHERS] == before + count
            assert found[f"{prefix}_errors_total", name, OTHERS] == before + count
            assert found[f"{prefix}_totaltimems", name].count == before + count
    assert {labels[0] for metric, *labels in found if metric.startswith(prefix)} == {
        "Produce",
        OTHERS,
    }
