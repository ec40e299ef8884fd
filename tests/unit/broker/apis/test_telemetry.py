"""Telemetry of clients through `dispatch`: subscribed by configs, pushed, scraped (row O4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.log.batches.compression import ZSTD, compress
from broker.protocol.versions import ApiKey
from broker.telemetry import ClientTelemetry
from raftctl.errors import ErrorCode
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metadata.image import MetadataDelta, MetadataImage
from raftctl.metrics import Metrics
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker
from tests.unit.broker.telemetry.pushed import gauge, packed, point, total

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("O4")

CLIENT_METRICS = 16
SET, DELETE, APPEND = 0, 1, 2
ID = UUID(int=77)


class Telemetric(ControlledBroker):
    """A broker that takes telemetry, and a clock that stands until it is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.metrics = Metrics()
        self.telemetry = ClientTelemetry(
            self.config, self.metrics, lambda: ID, self.log, lambda: self.now_ms
        )
        self.context = replace(self.context, telemetry=self.telemetry)

    def take_up_configs(self) -> None:
        """The telemetry knows the configs of the newest image."""
        delta = MetadataDelta(MetadataImage())
        for record in self.cluster.image.records():
            delta.replay(record, 0)
        self.telemetry.publish(delta, self.cluster.image)

    async def configure(self, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
        (answer,) = (await ask(self, 44, 1, {"resources": [resource], "validate_only": False}))[
            "responses"
        ]
        self.take_up_configs()
        return ErrorCode(answer["error_code"])

    async def subscribed(self, instance_id: UUID | None = None) -> dict[str, Any]:
        asked = {"client_instance_id": instance_id}
        return dict(await ask(self, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, asked))

    async def pushed(self, subscription_id: int, data: bytes, **changes: Any) -> ErrorCode:
        push = {
            "client_instance_id": ID,
            "subscription_id": subscription_id,
            "terminating": False,
            "compression_type": ZSTD,
            "metrics": compress(ZSTD, data, TopicConfig()),
        }
        answer = await ask(self, ApiKey.PUSH_TELEMETRY, 0, push | changes)
        self.telemetry.invariants()
        return ErrorCode(answer["error_code"])

    def series(self) -> dict[str, dict[tuple[str, ...], Any]]:
        return {
            family.metric.name: {one.labels: one.value for one in family.samples}
            for family in self.metrics.families()
            if family.metric.name.startswith(("raftctl_client_", "raftctl_telemetry_"))
        }


@pytest.fixture
def broker() -> Telemetric:
    return Telemetric()


async def test_what_a_client_pushes_is_scraped_until_it_terminates(broker: Telemetric) -> None:
    changes = (("metrics", SET, "org.apache.kafka."), ("interval.ms", SET, "1000"))
    assert await broker.configure("all", *changes) is ErrorCode.NONE
    found = await broker.subscribed()
    assert found["error_code"] == ErrorCode.NONE
    assert found["client_instance_id"] == ID
    assert list(found["requested_metrics"]) == ["org.apache.kafka."]
    assert list(found["accepted_compression_types"]) == [4, 3, 1, 2]
    assert (found["push_interval_ms"], found["telemetry_max_bytes"]) == (1000, 1048576)
    assert found["delta_temporality"]
    number = found["subscription_id"]
    metrics = packed(
        gauge("org.apache.kafka.producer.queue.time.avg", 2.5),
        total("org.apache.kafka.producer.sent", [point(7, {"topic": "t"})]),
    )
    broker.now_ms = 500
    assert await broker.pushed(number, metrics) is ErrorCode.NONE
    unknown = ("unknown", "unknown", "")
    assert broker.series() == {
        "raftctl_telemetry_instances": {(): 1},
        "raftctl_telemetry_pushes_total": {("NONE",): 1},
        "raftctl_telemetry_points_dropped_total": {(): 0},
        "raftctl_client_producer_queue_time_avg": {
            (*unknown, "avg"): 2.5,
            (*unknown, "max"): 2.5,
        },
        "raftctl_client_producer_sent_total": {unknown: 7.0},
    }
    assert await broker.pushed(number, metrics) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await broker.pushed(number, metrics, terminating=True) is ErrorCode.NONE
    assert "raftctl_client_producer_sent_total" not in broker.series()
    assert broker.series()["raftctl_telemetry_pushes_total"] == {
        ("NONE",): 2,
        ("THROTTLING_QUOTA_EXCEEDED",): 1,
    }


async def test_series_end_when_a_client_has_been_silent(broker: Telemetric) -> None:
    number = (await broker.subscribed())["subscription_id"]
    assert await broker.pushed(number, packed(gauge("g", 1.0))) is ErrorCode.NONE
    broker.now_ms = 3 * 300_000
    broker.metrics.tick()
    assert broker.series()["raftctl_telemetry_instances"] == {(): 0}
    assert "raftctl_client_g" not in broker.series()


async def test_a_client_that_goes_while_its_metrics_are_read_leaves_nothing(
    broker: Telemetric,
) -> None:
    number = (await broker.subscribed())["subscription_id"]
    inner = broker.context.aside

    def forgetting(call: Callable[[], Any]) -> Any:
        broker.now_ms = 10**9
        broker.metrics.tick()
        return inner(call)

    broker.context = replace(broker.context, aside=forgetting)
    assert await broker.pushed(number, packed(gauge("g", 1.0))) is ErrorCode.NONE
    assert "raftctl_client_g" not in broker.series()


async def test_what_cannot_be_read_is_refused_and_the_broker_serves_on(broker: Telemetric) -> None:
    number = (await broker.subscribed())["subscription_id"]
    assert await broker.pushed(number + 1, b"") is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    await broker.subscribed(ID)
    last = {"terminating": True}
    broker.now_ms = 300_000
    assert await broker.pushed(number, b"", metrics=b"\xff" * 9) is ErrorCode.INVALID_RECORD
    for data, changes, error in (
        (bytes(2 << 20), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"", {"metrics": bytes(2 << 20)}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"", {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"", {"client_instance_id": None}, ErrorCode.INVALID_REQUEST),
    ):
        broker.now_ms += 300_000
        assert await broker.pushed(number, data, **changes) is error
    broker.now_ms += 300_000
    assert await broker.pushed(number, packed(gauge("g", 1.0)), **last) is ErrorCode.NONE


async def test_configs_of_client_metrics(broker: Telemetric) -> None:
    changes = (("metrics", SET, "a"), ("metrics", APPEND, "b"))
    assert await broker.configure("s", *changes) is ErrorCode.INVALID_REQUEST
    lists = (("metrics", SET, "a, b"), ("match", SET, "client_id=x.*"))
    assert await broker.configure("s", *lists) is ErrorCode.NONE
    assert await broker.configure("s", ("metrics", APPEND, "c")) is ErrorCode.INVALID_CONFIG
    one = {"resource_type": 16, "resource_name": "s", "configuration_keys": None}
    request = {"resources": [one], "include_synonyms": True, "include_documentation": False}
    (result,) = (await ask(broker, 32, 4, request))["results"]
    assert [
        (entry["name"], entry["value"], entry["config_source"], entry["config_type"])
        for entry in result["configs"]
    ] == [
        ("interval.ms", "300000", 5, 3),
        ("match", "client_id=x.*", 7, 7),
        ("metrics", "a,b", 7, 7),
    ]
    assert [len(entry["synonyms"]) for entry in result["configs"]] == [0, 1, 1]
    for version in (0, 1):
        listed = await ask(broker, 74, version, {"resource_types": [16][:version]})
        names = [one["resource_name"] for one in listed["config_resources"]]
        assert names == ["s"]
    for key in ("metrics", "match"):
        assert await broker.configure("s", (key, DELETE, None)) is ErrorCode.NONE
    assert (await ask(broker, 74, 0, {"resource_types": []}))["config_resources"] == []
    assert list((await broker.subscribed())["requested_metrics"]) == []


async def test_configs_that_cannot_be_are_refused_as_by_apache_kafka(broker: Telemetric) -> None:
    bad, request = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
    for (key, value), error in {
        ("interval.ms", "99"): request,
        ("interval.ms", "3600001"): request,
        ("interval.ms", "often"): bad,
        ("interval", "1000"): request,
        ("match", "client_id"): bad,
        ("match", "client_id="): bad,
        ("match", "client_id=a=b"): bad,
        ("match", "principal=x"): bad,
        ("match", "client_id=("): bad,
    }.items():
        assert await broker.configure("s", (key, SET, value)) is error, (key, value)
    assert await broker.configure("", ("metrics", SET, "a")) is request
    one = {"resource_type": 16, "resource_name": "", "configuration_keys": None}
    asked = {"resources": [one], "include_synonyms": True, "include_documentation": False}
    (result,) = (await ask(broker, 32, 4, asked))["results"]
    assert result["error_code"] == request


async def offered(broker: ControlledBroker) -> set[int]:
    asked = {"client_software_name": "x", "client_software_version": "1"}
    return {one["api_key"] for one in (await ask(broker, 18, 3, asked))["api_keys"]}


async def test_telemetry_is_offered_where_it_can_be_decoded(broker: Telemetric) -> None:
    assert {71, 72} <= await offered(broker)
    without = ControlledBroker()
    without.context = replace(without.context, telemetry=None)
    assert not {71, 72} & await offered(without)
    answer = await ask(without, 71, 0, {"client_instance_id": None})
    assert answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION
