"""GetTelemetrySubscriptions and PushTelemetry: what clients shall push, and what they do (KIP-714).

Every client may ask and push, whatever its principal, as with Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.log.batches.compression import GZIP, LZ4, SNAPPY, ZSTD
from broker.telemetry import ClientFacts, Push
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire
    from broker.telemetry import ClientTelemetry

_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""Those that clients shall pack by, the most welcome first."""


def handle_subscriptions(
    context: ApiContext, request: Request[wire.GetTelemetrySubscriptionsRequest]
) -> wire.GetTelemetrySubscriptionsResponse:
    """Answer with the metrics to push, as prefixes of names, and the interval."""
    telemetry = _telemetry(context)
    instance = telemetry.ask(request.body["client_instance_id"], _facts(request))
    return {
        "error_code": ErrorCode.NONE,
        "client_instance_id": instance.id,
        "subscription_id": instance.subscription_id,
        "accepted_compression_types": _CODECS,
        "push_interval_ms": instance.interval_ms,
        "telemetry_max_bytes": telemetry.bytes_max,
        "delta_temporality": True,
        "requested_metrics": instance.metrics,
    }


async def handle_push(
    context: ApiContext, request: Request[wire.PushTelemetryRequest]
) -> wire.PushTelemetryResponse:
    """Take up the metrics that the client pushes."""
    body = request.body
    push = Push(
        body["client_instance_id"],
        body["subscription_id"],
        body["terminating"],
        body["compression_type"],
        bytes(body["metrics"]),
    )
    await _telemetry(context).push(push, _facts(request), context.aside)
    return {"error_code": ErrorCode.NONE}


def _telemetry(context: ApiContext) -> ClientTelemetry:
    if context.telemetry is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the extra `telemetry` is not installed")
    return context.telemetry


def _facts(request: Request[Any]) -> ClientFacts:
    connection = request.context.connection
    return ClientFacts(
        request.client_id,
        connection.client_software_name,
        connection.client_software_version,
        connection.host,
        connection.port,
    )
