"""Traces: which requests have one, what goes to other nodes, and what reaches a collector."""

from __future__ import annotations

import ast
import importlib.util
import io
import random
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import raftctl
from raftctl.config import make_config
from raftctl.errors import ConfigError
from raftctl.rpc import start_http
from raftctl.runtime.real import RealRuntime, make_log
from raftctl.tracing import OtlpExporter, SpanKind, TraceContext, Tracer
from raftctl.tracing import _otlp as otlp_module
from raftctl.tracing._spans import Span, parse_traceparent

pytestmark = pytest.mark.req("O2")
PARENT = TraceContext(0xA1, 0xB2)
SAMPLED = "00-000000000000000000000000000000a1-00000000000000b2-01"


def tracer(ratio: float, spans: list[Span] | None = None) -> Tracer:
    """At second 5 of the loop, which is 1,000 s since 1970."""
    export = (spans if spans is not None else []).append
    return Tracer(ratio, random.Random(7), lambda: 5.0, lambda: 1_000_000, export)


def test_a_traceparent_goes_there_and_back() -> None:
    assert PARENT.traceparent == SAMPLED
    assert parse_traceparent(SAMPLED) == (PARENT, True)
    assert parse_traceparent(SAMPLED[:-2] + "00") == (PARENT, False)
    later = f"01{SAMPLED[2:]}-more"
    assert parse_traceparent(later) == (PARENT, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SAMPLED.upper(),
        SAMPLED + "-more",
        "ff" + SAMPLED[2:],
        SAMPLED.replace("a1", "00"),
        SAMPLED.replace("b2", "00"),
        SAMPLED[:-1],
        SAMPLED + "\n",
    ],
)
def test_a_malformed_traceparent_is_none(text: str) -> None:
    assert parse_traceparent(text) is None
    with pytest.raises(ValueError, match="no traceparent"):
        tracer(1.0).follow(text)


def test_a_share_of_requests_begins_a_trace() -> None:
    assert [one for one in range(100) if tracer(0.0).sample()] == []
    some = tracer(0.1)
    found = [span for _ in range(10_000) if (span := some.sample()) is not None]
    assert 900 < len(found) < 1_100
    assert len({one.trace_id for one in found}) == len(found)
    assert all(one.span_id for one in found)
    child = some.child(found[0])
    assert child.trace_id == found[0].trace_id
    assert child.span_id != found[0].span_id


def test_what_a_client_records_is_followed_and_no_more() -> None:
    followed = tracer(0.0).follow(SAMPLED)
    assert followed is not None
    parent, own = followed
    assert (parent, own.trace_id) == (PARENT, PARENT.trace_id)
    assert tracer(1.0).follow(SAMPLED[:-2] + "00") is None


def test_times_of_the_event_loop_become_those_of_the_wall_clock() -> None:
    spans: list[Span] = []
    one = tracer(1.0, spans)
    one.record("work", PARENT, None, 4.0, 4.5, {"a": 1}, SpanKind.SERVER)
    one.record_child("part", PARENT, 4.5, 4.0)
    whole, part = spans
    assert (whole.began_ns, whole.ended_ns) == (999_000_000_000, 999_500_000_000)
    assert part.began_ns == part.ended_ns, "a clock that went back makes no negative time"
    assert (part.parent, part.kind) == (PARENT, SpanKind.INTERNAL)


def test_without_a_collector_nothing_of_opentelemetry_is_imported() -> None:
    """Two modules name it: traces and what clients push. Both import it where it is needed."""
    known = [path for path in sources() if "opentelemetry" in path.read_text(encoding="utf-8")]
    assert {path.name for path in known} == {"_otlp.py", "_points.py"}
    for path in known:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert not [node for node in body if "opentelemetry" in imported(node)]
    config = make_config({"process.roles": "broker", "node.id": "1", "log.dirs": "/d", **QUORUM})
    assert config.tracing_otlp_endpoint is None


def sources() -> list[Path]:
    root = Path(raftctl.__file__).parents[1]
    return [*(root / "raftctl").rglob("*.py"), *(root / "broker").rglob("*.py")]


def imported(node: ast.stmt) -> str:
    """The modules that a statement imports when its module is imported."""
    return ast.unparse(node) if isinstance(node, ast.Import | ast.ImportFrom) else ""


QUORUM = {"controller.quorum.voters": "2@h:1", "controller.listener.names": "CONTROLLER"}


@pytest.mark.parametrize("url", ["collector:4318", "ftp://c/", "http://user:secret@c:4318/"])
def test_a_collector_is_an_address_of_http_without_a_password(url: str) -> None:
    keys = {"process.roles": "broker", "node.id": "1", "log.dirs": "/d", **QUORUM}
    with pytest.raises(ConfigError, match=r"tracing\.otlp\.endpoint"):
        make_config({**keys, "tracing.otlp.endpoint": url})


def test_without_the_libraries_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"install raftctl\[tracing\]"):
        OtlpExporter("http://127.0.0.1:1/", {}, make_log(io.StringIO(), "info"), time.monotonic)


class Collector:
    """A collector on loopback."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []

    async def take(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            known = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.resources.append(known)
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response(body=b"", content_type="application/x-protobuf")


async def test_spans_reach_a_collector() -> None:
    collector, runtime = Collector(), RealRuntime()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner, port = await start_http(app, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/v1/traces"
    exporter = OtlpExporter(url, {"service.name": "raftctl"}, runtime.log, time.monotonic)
    spans: list[Span] = []
    made = tracer(1.0, spans)
    made.record("work", PARENT, None, 4.0, 4.5, {"a": 1, "b": "x"}, SpanKind.SERVER)
    made.record_child("part", PARENT, 4.0, 4.25)
    for span in spans:
        exporter.export(span)
    worker = runtime.worker("traces")
    await worker.submit(exporter.close)
    await runner.cleanup()
    runtime.close()
    assert collector.resources == [{"service.name": "raftctl"}]
    work, part = collector.spans
    assert (work.name, work.trace_id, work.span_id) == (
        "work",
        (0xA1).to_bytes(16, "big"),
        (0xB2).to_bytes(8, "big"),
    )
    assert (work.parent_span_id, part.parent_span_id) == (b"", work.span_id)
    assert part.trace_id == work.trace_id
    assert work.start_time_unix_nano == spans[0].began_ns
    assert work.end_time_unix_nano == spans[0].ended_ns
    assert {one.key for one in work.attributes} == {"a", "b"}


def test_a_dead_collector_costs_neither_time_nor_memory_nor_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp_module, "EXPORT_TIMEOUT_S", 0.2)
    stream = io.StringIO()
    log = make_log(stream, "info")
    exporter = OtlpExporter("http://127.0.0.1:1/v1/traces", {}, log, time.monotonic)
    span = Span("work", SpanKind.SERVER, PARENT, None, 1, 2, {})
    began = time.perf_counter()
    for _ in range(3 * otlp_module.QUEUE_MAX):
        exporter.export(span)
    each_s = (time.perf_counter() - began) / (3 * otlp_module.QUEUE_MAX)
    exporter.close()
    assert each_s < 0.002
    assert time.perf_counter() - began < 20
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert '"event": "traces_not_exported"' in lines[0]
