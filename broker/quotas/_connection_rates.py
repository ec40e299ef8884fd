"""Rates of new connections: of the broker, of each listener, of each address (KIP-612)."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from broker.quotas._rates import BY_DEFAULT, SampledRate, Windows
from broker.quotas._usages import Usages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.types import ClientQuotas as StoredClientQuotas

_KEY = "connection_creation_rate"
_IP = "ip"


class ConnectionRates:
    """How long a new connection must wait. Times are any clock's milliseconds."""

    def __init__(
        self,
        broker_bound: int,
        listener_bounds: Mapping[str, int],
        protected: str | None,
        windows: Windows = BY_DEFAULT,
    ) -> None:
        """Bounds are connections a second; `protected` is the brokers' own listener.

        That listener is not counted for the broker's bound, so clients cannot use it up.
        """
        self._windows = windows
        self._broker_bound = broker_bound
        self._broker = SampledRate(windows)
        self._protected = protected
        self._listeners = {
            name: (SampledRate(windows), bound) for name, bound in listener_bounds.items()
        }
        self._hosts: Usages[str, SampledRate] = Usages(lambda: SampledRate(windows))
        """Of each address that has a bound."""
        self._bounds: dict[str, float] = {}
        self._default_bound: float | None = None
        self._stored: StoredClientQuotas | None = None

    def bound(self, broker_bound: int, listener_bounds: Mapping[str, int]) -> None:
        """Take up other bounds of the same listeners; what was counted stays."""
        self._broker_bound = broker_bound
        self._listeners = {
            name: (rate, listener_bounds[name]) for name, (rate, _) in self._listeners.items()
        }

    def publish(self, image: MetadataImage) -> None:
        """Take up the bounds of addresses of a newer image."""
        if image.client_quotas is self._stored:
            return
        self._stored = image.client_quotas
        self._bounds, self._default_bound = {}, None
        for entity, values in image.client_quotas.items():
            kind, name = entity[0]
            if kind != _IP or _KEY not in values:
                continue
            if name is None:
                self._default_bound = values[_KEY]
            else:
                self._bounds[canonical_address(name)] = values[_KEY]

    def accept(self, listener: str, now_ms: int) -> int:
        """Count a connection of a listener; return for how many milliseconds all of it must wait.

        At most a window. The connections behind it wait in turn, each by itself.
        """
        rate, bound = self._listeners[listener]
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        if listener != self._protected:
            self._broker.record(1, now_ms)
            throttle_ms = max(throttle_ms, self._broker.throttle_ms(self._broker_bound, now_ms))
        return min(throttle_ms, self._windows.size_ms)

    def accept_from(self, host: str, listener: str, now_ms: int) -> int:
        """Count a connection of an address; return after how many milliseconds to close it.

        0 lets it stay. One that is closed counts for nobody: it has not been served.
        """
        host = canonical_address(host)
        bound = self._bounds.get(host, self._default_bound)
        if bound is None:
            return 0
        rate = self._hosts.of(host, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._windows.size_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
            self._listeners[listener][0].record(-1, now_ms)
            if listener != self._protected:
                self._broker.record(-1, now_ms)
        return throttle_ms


def canonical_address(host: str) -> str:
    """Return the address in one form, however the quota's owner wrote it."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
