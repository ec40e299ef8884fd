"""The network of namespaces as names, addresses and commands for `ip`. Pure.

    jepsen<pid>            a device of the host, with the first address
    jepsen-<pid>-hub       a namespace with the bridge, out of reach of the host's packet filters
    jepsen-<pid>-<node>    a namespace with `eth0`, which has the node's address, and `detour0`,
                           which takes what is meant for nodes over links that are cut or slow

Names tell whose the network is, so that what a killed harness left can be found.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.environments._base import Link

RANGE = IPv4Network("198.18.0.0/15")
"""Set apart for tests of networks (RFC 2544, section C.2.2): nobody's in any other network."""
_PREFIX_LENGTH = 24
_WHOLE_LENGTH_MAX = 7
"""Routes as short as this are somebody's default, not a network that is in use."""
DETOUR = "detour0"
MTU = 1500
_UPLINK, _BRIDGE, _DEVICE = "uplink0", "bridge0", "eth0"
_NAME = re.compile(r"jepsen-(\d+)-")


class Batch(NamedTuple):
    """Lines for one `ip -batch`."""

    namespace: str
    """Empty: the host's."""
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """The network of one run."""

    pid: int
    """Of the process that runs it."""
    network: IPv4Network
    nodes: tuple[str, ...]

    @property
    def device(self) -> str:
        """The host's end."""
        return device_of(self.pid)

    @property
    def hub(self) -> str:
        """The namespace of the bridge."""
        return self.namespace("hub")

    def namespace(self, node: str) -> str:
        """Where the node lives."""
        return f"jepsen-{self.pid}-{node}"

    @cached_property
    def addresses(self) -> Mapping[str, str]:
        """Of each node; the host has the one before them."""
        hosts = itertools.islice(self.network.hosts(), 1, None)
        return dict(zip(self.nodes, map(str, hosts), strict=False))

    def building(self) -> Iterator[Batch]:
        """Makes all but the detours."""
        host = next(self.network.hosts())
        names = [self.hub, *map(self.namespace, self.nodes)]
        yield Batch(
            "",
            (
                *(f"netns add {name}" for name in names),
                f"link add name {self.device} type veth peer name {_UPLINK} netns {self.hub}",
                f"address add {host}/{_PREFIX_LENGTH} dev {self.device}",
                f"link set dev {self.device} up",
            ),
        )
        yield Batch(self.hub, tuple(self._bridging()))
        for node, address in self.addresses.items():
            yield Batch(
                self.namespace(node),
                (
                    "link set dev lo up",
                    f"address add {address}/{_PREFIX_LENGTH} dev {_DEVICE}",
                    f"link set dev {_DEVICE} up",
                ),
            )

    def _bridging(self) -> Iterator[str]:
        yield f"link add name {_BRIDGE} type bridge"
        yield f"link set dev {_BRIDGE} up"
        yield f"link set dev {_UPLINK} master {_BRIDGE} up"
        for node in self.nodes:
            peer = f"peer name {_DEVICE} netns {self.namespace(node)}"
            yield f"link add name {node} type veth {peer}"
            yield f"link set dev {node} master {_BRIDGE} up"

    def placing(self, node: str, device: str) -> Iterator[Batch]:
        """Makes a TUN device of the host's the detour of a node."""
        namespace = self.namespace(node)
        yield Batch("", (f"link set dev {device} netns {namespace} name {DETOUR}",))
        yield Batch(namespace, (f"link set dev {DETOUR} mtu {MTU} up",))

    def rerouting(self, before: Iterable[Link], after: Iterable[Link]) -> list[Batch]:
        """Sends what is meant for these links, and no other, over detours."""
        before, after = set(before), set(after)
        lines: dict[str, list[str]] = {}
        for source, destination in sorted(before ^ after):
            word = "replace" if (source, destination) in after else "delete"
            route = f"route {word} {self.addresses[destination]}/32 dev {DETOUR}"
            lines.setdefault(source, []).append(f"{route} src {self.addresses[source]}")
        return [Batch(self.namespace(node), tuple(of_node)) for node, of_node in lines.items()]


def device_of(pid: int) -> str:
    """The host's end of the network of that process."""
    return f"jepsen{pid}"


def owner(namespace: str) -> int | None:
    """The process whose namespace it is; None if it is none of a run's."""
    found = _NAME.match(namespace)
    return None if found is None else int(found[1])


def free_network(pid: int, routes: Iterable[Mapping[str, Any]]) -> IPv4Network | None:
    """A network that overlaps with no route (as `ip -json route` tells them), None if none is left.

    Those of processes that begin at the same time differ.
    """
    used = [one for one in map(_destination, routes) if one is not None]
    all_of_range = list(RANGE.subnets(new_prefix=_PREFIX_LENGTH))
    start = pid % len(all_of_range)
    candidates: Sequence[IPv4Network] = [*all_of_range[start:], *all_of_range[:start]]
    return next((one for one in candidates if not any(map(one.overlaps, used))), None)


def _destination(route: Mapping[str, Any]) -> IPv4Network | None:
    text = str(route.get("dst", "default"))
    if text == "default":
        return None
    network = IPv4Network(text, strict=False)
    return network if network.prefixlen > _WHOLE_LENGTH_MAX else None
