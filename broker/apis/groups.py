"""FindCoordinator: there is no coordinator of groups or transactions yet, and clients retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.apis.context import Answer, ApiContext
    from broker.protocol.codec import Request

_NOBODY = {"node_id": -1, "host": "", "port": -1}


def handle(context: ApiContext, request: Request) -> Answer:
    """COORDINATOR_NOT_AVAILABLE for every key."""
    return refuse(context, request, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def refuse(_context: ApiContext, request: Request, error: KafkaError) -> Answer:
    """The error alone (up to version 3) and for each key (from version 4 on)."""
    refusal = {"error_code": error.code, "error_message": error.message, **_NOBODY}
    keys = request.body.get("coordinator_keys", ())
    return {**refusal, "coordinators": [{"key": key, **refusal} for key in keys]}
