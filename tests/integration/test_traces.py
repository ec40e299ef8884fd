"""Spans of real nodes, as a collector gets them over HTTP."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.integration.clusters import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 30.0
WANTED = {
    ("1", "CREATE_TOPICS"),
    ("1", "ask CreateTopicsRequest"),
    ("101", "CreateTopicsRequest"),
    ("101", "quorum commit"),
}


class Collector(HTTPServer):
    """Keeps (node, span) of all that it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[tuple[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            self.server.spans += [(about["service.instance.id"], span) for span in spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.req("O2")
def test_a_collector_gets_one_trace_of_broker_and_controller(
    tmp_path: Path, collector: Collector
) -> None:
    keys = {"tracing.otlp.endpoint": collector.url, "tracing.sampling.ratio": "1"}
    with running_cluster(tmp_path / "cluster", 1, 1, keys) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.layout.bootstrap})
        for done in admin.create_topics([NewTopic("orders", 1, 1)]).values():
            done.result(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while not (found := whole_trace(collector)):
            assert time.monotonic() < until, sorted({one.name for _, one in collector.spans})
            time.sleep(0.1)
    ids = {span.span_id: name for (_, name), span in found.items()}
    parents = {name: ids.get(span.parent_span_id) for (_, name), span in found.items()}
    assert parents == {
        "CREATE_TOPICS": None,
        "ask CreateTopicsRequest": "CREATE_TOPICS",
        "CreateTopicsRequest": "ask CreateTopicsRequest",
        "quorum commit": "CreateTopicsRequest",
    }


def whole_trace(collector: Collector) -> dict[tuple[str, str], Any]:
    """The spans that are wanted of the trace of the creation; empty until all are there."""
    spans = [(node, span) for node, span in collector.spans if (node, span.name) in WANTED]
    traces = {span.trace_id for _, span in spans if span.name == "CREATE_TOPICS"}
    found = {(node, span.name): span for node, span in spans if span.trace_id in traces}
    return found if found.keys() == WANTED else {}
