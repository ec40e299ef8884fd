"""Which nodes a local cluster has, where they listen and how they are configured. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOST = "127.0.0.1"
BROKER_LISTENER = "PLAINTEXT"
"""What the brokers' listener is called, whatever it speaks."""
HTTP_LISTENER = "HTTP"
"""What a broker's listener for signs of life and metrics is called, whatever it speaks."""
FIRST_CONTROLLER_ID = 101
CONTROLLERS_MAX = 9
BROKERS_MAX = 100
HTTP_KEY = "http.listener"
STATIC_VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
STATIC_VERSION = 1
DYNAMIC_VERSION = 2
"""Of `cluster.json`: a program that knows only static voters is to refuse the others."""

LOCAL_TIMEOUTS: dict[str, str] = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
}
"""Shorter than the defaults, since loopback is fast and nobody likes to wait; all changeable."""

_LOCAL_VALUES = {
    **LOCAL_TIMEOUTS,
    "replica.fetch.backoff.ms": "100",
}


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One process of a local cluster."""

    name: str
    node_id: int
    role: str
    """`controller` or `broker`."""
    port: int
    host: str = HOST
    """The address where it listens."""
    http_port: int | None = None
    """Where a broker serves HTTP; a controller does so on its one port."""

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def ports(self) -> tuple[int, ...]:
        """All on which it listens."""
        return (self.port,) if self.http_port is None else (self.port, self.http_port)

    @property
    def http_address(self) -> str | None:
        """`host:port` of signs of life and metrics; None of a broker without them."""
        port = self.port if self.role == "controller" else self.http_port
        return None if port is None else f"{self.host}:{port}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """All that is decided once: written to `cluster.json`, kept over restarts."""

    cluster_id: str
    nodes: tuple[LocalNode, ...]
    """The controllers, then the brokers, each by id."""
    overrides: tuple[tuple[str, str], ...] = ()
    dynamic: bool = True
    """Whether the log names the voters, by directory (KIP-853); else every node's file lists them,
    as in clusters that were made before, or where `controller.quorum.voters` is asked for."""

    @property
    def controllers(self) -> tuple[LocalNode, ...]:
        """The voters of the quorum."""
        return tuple(node for node in self.nodes if node.role == "controller")

    @property
    def brokers(self) -> tuple[LocalNode, ...]:
        """The nodes that clients talk to."""
        return tuple(node for node in self.nodes if node.role == "broker")

    @property
    def bootstrap(self) -> str:
        """Value of `bootstrap.servers` for clients."""
        return ",".join(broker.address for broker in self.brokers)

    def node(self, name_or_id: str | int) -> LocalNode:
        """Return the node of this name or id; ConfigError lists those there are."""
        for node in self.nodes:
            if name_or_id in (node.name, node.node_id):
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ConfigError(f"no node {name_or_id}; there are {known}")


def check_size(controllers: int, brokers: int) -> None:
    """ConfigError if there are too few or too many nodes of a kind; also for negative numbers."""
    if not 1 <= controllers <= CONTROLLERS_MAX:
        raise ConfigError(f"--controllers must be 1 to {CONTROLLERS_MAX}")
    if not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"--brokers must be 1 to {BROKERS_MAX}")


def make_layout(
    cluster_id: str,
    controller_ports: Sequence[int],
    broker_ports: Sequence[int],
    overrides: Mapping[str, str],
    hosts: Sequence[str] = (),
    http_ports: Sequence[int] = (),
) -> ClusterLayout:
    """Return a layout with one node per port. ConfigError if there are too few or too many nodes.

    `hosts`: where the controllers, then the brokers listen; empty: all on loopback. `http_ports`:
    where the brokers serve HTTP; empty, or where the overrides do without: nowhere.
    """
    check_size(len(controller_ports), len(broker_ports))
    controllers = _nodes("controller", FIRST_CONTROLLER_ID, controller_ports)
    brokers = _nodes("broker", 1, broker_ports)
    if http_ports and _serves_http(overrides):
        pairs = zip(brokers, http_ports, strict=True)
        brokers = tuple(replace(broker, http_port=port) for broker, port in pairs)
    nodes = controllers + brokers
    if hosts:
        nodes = tuple(replace(node, host=host) for node, host in zip(nodes, hosts, strict=True))
    dynamic = STATIC_VOTERS not in overrides
    return ClusterLayout(cluster_id, nodes, tuple(sorted(overrides.items())), dynamic)


def _serves_http(overrides: Mapping[str, str]) -> bool:
    """Whether brokers have a listener for HTTP beside what the overrides say.

    An open listener beside a protected one has to be asked for: by its entry in the map.
    """
    # Here, since other commands pay for what this module imports.
    from raftctl.config.addresses import parse_protocols

    protocols = parse_protocols(overrides.get("listener.security.protocol.map", ""))
    is_open = set(protocols.values()) <= {"PLAINTEXT"}
    return HTTP_KEY not in overrides and (is_open or HTTP_LISTENER in protocols)


def initial_controllers(layout: ClusterLayout, new_id: Callable[[], str]) -> str | None:
    """Return the first voters, as `storage format --initial-controllers` takes them, with new
    directories.

    None where the nodes' files list the voters.
    """
    if not layout.dynamic:
        return None
    return ",".join(f"{one.node_id}@{one.address}:{new_id()}" for one in layout.controllers)


def node_values(layout: ClusterLayout, node: LocalNode, data_directory: str) -> dict[str, str]:
    """Return the keys and values that configure the node; `layout.overrides` win."""
    listener = "CONTROLLER" if node.role == "controller" else BROKER_LISTENER
    key = BOOTSTRAP_SERVERS if layout.dynamic else STATIC_VOTERS
    named = (
        one.address if layout.dynamic else f"{one.node_id}@{one.address}"
        for one in layout.controllers
    )
    http = {}
    if node.http_port is not None:
        http[HTTP_KEY] = f"{HTTP_LISTENER}://{node.http_address}"
    return {
        "process.roles": node.role,
        "node.id": str(node.node_id),
        key: ",".join(named),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener}://{node.address}",
        "log.dirs": data_directory,
        **http,
        **_LOCAL_VALUES,
        **dict(layout.overrides),
    }


def layout_to_json(layout: ClusterLayout) -> dict[str, Any]:
    """Return the form that `layout_from_json` reads."""
    return {
        "version": DYNAMIC_VERSION if layout.dynamic else STATIC_VERSION,
        "cluster_id": layout.cluster_id,
        "nodes": [asdict(node) for node in layout.nodes],
        "overrides": dict(layout.overrides),
    }


def layout_from_json(document: Any) -> ClusterLayout:
    """Read a layout; ConfigError if it is not one of ours."""
    try:
        nodes = tuple(LocalNode(**node) for node in document["nodes"])
        overrides = tuple(sorted(document["overrides"].items()))
        version = document["version"]
        if version in (STATIC_VERSION, DYNAMIC_VERSION):
            dynamic = version == DYNAMIC_VERSION
            return ClusterLayout(document["cluster_id"], nodes, overrides, dynamic)
    except (AttributeError, KeyError, TypeError):
        pass
    raise ConfigError("is not the layout of a local cluster: choose another --dir")


def _nodes(role: str, first_id: int, ports: Sequence[int]) -> tuple[LocalNode, ...]:
    return tuple(
        LocalNode(f"{role}-{node_id}", node_id, role, port)
        for node_id, port in enumerate(ports, start=first_id)
    )
