"""DescribeClientQuotas (from this broker's image) and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.apis.administration._forwarding import forward, own_message, result_of
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.image.types import quota_order
from raftctl.metadata.requests.security import AlterClientQuotasRequest, QuotaAlteration

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import security as wire
    from raftctl.metadata.image.types import QuotaEntity

_TIMEOUT_MS = 30_000
"""The request names none."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_IP = "ip"
_KINDS = ("user", "client-id", _IP)


def handle_describe(
    context: ApiContext, request: Request[wire.DescribeClientQuotasRequest]
) -> wire.DescribeClientQuotasResponse:
    """Answer with the quotas of the entities that match; `strict`: that have no other part."""
    authorization.require(context, request, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    body = request.body
    components = body["components"]
    _check_components(components)
    quotas = context.metadata.image.client_quotas
    found: list[wire.DescribeClientQuotasResponseEntryData] = [
        {
            "entity": _entity(entity),
            "values": [
                {"key": key, "value": value} for key, value in sorted(quotas[entity].items())
            ],
        }
        for entity in sorted(quotas, key=quota_order)
        if _matches(components, entity, strict=body["strict"])
    ]
    return {"error_code": ErrorCode.NONE, "entries": found}


def refuse_describe(
    _context: ApiContext, _request: Request[wire.DescribeClientQuotasRequest], error: KafkaError
) -> wire.DescribeClientQuotasResponse:
    """Return the error without a list of entries, which would say that none match."""
    return {"error_code": error.code, "error_message": own_message(error), "entries": None}


def _check_components(components: list[wire.ComponentData]) -> None:
    """Refuses a filter that means nothing, as Apache Kafka does."""
    kinds = [one["entity_type"] for one in components]
    for one in components:
        kind, how, name = one["entity_type"], one["match_type"], one["match"]
        if how not in (_EXACT, _DEFAULT, _ANY):
            message = f"match_type must be 0 to 2, not {how}"
        elif kind not in _KINDS:
            message = f"entity_type must be one of {', '.join(_KINDS)}, not {kind!r}"
            # Not INVALID_REQUEST: a newer broker may know entities that this one does not.
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        elif kinds.count(kind) > 1:
            message = f"{kind} is named twice"
        elif (name is None) == (how == _EXACT):
            message = f"{kind}: a name belongs to an exact match, and to no other"
        elif kind == _IP and len(kinds) > 1:
            message = f"{_IP} goes with no other entity_type"
        else:
            continue
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _matches(components: list[wire.ComponentData], entity: QuotaEntity, *, strict: bool) -> bool:
    parts = dict(entity)
    # KIP-546: without `strict` the quota of (user, client-id) matches a filter by user alone.
    if strict and len(components) != len(parts):
        return False
    return all(_matches_part(one, parts) for one in components)


def _matches_part(component: wire.ComponentData, parts: dict[str, str | None]) -> bool:
    kind = component["entity_type"]
    if kind not in parts:
        return False
    # The default entity has no name, so a default match looks for None.
    wanted = component["match"] if component["match_type"] == _EXACT else None
    return component["match_type"] == _ANY or parts[kind] == wanted


def _entity(entity: QuotaEntity) -> list[wire.AlterClientQuotasResponseEntityData]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity]


async def handle_alter(
    context: ApiContext, request: Request[wire.AlterClientQuotasRequest]
) -> wire.AlterClientQuotasResponse:
    """Change the quotas of each entity on its own (KIP-546)."""
    entries = tuple(map(_alteration, request.body["entries"]))
    alter = AlterClientQuotasRequest(entries, request.body["validate_only"])
    outcomes = await forward(context, request, alter, _TIMEOUT_MS)
    pairs = zip(entries, outcomes, strict=True)
    return {
        "entries": [{"entity": _entity(one.entity), **result_of(result)} for one, result in pairs]
    }


def _alteration(entry: wire.AlterClientQuotasRequestEntryData) -> QuotaAlteration:
    entity = tuple((part["entity_type"], part["entity_name"]) for part in entry["entity"])
    changes = tuple(
        (one["key"], None if one["remove"] else float(one["value"])) for one in entry["ops"]
    )
    return QuotaAlteration(entity, changes)
