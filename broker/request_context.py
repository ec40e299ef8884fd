"""A request's context: from which connection it comes, how large it is, and how long it took.

`dispatch` takes a frame with its context. Authorizer, quotas, metrics of request times, the log of
slow requests and the audit log read it; nothing else reaches for the connection. Times are seconds
of the event loop's clock. Source: Apache Kafka's RequestContext.

A request has an id that no other request of the cluster has. A hot path pays an integer for it: the
text is made when a line of the log or a request to the controller needs it.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from raftctl.security import ANONYMOUS, Principal, Requester
from raftctl.security.sasl import ServerMechanism
from raftctl.tracing import TraceContext

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def host_text(address: Address) -> str:
    """Return an address as Java writes it, and rules name it: 127.0.0.1, 0:0:0:0:0:0:0:1."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        groups = address.exploded.partition("%")[0].split(":")
        return ":".join(f"{int(group, 16):x}" for group in groups)
    return str(address)


class SaslStage(enum.Enum):
    """What a connection of a SASL listener sends next."""

    VERSIONS_OR_HANDSHAKE = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate, or the tokens without it"
    REQUESTS = "requests: it has authenticated"
    NOTHING = "nothing: it has failed"


@dataclass(slots=True)
class SaslState:
    """How far a connection has come with its authentication, or with the newest one of several."""

    frame_bytes_max: int
    """Of a frame before it has authenticated."""
    stage: SaslStage = SaslStage.VERSIONS_OR_HANDSHAKE
    mechanism: str = ""
    exchange: ServerMechanism | None = field(default=None, repr=False)
    has_headers: bool = True
    """Whether tokens come in SaslAuthenticate: not after a SaslHandshake of version 0."""
    is_renewal: bool = False
    """Whether the connection has authenticated before (KIP-368)."""
    begun_at: float = 0.0
    """When the newest renewal began."""

    @property
    def has_authenticated(self) -> bool:
        """Whether requests are served."""
        return self.stage is SaslStage.REQUESTS

    @property
    def takes_raw_tokens(self) -> bool:
        """Whether the next frame is a token, of any size, and no request."""
        return self.stage is SaslStage.TOKENS and not self.has_headers


class WaitEnd(enum.Enum):
    """How the wait of a Produce with acks=all ended."""

    RECORDS_THERE = "the records are there"
    LEFT_ISR = "a replica has left the ISR"
    TIMED_OUT = "the time is over"


class ReplicaWait(NamedTuple):
    """What a Produce with acks=all waited for last."""

    topic: str
    partition: int
    brokers: tuple[int, ...]
    """The broker that was the last to have the records, those that have left the ISR without them,
    or those that did not have them in time."""
    end: WaitEnd = WaitEnd.RECORDS_THERE


@dataclass(slots=True)
class ClientConnection:
    """A connection, as the requests on it see it."""

    listener: str = ""
    security_protocol: str = "PLAINTEXT"
    host: str = ""
    """The address that it comes from, as Java writes one: 127.0.0.1, 0:0:0:0:0:0:0:1."""
    principal: Principal = ANONYMOUS
    token_id: str | None = None
    """Of the delegation token that it has authenticated with (KIP-48)."""
    client_software_name: str = ""
    """As the client says in ApiVersions (KIP-511); empty before."""
    client_software_version: str = ""
    id_prefix: str = ""
    """With which the ids of its requests begin: the node, its start, the connection's number."""
    port: int = 0
    """Of the client's end."""
    muted_until: float = 0.0
    """No further request starts before; of one that exceeds a quota (KIP-219)."""
    muted_by: str = ""
    """The newest quota that muted it."""
    unmuted_at: float = 0.0
    """When the newest mute that is over ended."""
    sasl: SaslState | None = None
    """None where the listener does not authenticate by SASL."""
    session_expires_at: float | None = None
    """A request from then on ends the connection, unless it authenticates again; None: never."""
    refusal: str | None = None
    """Why the connection ends once what was answered has left."""

    @property
    def requester(self) -> Requester:
        """The principal and the host, as an authorizer is asked with them."""
        return Requester(self.principal, self.host)


@dataclass(slots=True)
class RequestContext:
    """One request. Times of stages that have not begun are 0."""

    connection: ClientConnection = field(default_factory=ClientConnection)
    size: int = 0
    """Bytes of the frame, without its length."""
    arrived_at: float = 0.0
    """When the frame was whole."""
    started_at: float = 0.0
    """When its handler began: what it waited for others of its connection is before."""
    returned_at: float = 0.0
    """When the handler returned: what it waits for from then on is others, such as replicas."""
    answered_at: float = 0.0
    """When the response was there."""
    queued_at: float = 0.0
    """When the responses before it had left; it was handed to the connection then."""
    sent_at: float = 0.0
    """When the connection had taken it."""
    loop_seconds: float = 0.0
    """Time of the event loop that it took until now; measured only while there are quotas."""
    throttle_ms: int = 0
    """For how long its connection is muted, since it exceeds a quota."""
    number: int = 0
    """Of the request among those of its connection, from 1."""
    waited_for: ReplicaWait | str | None = None
    """Of what came between handler and answer the last; None if nobody has noted it."""
    trace: TraceContext | None = None
    """Its span, if the request is traced."""
    api_key: int = -1
    """-1 before the header has been read, as are version and correlation id."""
    api_version: int = -1
    correlation_id: int = -1
    client_id: str | None = None
    records_bytes_max: int | None = None
    """Of a Fetch: the records of a partition are cut there, within a batch too; None: never."""
    is_of_replica: bool = False
    """Whether it is a Fetch of a follower, not of a consumer."""
    carried_id: str = ""
    """Of a request in an envelope: the id that it has on the node that sends it."""
    errors: Mapping[int, int] | None = None
    """Error code to how often the response has it; without those that say that all is well."""

    def identify(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        """Take what metrics and logs name a request by, once its header has been read."""
        self.api_key, self.api_version = api_key, version
        self.correlation_id, self.client_id = correlation_id, client_id

    @property
    def request_id(self) -> str:
        """The id of the request, for logs of all nodes; empty where ids are not given."""
        prefix = self.connection.id_prefix
        return f"{prefix}.{self.number}" if prefix else self.carried_id

    @property
    def followed_id(self) -> str:
        """The id while the request is under way: see `raftctl.tracing.follow`."""
        return "" if self.sent_at else self.request_id

    @property
    def client_host(self) -> str:
        """The host as descriptions of groups have it: /127.0.0.1."""
        return f"/{self.connection.host}"
