"""Which packets cross a link that is cut or slow, and when they arrive. Pure.

A packet is lost for good, as on a wire: whether and when it is sent again is TCP's business.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from jepsen.environments._base import Link, Quality

QUEUE_BYTES = 64 * 1024
"""What waits before a link of few bytes a second; more is lost, as a router would drop it."""
_HEADER_BYTES = 20
_SOURCE, _DESTINATION = slice(12, 16), slice(16, 20)


class Delivery(NamedTuple):
    """Where a packet arrives, and when on the caller's clock."""

    node: str
    at_s: float


class PacketRouter:
    """Decides on each IPv4 packet of links that are not as good as they could be."""

    def __init__(self, addresses: Mapping[str, str], rng: random.Random) -> None:
        """`addresses`: of each node, by name."""
        self._nodes = {socket.inet_aton(address): name for name, address in addresses.items()}
        self._random = rng
        self._blocked: frozenset[Link] = frozenset()
        self._qualities: dict[Link, Quality] = {}
        self._idle_at_s: dict[Link, float] = {}
        """When a link with a bandwidth has carried all that it was given."""

    @property
    def links(self) -> frozenset[Link]:
        """Those that are cut or slow."""
        return self._blocked | self._qualities.keys()

    def set_blocked(self, links: Iterable[Link]) -> None:
        """These links carry nothing now, all others do."""
        self._blocked = frozenset(links)

    def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """These links are no better than that now, all others are as good as they can."""
        self._qualities = dict(qualities)
        self._idle_at_s = {link: at for link, at in self._idle_at_s.items() if link in qualities}

    def delivery(self, packet: bytes, now_s: float) -> Delivery | None:
        """What becomes of a packet that is sent now; None: it is lost, or not one of the nodes'."""
        link = self._link(packet)
        if link is None or link in self._blocked:
            return None
        quality = self._qualities.get(link)
        if quality is None:
            return Delivery(link[1], now_s)
        if self._random.random() < quality.loss:
            return None
        carried_s = now_s
        if quality.bytes_per_s:
            begins_s = max(now_s, self._idle_at_s.get(link, now_s))
            if (begins_s - now_s) * quality.bytes_per_s + len(packet) > QUEUE_BYTES:
                return None
            carried_s = self._idle_at_s[link] = begins_s + len(packet) / quality.bytes_per_s
        return Delivery(link[1], carried_s + quality.delay_ms / 1000)

    def _link(self, packet: bytes) -> Link | None:
        """RFC 791, section 3.1."""
        if len(packet) < _HEADER_BYTES or packet[0] >> 4 != 4:
            return None
        source = self._nodes.get(packet[_SOURCE])
        destination = self._nodes.get(packet[_DESTINATION])
        return None if source is None or destination is None else (source, destination)
