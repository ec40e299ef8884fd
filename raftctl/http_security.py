"""How a client connects to controllers over HTTP: by TLS, and with a login."""

from __future__ import annotations

import base64
import http.client
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class HttpSecurity:
    """How an HTTP client connects to controllers."""

    tls: ssl.SSLContext | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password."""
    token: str | None = field(default=None, repr=False)
    """In place of a login: a token of OAUTHBEARER."""

    def __post_init__(self) -> None:
        if self.login is not None and self.token is not None:
            raise ConfigError("a login and a token are given: a client sends one, leave one out")

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each request (RFC 7617, RFC 6750)."""
        if self.token is not None:
            return {"Authorization": f"Bearer {self.token}"}
        if self.login is None:
            return {}
        encoded = base64.b64encode(":".join(self.login).encode()).decode()
        return {"Authorization": f"Basic {encoded}"}

    def check(self, address: str) -> None:
        """Raise ConfigError if a secret would go to this `host:port` in the clear."""
        host = address.rpartition(":")[0].strip("[]")
        try:
            is_loopback = ip_address(host).is_loopback
        except ValueError:
            is_loopback = host == "localhost"
        has_secret = self.login is not None or self.token is not None
        if has_secret and self.tls is None and not is_loopback:
            secret = "password" if self.token is None else "token"
            raise ConfigError(
                f"a {secret} would go to {address} in the clear: use TLS, "
                "security.protocol=SASL_SSL"
            )

    def connection(self, address: str, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection to `host:port`, which is not opened yet; ConfigError as `check`."""
        self.check(address)
        host, _, port = address.rpartition(":")
        name = host.strip("[]")
        if self.tls is None:
            return http.client.HTTPConnection(name, int(port), timeout=timeout_s)
        return http.client.HTTPSConnection(name, int(port), timeout=timeout_s, context=self.tls)


NO_SECURITY = HttpSecurity()
