"""Spans of requests: which requests are traced, and what each node records of them.

A span is recorded when its work is over, with the times that the request's context has anyhow. So a
request that is not traced costs the decision, and one that is costs its spans. Source: W3C Trace
Context, OpenTelemetry's specification of tracing.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    Attributes = Mapping[str, str | int]

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?",
    re.ASCII,
)
_SAMPLED = 1
_TRACE_BITS, _SPAN_BITS = 128, 64
_NS = 1_000_000_000
_MS = 1_000_000


class TraceContext(NamedTuple):
    """A span of a trace that is recorded."""

    trace_id: int
    span_id: int

    @property
    def traceparent(self) -> str:
        """As it goes to another node."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"

    @property
    def trace_text(self) -> str:
        """The trace's id as tools show it."""
        return f"{self.trace_id:032x}"


def parse_traceparent(text: str) -> tuple[TraceContext, bool] | None:
    """Return the span of a `traceparent`, and whether it is recorded; None if it is malformed."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (found[4] is not None and text.startswith("00")):
        return None
    context = TraceContext(int(found[1], 16), int(found[2], 16))
    return context, bool(int(found[3], 16) & _SAMPLED)


class SpanKind(enum.Enum):
    """Who waits for whom; OpenTelemetry's names."""

    SERVER = "SERVER"
    CLIENT = "CLIENT"
    INTERNAL = "INTERNAL"


class Span(NamedTuple):
    """Some work that is over. Times are nanoseconds since 1970."""

    name: str
    kind: SpanKind
    context: TraceContext
    parent: TraceContext | None
    began_ns: int
    ended_ns: int
    attributes: Attributes


class Tracer:
    """Decides which requests of a node are traced, and hands on what is recorded of them."""

    def __init__(
        self,
        ratio: float,
        random: random.Random,
        time: Callable[[], float],
        wall_ms: Callable[[], int],
        export: Callable[[Span], None],
    ) -> None:
        """`ratio` of requests begin a trace. `time` is the event loop's, in seconds."""
        self._ratio = ratio
        self._random = random
        self._time = time
        self._wall_ms = wall_ms
        self._export = export

    def sample(self) -> TraceContext | None:
        """Return the first span of a new trace for a request, if it is to be traced."""
        if self._random.random() >= self._ratio:
            return None
        # An id of only zeros is none.
        return TraceContext(self._random.getrandbits(_TRACE_BITS) | 1, self._span_id())

    def child(self, parent: TraceContext) -> TraceContext:
        """Return another span of the same trace."""
        return TraceContext(parent.trace_id, self._span_id())

    def follow(self, traceparent: str) -> tuple[TraceContext, TraceContext] | None:
        """Return the span that a request of another program continues, and the request's own.

        None if that program does not record it. Raise ValueError if `traceparent` is malformed.
        """
        found = parse_traceparent(traceparent)
        if found is None:
            raise ValueError(f"{traceparent!r} is no traceparent")
        parent, is_recorded = found
        return (parent, self.child(parent)) if is_recorded else None

    def record(
        self,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        began: float,
        ended: float,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        """Record a span that is over; times are those of the event loop."""
        offset_ns = self._wall_ms() * _MS - int(self._time() * _NS)
        begun_ns = offset_ns + int(began * _NS)
        ended_ns = max(begun_ns, offset_ns + int(ended * _NS))
        self._export(Span(name, kind, context, parent, begun_ns, ended_ns, attributes))

    def record_child(
        self,
        name: str,
        parent: TraceContext,
        began: float,
        ended: float,
        attributes: Attributes | None = None,
    ) -> None:
        """Record a part of a span that has no parts of its own."""
        self.record(name, self.child(parent), parent, began, ended, attributes or {})

    def _span_id(self) -> int:
        return self._random.getrandbits(_SPAN_BITS) | 1
