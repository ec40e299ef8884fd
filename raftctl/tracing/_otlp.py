"""Spans to a collector by OpenTelemetry's protocol over HTTP, off the event loop.

The one module that knows OpenTelemetry's libraries, which are an extra: they are imported when
traces are configured. Its thread has a bounded queue. While no collector answers, spans are dropped
and the log says so once a minute.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import TYPE_CHECKING, Any

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from structlog.typing import FilteringBoundLogger

    from raftctl.tracing._spans import Span

ENDPOINT = "tracing.otlp.endpoint"
QUEUE_MAX = 2_048
"""Spans that wait; more are dropped."""
BATCH_MAX = 256
INTERVAL_MS = 5_000
"""Between two batches: each is a request of HTTP, whatever is in it."""
EXPORT_TIMEOUT_S = 2.0
QUIET_S = 60.0
"""Between two lines about spans that were not exported."""
_LIBRARIES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def check_installed() -> None:
    """Raise ConfigError if the libraries are not installed."""
    try:
        missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError:
        missing = list(_LIBRARIES)
    if missing:
        raise ConfigError(
            f"{ENDPOINT} needs the libraries of OpenTelemetry: install raftctl[tracing], or remove "
            "the key"
        )


class OtlpExporter:
    """Exports the spans of one node."""

    def __init__(
        self,
        endpoint: str,
        node: Mapping[str, str | int],
        log: FilteringBoundLogger,
        time: Callable[[], float],
    ) -> None:
        """`node` has the attributes of the node; ConfigError if the libraries are missing."""
        check_installed()
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        _route_complaints(_Complaints(log, time))
        self._ids = _given_ids()
        self._exporter = _http_exporter(endpoint)
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            # Not `Resource.create`, which would look into the environment.
            resource=Resource(dict(node)),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=QUEUE_MAX,
                schedule_delay_millis=INTERVAL_MS,
                max_export_batch_size=BATCH_MAX,
            )
        )
        self._tracer = self._provider.get_tracer("raftctl")

    def export(self, span: Span) -> None:
        """Queue a span. It does not block; a span beyond the bound is dropped."""
        from opentelemetry import trace

        around = None
        if span.parent is not None:
            flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
            parent = trace.SpanContext(*span.parent, is_remote=False, trace_flags=flags)
            around = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        self._ids.trace_id, self._ids.span_id = span.context
        self._tracer.start_span(
            span.name,
            around,
            kind=trace.SpanKind[span.kind.name],
            attributes=dict(span.attributes),
            start_time=span.began_ns,
        ).end(span.ended_ns)

    def close(self) -> None:
        """Export what waits, unless no collector answers. Blocks: call it on a worker."""
        self._exporter.ends = True
        self._provider.shutdown()


def _given_ids() -> Any:
    """A generator of ids that gives those of its attributes, which the node has chosen."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class GivenIds(IdGenerator):
        trace_id = span_id = 0

        def generate_trace_id(self) -> int:
            """See `IdGenerator`."""
            return self.trace_id

        def generate_span_id(self) -> int:
            """See `IdGenerator`."""
            return self.span_id

    return GivenIds()


def _http_exporter(endpoint: str) -> Any:
    """An exporter that gives up at the end of the node, once a collector does not answer."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    class HttpExporter(OTLPSpanExporter):
        ends = gives_up = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            """See `SpanExporter`."""
            if self.gives_up:
                return SpanExportResult.FAILURE
            result = super().export(spans)
            self.gives_up = self.ends and result is not SpanExportResult.SUCCESS
            return result

    return HttpExporter(endpoint, timeout=EXPORT_TIMEOUT_S)


class _Complaints(logging.Handler):
    """Turns what the libraries complain of into a line of the node's log, now and then."""

    def __init__(self, log: FilteringBoundLogger, time: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._time = time
        self._quiet_until = 0.0
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if self._time() < self._quiet_until:
            self._left_out += 1
            return
        self._quiet_until = self._time() + QUIET_S
        left_out, self._left_out = self._left_out, 0
        self._log.warning("traces_not_exported", why=record.getMessage(), left_out=left_out)


def _route_complaints(handler: logging.Handler) -> None:
    """The libraries have one logger a process; the node that was started last has its lines."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [handler]
