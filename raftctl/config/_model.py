"""`NodeConfig`: all keys of a node, checked against each other, with what follows from them.

Pure: directories are taken as they are written; the command line makes them absolute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationInfo, model_validator

from raftctl.config._listeners import NodeListeners
from raftctl.config._security_checks import security_problems
from raftctl.config._security_keys import AccessKeys, LimitKeys, SaslKeys, TlsKeys, TokenKeys
from raftctl.config.addresses import Server
from raftctl.config.keys import (
    CleanerKeys,
    ClusterKeys,
    GroupKeys,
    ListenerKeys,
    LogKeys,
    MetricsKeys,
    NodeKeys,
    QuorumKeys,
    ReplicationKeys,
    TelemetryKeys,
    TopicKeys,
    TracingKeys,
    TransactionKeys,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from raftctl.config._definition import Section

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_EVERY_INTERFACE = ("0.0.0.0", "::")


_BELOW, _AT_MOST = "below", "at most"
_BOUNDED_BY = (
    ("broker.heartbeat.interval.ms", "broker.session.timeout.ms", _BELOW),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", _AT_MOST),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", _AT_MOST),
    ("connection.failed.authentication.delay.ms", "connections.max.idle.ms", _BELOW),
)
"""(key, key that bounds it, how)."""

SECTIONS: tuple[type[Section], ...] = (
    NodeKeys,
    ListenerKeys,
    TlsKeys,
    SaslKeys,
    TokenKeys,
    AccessKeys,
    LimitKeys,
    MetricsKeys,
    TracingKeys,
    QuorumKeys,
    ClusterKeys,
    TopicKeys,
    LogKeys,
    CleanerKeys,
    ReplicationKeys,
    GroupKeys,
    TransactionKeys,
    TelemetryKeys,
)


class NodeConfig(
    NodeKeys,
    NodeListeners,
    MetricsKeys,
    TracingKeys,
    ClusterKeys,
    TopicKeys,
    LogKeys,
    CleanerKeys,
    ReplicationKeys,
    GroupKeys,
    TransactionKeys,
    TelemetryKeys,
):
    """Configuration of one node. Frozen; an attribute is its key with dots as underscores."""

    @property
    def is_controller(self) -> bool:
        """True if the node is a controller, which may vote in the quorum."""
        return "controller" in self.process_roles

    @property
    def is_broker(self) -> bool:
        """True if the node runs a broker."""
        return "broker" in self.process_roles

    @property
    def metadata_directory(self) -> str:
        """Directory of the metadata log."""
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory of the node, the metadata log's first, none twice."""
        return tuple(dict.fromkeys((self.metadata_directory, *self.log_dirs)))

    @property
    def reachable_controller_endpoint(self) -> Server | None:
        """Address at which others reach this controller: its configured voter's if it binds all."""
        endpoint = self.controller_endpoint
        if endpoint is None:
            return None
        own = [voter for voter in self.controller_quorum_voters if voter.node_id == self.node_id]
        if own and endpoint.host in _EVERY_INTERFACE:
            return Server(own[0].host, own[0].port)
        return Server(endpoint.host, endpoint.port)

    @property
    def roll_interval_ms(self) -> int:
        """`log.roll.ms`, or `log.roll.hours` in milliseconds."""
        return self.log_roll_hours * _HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def retention_interval_ms(self) -> int:
        """Finest of the three `log.retention` times in ms; -1 for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return max(-1, self.log_retention_minutes * _MINUTE_MS)
        return max(-1, self.log_retention_hours * _HOUR_MS)

    @model_validator(mode="after")
    def _check_across_keys(self, info: ValidationInfo) -> Self:
        self._written = info.context or {}
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Return the contradictions between keys, each a sentence with the key and the remedy."""
        yield from self._node_problems()
        yield from self._listener_problems()
        yield from security_problems(self)
        yield from self._timing_problems()
        yield from self._consumer_group_problems()

    def _node_problems(self) -> Iterator[str]:
        if not self.process_roles:
            yield "process.roles is empty: write controller, broker or controller,broker"
        if not self.log_dirs:
            yield "log.dirs is empty: name the directory for this node's data"
        if not self.controller_quorum_voters and not self.controller_quorum_bootstrap_servers:
            yield (
                "controller.quorum.voters is empty: list the controllers as id@host:port, or set "
                "controller.quorum.bootstrap.servers for a quorum whose voters can change"
            )
        is_voter = self.node_id in {voter.node_id for voter in self.controller_quorum_voters}
        if self.is_controller and self.controller_quorum_voters and not is_voter:
            yield (
                f"node.id={self.node_id} is not in controller.quorum.voters: add it, or take "
                "controller out of process.roles"
            )
        if is_voter and not self.is_controller:
            yield (
                f"node.id={self.node_id} is in controller.quorum.voters but process.roles lacks "
                "controller: choose another node.id or add the role"
            )

    def _listener_problems(self) -> Iterator[str]:
        if not self.controller_listener_names:
            yield "controller.listener.names is empty: name the controllers' listener"
        if self.is_controller and not self.controller_listeners:
            yield (
                "listeners has none of controller.listener.names "
                f"({','.join(self.controller_listener_names)}): add one for this controller"
            )
        if len(self.controller_listeners) > 1:
            yield (
                f"listeners has {self.controller_listeners[0].name} and "
                f"{self.controller_listeners[1].name}, but a controller serves one listener: take "
                "one out"
            )
        if not self.is_controller and self.controller_listeners:
            yield (
                f"listeners has {self.controller_listeners[0].name}, which controller.listener."
                "names claims, but this node is only a broker: take it out of listeners"
            )
        http = self.http_listener
        if http is not None and self.is_controller:
            yield f"http.listener={http}: a controller has HTTP on its own listener: remove the key"
        taken = (*(one.name for one in self.listeners), *self.controller_listener_names)
        if http is not None and http.name in taken:
            yield f"http.listener={http}: {http.name} is another listener: choose a new name"
        if self.is_broker and not self.broker_listeners:
            yield "listeners has none for this broker: add PLAINTEXT://host:port"
        if not self.is_broker and self.broker_listeners:
            yield (
                f"listeners has {self.broker_listeners[0].name}, but this node is only a "
                "controller: keep only those of controller.listener.names"
            )
        yield from self._advertised_problems()
        yield from self._endpoint_problems()

    def _advertised_problems(self) -> Iterator[str]:
        bound = {listener.name for listener in self.broker_listeners}
        for listener in self.advertised:
            if listener.name not in bound:
                yield (
                    f"advertised.listeners has {listener.name}, which is no broker listener of "
                    "listeners: add it there or take it out"
                )
            if listener.host in _EVERY_INTERFACE:
                yield (
                    f"advertised.listeners: {listener.host} is no address a client can reach: "
                    "set advertised.listeners to the host's own"
                )
        names = {listener.name for listener in self.advertised}
        if self.is_broker and self.inter_broker_listener not in names:
            yield (
                f"inter.broker.listener.name={self.inter_broker_listener} is not among the "
                "advertised listeners: choose one of them"
            )

    def _endpoint_problems(self) -> Iterator[str]:
        bound = {listener.name for listener in self.controller_listeners}
        for listener in self.advertised_listeners:
            if listener.name in self.controller_listener_names and listener.name not in bound:
                yield (
                    f"advertised.listeners has {listener.name}, which is not in listeners: add it "
                    "there or take it out"
                )
        endpoint = self.controller_endpoint
        # With static voters they name the address of this controller.
        dynamic = not self.controller_quorum_voters
        if endpoint is not None and dynamic and endpoint.host in _EVERY_INTERFACE:
            yield (
                f"listeners: {endpoint.host} is no address that controllers can reach: set "
                f"advertised.listeners to {endpoint.name}://host:port"
            )

    def _timing_problems(self) -> Iterator[str]:
        for key, bound, rule in _BOUNDED_BY:
            value, limit = (getattr(self, each.replace(".", "_")) for each in (key, bound))
            if value > limit or (value == limit and rule == _BELOW):
                yield f"{key}={value} must be {rule} {bound}={limit}"
