"""A controller's HTTP API with an answer that the test chooses."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def answer(node_id: int, *, role: str = "follower", epoch: int = 5, **more: Any) -> dict[str, Any]:
    """A status as a controller gives it."""
    return {
        "node_id": node_id,
        "cluster_id": "c",
        "role": role,
        "leader_id": 101,
        "epoch": epoch,
        "high_watermark": 40,
        "log_end_offset": 41,
        "voters": [],
        "observers": [],
        "brokers": [],
        "topics": 2,
        "partitions": 7,
        "offline_partitions": 0,
        "under_replicated_partitions": 1,
        "metadata_offset": 39,
        **more,
    }


def broker(broker_id: int, *, fenced: bool = False, leaders: int = 1) -> dict[str, Any]:
    """A broker within a status."""
    return {
        "broker_id": broker_id,
        "endpoints": [f"PLAINTEXT://127.0.0.1:{9000 + broker_id}"],
        "rack": None,
        "fenced": fenced,
        "in_controlled_shutdown": False,
        "broker_epoch": 3,
        "leaders": leaders,
        "replicas": 3,
    }


@contextlib.contextmanager
def controller(reply: Callable[[], Any], status: int = 200) -> Iterator[str]:
    """Serves on a free port; yields `host:port`."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/api/v1/status"
            body = json.dumps(reply()).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
