"""Spans of the requests that are traced: one for the request, one for each stage that took long.

A span costs as much as handling a small request. So a stage of less than a millisecond has none: on
a time line it would be a dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metrics._requests import why_slow
from broker.protocol.versions import ApiKey
from raftctl.tracing import SpanKind

if TYPE_CHECKING:
    from broker.request_context import RequestContext
    from raftctl.tracing import Tracer

STAGE_S_MIN = 0.001
_STAGES = (
    ("request queue", "arrived_at", "started_at"),
    ("local", "started_at", "returned_at"),
    ("remote", "returned_at", "answered_at"),
    ("response queue", "answered_at", "queued_at"),
    ("response send", "queued_at", "sent_at"),
)
"""Name, and the times of a context between which it is; the stages of `RequestTimes`."""


class RequestSpans:
    """Records the spans of a request when its answer has left."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def sent(self, context: RequestContext) -> None:
        """Record a request, if it is traced."""
        trace = context.trace
        if trace is None:
            return
        tracer, connection = self._tracer, context.connection
        for name, began, ended in _STAGES:
            begun_at, ended_at = getattr(context, began), getattr(context, ended)
            if ended_at - begun_at >= STAGE_S_MIN:
                tracer.record_child(name, trace, begun_at, ended_at)
        tracer.record(
            ApiKey(context.api_key).name,
            trace,
            None,
            context.arrived_at,
            context.sent_at,
            {
                "raftctl.request_id": context.request_id,
                "raftctl.why": why_slow(context),
                "messaging.system": "kafka",
                "messaging.client.id": context.client_id or "",
                "raftctl.api_version": context.api_version,
                "raftctl.listener": connection.listener,
                "raftctl.principal": str(connection.principal),
                "client.address": connection.host,
                "raftctl.request_bytes": context.size,
                "raftctl.throttle_ms": context.throttle_ms,
            },
            SpanKind.SERVER,
        )
