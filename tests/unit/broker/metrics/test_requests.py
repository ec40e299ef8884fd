"""Times of requests: each stage has its share, and a slow request has one line in the log."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker.metrics import RequestTimes
from broker.protocol.versions import ApiKey
from broker.request_context import ClientConnection, RequestContext
from raftctl.metrics import Metrics

MS = 0.001


def produce(start: float = 100.0) -> RequestContext:
    """A request of which the stages take 1, 2, 4, 8 and 16 ms."""
    return RequestContext(
        ClientConnection(listener="CLIENTS", host="10.0.0.1"),
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
        value = found[f"kafka_network_requestmetrics_{stage}ms", "PRODUCE"]
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
    assert found["kafka_network_requestmetrics_requests_total", "PRODUCE", "9"] == 2
    assert found["kafka_network_requestmetrics_requests_total", "PRODUCE", "11"] == 1
    assert found["kafka_network_requestmetrics_requestspersec", "PRODUCE", "1"] == 3 / 5
    assert found["kafka_network_requestmetrics_requestbytes", "PRODUCE"].total == 3_000


@pytest.mark.req("O2")
def test_a_slow_request_has_a_line_with_all_its_stages_and_a_quick_one_has_none() -> None:
    with capture_logs() as lines:
        RequestTimes(Metrics(), structlog.get_logger(), 40).sent(produce())
        assert lines == []
        RequestTimes(Metrics(), structlog.get_logger(), 30).sent(produce())
    (line,) = lines
    assert line["event"] == "slow_request"
    assert (line["api"], line["correlation_id"], line["client_id"]) == ("PRODUCE", 7, "orders")
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


@pytest.mark.req("O1")
def test_what_is_not_served_makes_no_series() -> None:
    """ApiVersions is answered in every version; each would have a series."""
    metrics = Metrics()
    times = RequestTimes(metrics, structlog.get_logger(), 0)
    times.sent(RequestContext())
    for version in range(100, 200):
        times.sent(RequestContext(api_key=ApiKey.API_VERSIONS, api_version=version))
    assert not [labels for name, *labels in values(metrics) if "requestmetrics" in name]
