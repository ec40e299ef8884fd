"""The nodes to ask, and asking them: all at once, each with a bound of its own."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from raftctl.cli._arguments import parse_addresses
from raftctl.cli.top._scrape import Scrape, parse
from raftctl.cli.top._view import Answer, Node
from raftctl.errors import ConfigError, KafkaError
from raftctl.localcluster.status import STATUS_PATH, ask_controller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.http_security import HttpSecurity
    from raftctl.localcluster.layout import ClusterLayout

THREADS_MAX = 32
_BYTES_MAX = 64 << 20
_METRICS_PATH = "/metrics"


def parse_nodes(text: str) -> list[Node]:
    """Return the brokers of `id@host:port,...`; ConfigError names what is none."""
    nodes = []
    for one in text.split(","):
        number, at, address = one.strip().partition("@")
        if not (at and number.isascii() and number.isdigit()):
            raise ConfigError(
                f"--nodes {one.strip()}: write id@host:port, a broker's http.listener"
            )
        (address,) = parse_addresses(address, "--nodes")
        nodes.append(Node(int(number), False, address))
    return nodes


def local_nodes(layout: ClusterLayout, controllers: Sequence[str]) -> list[Node] | None:
    """Return the nodes of a local cluster; None if these controllers are of another."""
    own = {node.address for node in layout.controllers}
    if not own >= set(controllers):
        return None
    return [
        Node(node.node_id, node.role == "controller", node.http_address)
        for node in layout.nodes
        if node.http_address is not None
    ]


def controllers_of(
    addresses: Sequence[str], timeout_s: float, security: HttpSecurity
) -> list[Node]:
    """Return the controllers at these addresses, and those whom they name as voters."""
    found: dict[int, Node] = {}
    for address in addresses:
        status = ask_controller(address, timeout_s, security)
        if status is None:
            continue
        found[status["node_id"]] = Node(status["node_id"], True, address)
        for voter in status["voter_set"]:
            if voter["port"]:
                where = f"{voter['host']}:{voter['port']}"
                found.setdefault(voter["node_id"], Node(voter["node_id"], True, where))
    return [found[node_id] for node_id in sorted(found)]


class Asker:
    """Asks the nodes of a cluster."""

    def __init__(self, nodes: Sequence[Node], timeout_s: float, security: HttpSecurity) -> None:
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._security = security
        self._pool = ThreadPoolExecutor(max_workers=min(THREADS_MAX, max(1, len(nodes))))

    def ask(self) -> list[Answer]:
        """Return each node's answer, in the order of the nodes."""
        return list(self._pool.map(self._ask_one, self._nodes))

    def close(self) -> None:
        """Let the threads end; what is still asked is given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask_one(self, node: Node) -> Answer:
        status: dict[str, Any] | None = None
        scrape: Scrape | None = None
        why = ""
        try:
            if node.is_controller:
                status = json.loads(self._get(node, STATUS_PATH))
            scrape = parse(self._get(node, _METRICS_PATH), time.monotonic())
        except KafkaError as error:
            why = error.message
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
        return Answer(node, status, scrape, why)

    def _get(self, node: Node, path: str) -> str:
        """The text of a page. OSError, HTTPException, or KafkaError if the node refuses."""
        connection = self._security.connection(node.address, self._timeout_s)
        try:
            connection.request("GET", path, headers=dict(self._security.headers))
            response = connection.getresponse()
            text = response.read(_BYTES_MAX).decode(errors="replace")
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"it answers {response.status} {response.reason}")
        return text
