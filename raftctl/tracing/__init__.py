"""Following one request over the nodes that work at it: its id in logs, and its spans in traces.

A request of a client gets an id on the node that it is sent to. The id is in every line of the log
that is about the request, goes with what the node asks the active controller for it, and is in that
node's lines too. Where traces are on, some requests have spans besides, which go the same way.

The package decides what an id looks like, how a line of the log gets it, which requests are traced,
and how spans reach a collector. It must not know any request: the part of a node that takes one in
says so by `follow`, and records its spans.

Invariants:

- An id belongs to one request of the cluster, unless a client of the HTTP API has chosen it.
- Nothing that a client chooses is in an id, but what `is_request_id` has let through.
- While nothing is logged a request costs no more than a number and one `follow`.
- Without `tracing.otlp.endpoint` no library of OpenTelemetry is imported, no request is sampled.
- A collector that is slow or gone costs spans, never the event loop's time.

Sources: Apache Kafka's RequestContext; the header X-Request-Id as proxies use it; W3C Trace
Context; OpenTelemetry's protocol (OTLP).
"""

from raftctl.tracing._otlp import OtlpExporter
from raftctl.tracing._request_ids import (
    Named,
    RequestIds,
    add_request_id,
    follow,
    followed_id,
    is_request_id,
)
from raftctl.tracing._spans import SpanKind, TraceContext, Tracer

__all__ = [
    "Named",
    "OtlpExporter",
    "RequestIds",
    "SpanKind",
    "TraceContext",
    "Tracer",
    "add_request_id",
    "follow",
    "followed_id",
    "is_request_id",
]
