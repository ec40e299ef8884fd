"""ApiVersions and DescribeCluster: what this broker speaks and who else is there."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from broker.apis.discovery._brokers import cluster_operations, controller_id
from broker.apis.handler import ApiContext, Encoded
from broker.protocol.codec import encode_response_body
from broker.protocol.versions import ApiKey, advertised
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import SUPPORTED

if TYPE_CHECKING:
    from broker.protocol.codec import Request
    from broker.protocol.messages import discovery as wire

_BROKERS = 1
_CONTROLLERS = 2
_SOFTWARE = re.compile("[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FEATURES_BEGIN_AT_0 = 4
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def handle_api_versions(
    context: ApiContext, request: Request[wire.ApiVersionsRequest]
) -> wire.ApiVersionsResponse | Encoded:
    """Answer with the table of `broker.protocol.versions`.

    INVALID_REQUEST alone if the client's software has no name or version that a metric could bear
    (KIP-511).
    """
    body = request.body
    named = body.get("client_software_name"), body.get("client_software_version")
    if any(part is not None and not _SOFTWARE.fullmatch(part) for part in named):
        return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": ()}
    client = request.context.connection
    client.client_software_name = named[0] or ""
    client.client_software_version = named[1] or ""
    return Encoded(_api_versions(context, request, ErrorCode.NONE))


def refuse_api_versions(
    context: ApiContext, request: Request[wire.ApiVersionsRequest], error: KafkaError
) -> Encoded:
    """Return the error beside the table."""
    return Encoded(_api_versions(context, request, error.code))


def _api_versions(
    context: ApiContext, request: Request[wire.ApiVersionsRequest], error: ErrorCode
) -> bytes:
    image = context.metadata.image
    finalized = tuple(sorted(item for item in image.features.items() if item[1] > 0))
    has_telemetry = context.telemetry is not None
    return api_versions_body(
        request.version, error, finalized, image.offset, has_telemetry=has_telemetry
    )


@lru_cache(maxsize=64)
def api_versions_body(
    version: int,
    error: ErrorCode,
    finalized: tuple[tuple[str, int], ...] = (),
    features_epoch: int = -1,
    *,
    has_telemetry: bool = True,
) -> bytes:
    """Return the whole answer.

    To an unknown version it is version 0 with error 35 (KIP-511).

    The features that are finalized are in force at the metadata offset `features_epoch`.
    """
    api_keys: list[wire.ApiVersion] = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, low, high in advertised()
        if has_telemetry or key not in _TELEMETRY
    ]
    message: wire.ApiVersionsResponse = {
        "error_code": error,
        "api_keys": api_keys,
        "supported_features": [
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED.items()
            # To clients of older versions a feature that begins at 0 is none.
            if low > 0 or version >= _FEATURES_BEGIN_AT_0
        ],
        "finalized_features_epoch": features_epoch,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in finalized
        ],
    }
    return encode_response_body(ApiKey.API_VERSIONS, version, message)


def handle_describe_cluster(
    context: ApiContext, request: Request[wire.DescribeClusterRequest]
) -> wire.DescribeClusterResponse:
    """Answer with the brokers that are not fenced, or all if the client asks so."""
    body = request.body
    kind = body.get("endpoint_type", _BROKERS)
    if kind not in (_BROKERS, _CONTROLLERS):
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {kind} is unknown")
    if kind != _BROKERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a listener of brokers")
    fenced_too = body.get("include_fenced_brokers", False)
    asked = body["include_cluster_authorized_operations"]
    return {
        "cluster_id": context.cluster_id,
        "controller_id": controller_id(context),
        "brokers": _brokers(context, fenced_too=fenced_too),
        "cluster_authorized_operations": cluster_operations(context, request, asked=asked),
    }


def _brokers(context: ApiContext, *, fenced_too: bool) -> list[wire.DescribeClusterBroker]:
    brokers = context.metadata.image.brokers
    found: list[wire.DescribeClusterBroker] = []
    for broker_id in sorted(brokers):
        broker = brokers[broker_id]
        endpoint = broker.endpoint(context.listener)
        if endpoint is not None and (fenced_too or not broker.fenced):
            found.append(
                {
                    "broker_id": broker_id,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "rack": broker.rack,
                    "is_fenced": broker.fenced,
                }
            )
    return found
