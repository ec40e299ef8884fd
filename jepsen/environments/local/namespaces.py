"""Nodes in network namespaces of their own, behind one bridge; needs root, `ip` and TUN devices.

Nodes and the host reach each other by the bridge. Packets for a blocked or degraded link are routed
to a TUN device in the sender's namespace, and from there to this process. `PacketRouter` drops
them, or delivers them to the receiver's device at their time. So packets into a blocked link
vanish, as on a wire; TCP decides whether they are sent again. Linux' `netem` could drop and delay
packets as well, but not every kernel has it.

`Topology` has names, addresses and commands for `ip`, and runs nothing:

    jepsen<pid>            a device of the host, with the first address
    jepsen-<pid>-hub       a namespace with the bridge, out of reach of the host's packet filters
    jepsen-<pid>-<node>    a namespace with `eth0`, which has the node's address, and `detour0`,
                           which takes packets for nodes over blocked and degraded links

A name has the process that owns the network, so the remains of a killed harness can be found.

Source: Linux, Documentation/networking/tuntap.rst; ip-netns(8).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import logging
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from jepsen.environments.local._network import Network
from jepsen.errors import ClusterError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jepsen.environments._base import Link, Quality
    from raftctl.localcluster.layout import LocalNode

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
    """The id of the process that runs it."""
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
        """Return the name of the node's namespace."""
        return f"jepsen-{self.pid}-{node}"

    @cached_property
    def addresses(self) -> Mapping[str, str]:
        """The address of each node; the host has the one before them."""
        hosts = itertools.islice(self.network.hosts(), 1, None)
        return dict(zip(self.nodes, map(str, hosts), strict=False))

    def building(self) -> Iterator[Batch]:
        """Make all but the detours."""
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
        """Make a TUN device of the host's the detour of a node."""
        namespace = self.namespace(node)
        yield Batch("", (f"link set dev {device} netns {namespace} name {DETOUR}",))
        yield Batch(namespace, (f"link set dev {DETOUR} mtu {MTU} up",))

    def rerouting(self, before: Iterable[Link], after: Iterable[Link]) -> list[Batch]:
        """Send what is meant for these links, and no other, over detours."""
        before, after = set(before), set(after)
        lines: dict[str, list[str]] = {}
        for source, destination in sorted(before ^ after):
            word = "replace" if (source, destination) in after else "delete"
            route = f"route {word} {self.addresses[destination]}/32 dev {DETOUR}"
            lines.setdefault(source, []).append(f"{route} src {self.addresses[source]}")
        return [Batch(self.namespace(node), tuple(of_node)) for node, of_node in lines.items()]


def device_of(pid: int) -> str:
    """Return the host's end of the network of that process."""
    return f"jepsen{pid}"


def owner(namespace: str) -> int | None:
    """Return the process whose namespace it is; None if it is none of a run's."""
    found = _NAME.match(namespace)
    return None if found is None else int(found[1])


def free_network(pid: int, routes: Iterable[Mapping[str, Any]]) -> IPv4Network | None:
    """Return a network that overlaps with no route of `ip -json route`; None if none is left.

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


logger = logging.getLogger(__name__)

TUN = Path("/dev/net/tun")
STATUS = Path("/proc/self/status")
PACKETS_AT_ONCE = 64
"""Read from one device before anything else has its turn."""
UNDER_WAY_MAX = 10_000
"""Packets that have not arrived yet; more are lost."""
CALL_TIMEOUT_S = 60.0
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
"""Where `ip` is, though a user's PATH may not say so."""
_CAPABILITIES = (1 << 12) | (1 << 21)
"""To make devices (CAP_NET_ADMIN), and to enter and name namespaces (CAP_SYS_ADMIN)."""
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_LENIENT = [f"/proc/sys/net/ipv4/conf/{of}/rp_filter" for of in ("all", "default")]


def check_means() -> None:
    """Raise InputError that names all that this machine lacks for namespaces, and the remedy."""
    lacking = []
    if not _may_administer():
        lacking.append("root with CAP_NET_ADMIN and CAP_SYS_ADMIN (sudo; a privileged container)")
    if _find_ip() is None:
        lacking.append("the program ip (package iproute2)")
    if not TUN.exists():
        lacking.append(f"{TUN} (modprobe tun; in a container --device {TUN})")
    if lacking:
        raise InputError(
            f"--network namespaces: it needs {', '.join(lacking)}; --network relays needs nothing"
        )


class NamespaceNetwork(Network):
    """One for each node; as all of `Network`, for one cluster of one process at a time."""

    def __init__(self) -> None:
        """Sweep what killed runs left. ClusterError if `ip` cannot say what there is."""
        self._ip = _find_ip() or "ip"
        self._pid = os.getpid()
        self._topology: Topology | None = None
        self._network = self._free_network()
        self._tuns: dict[str, int] = {}
        self._router = PacketRouter({}, random.Random())
        self._rerouted: frozenset[Link] = frozenset()
        self._under_way: set[asyncio.TimerHandle] = set()
        self._sweep()

    def hosts(self, count: int) -> Sequence[str]:
        nodes = tuple(f"node-{number}" for number in range(count))
        return list(Topology(self._pid, self._network, nodes).addresses.values())

    def prepare(self, nodes: Sequence[LocalNode], directory: Path) -> None:
        """See `Network`; ClusterError if `ip` refuses."""
        del directory
        topology = Topology(self._pid, self._network, tuple(node.name for node in nodes))
        self._topology = topology
        self._router = PacketRouter(topology.addresses, random.Random())
        for batch in topology.building():
            self._run(batch)
        for node in topology.nodes:
            self._make_detour(topology, node)

    def _make_detour(self, topology: Topology, node: str) -> None:
        # Packets that come by the detour would be taken for forged where the way back is another.
        command = [self._ip, "netns", "exec", topology.namespace(node), "tee", *_LENIENT]
        _call(command, "0")
        device = f"{topology.device}t"
        self._tuns[node] = _open_tun(device)
        for batch in topology.placing(node, device):
            self._run(batch)

    def prefix(self, node: str) -> Sequence[str]:
        assert self._topology is not None
        return [self._ip, "netns", "exec", self._topology.namespace(node)]

    async def open(self, pids: Callable[[], Mapping[str, int]]) -> None:
        del pids
        for tun in self._tuns.values():
            asyncio.get_running_loop().add_reader(tun, self._carry, tun)

    async def set_blocked(self, links: Iterable[Link]) -> None:
        self._router.set_blocked(links)
        await self._reroute()

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        self._router.set_quality(qualities)
        await self._reroute()

    async def _reroute(self) -> None:
        """Have the routes follow the router."""
        assert self._topology is not None
        wanted = self._router.links
        batches = self._topology.rerouting(self._rerouted, wanted)
        self._rerouted = wanted
        await asyncio.gather(*(asyncio.to_thread(self._run, batch) for batch in batches))

    def _carry(self, tun: int) -> None:
        """Take what nodes have sent into a detour, and let it go on or not."""
        loop = asyncio.get_running_loop()
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(tun, 2 * MTU)
            except BlockingIOError:
                return
            delivery = self._router.delivery(packet, loop.time())
            if delivery is None or len(self._under_way) >= UNDER_WAY_MAX:
                continue
            if delivery.at_s <= loop.time():
                self._deliver(delivery.node, packet)
            else:
                self._deliver_at(delivery.at_s, delivery.node, packet)

    def _deliver_at(self, at_s: float, node: str, packet: bytes) -> None:
        def arrive() -> None:
            self._under_way.discard(timer)
            self._deliver(node, packet)

        timer = asyncio.get_running_loop().call_at(at_s, arrive)
        self._under_way.add(timer)

    def _deliver(self, node: str, packet: bytes) -> None:
        # What a device does not take is lost, as anywhere.
        with contextlib.suppress(OSError):
            os.write(self._tuns[node], packet)

    async def close(self) -> None:
        """See `Network`: with the devices go the routes to them."""
        for timer in self._under_way:
            timer.cancel()
        self._under_way.clear()
        for tun in self._tuns.values():
            asyncio.get_running_loop().remove_reader(tun)
        self._close_tuns()

    def _close_tuns(self) -> None:
        for tun in self._tuns.values():
            os.close(tun)
        self._tuns.clear()

    def remove(self) -> None:
        self._close_tuns()
        self._take_away(self._pid)

    def _free_network(self) -> IPv4Network:
        routes = json.loads(
            _call([self._ip, "-json", "-4", "route", "show", "table", "all"]) or "[]"
        )
        found = free_network(self._pid, routes)
        if found is None:
            raise ClusterError("--network namespaces: 198.18.0.0/15 is in use: see `ip route`")
        return found

    def _namespaces(self) -> list[str]:
        lines = _call([self._ip, "netns", "list"]).splitlines()
        return [line.split()[0] for line in lines if line.strip()]

    def _sweep(self) -> None:
        """Take away what a harness left that was killed, with its nodes."""
        owners = {pid for name in self._namespaces() if (pid := owner(name)) is not None}
        for pid in sorted(owners):
            if pid == self._pid or not psutil.pid_exists(pid):
                self._take_away(pid)

    def _take_away(self, pid: int) -> None:
        try:
            self._dismantle(pid)
        except ClusterError as error:
            # Another run may be sweeping too; what a run has shown is worth more than what it left.
            logger.warning("perhaps not all of process %d's network is gone: %s", pid, error)

    def _dismantle(self, pid: int) -> None:
        """Take the network of that process away, and end what still runs in it."""
        names = [name for name in self._namespaces() if owner(name) == pid]
        for name in names:
            for member in _call([self._ip, "netns", "pids", name]).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(member), signal.SIGKILL)
        if Path(f"/sys/class/net/{device_of(pid)}").exists():
            self._run(Batch("", (f"link delete dev {device_of(pid)}",)))
        self._run(Batch("", tuple(f"netns delete {name}" for name in names)))

    def _run(self, batch: Batch) -> None:
        namespace = ["-netns", batch.namespace] if batch.namespace else []
        _call([self._ip, *namespace, "-batch", "-"], "\n".join(batch.lines) + "\n")


def _may_administer() -> bool:
    """What root may not do everywhere: containers take capabilities from it. proc(5)."""
    status = STATUS.read_text() if STATUS.exists() else ""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and int(found[1], 16) & _CAPABILITIES == _CAPABILITIES


def _find_ip() -> str | None:
    return shutil.which("ip") or shutil.which("ip", path=_SYSTEM_PATH)


def _open_tun(device: str) -> int:
    """A new TUN device of the host's, as a file of packets; it is gone when that is closed."""
    tun = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        flags = _IFF_TUN | _IFF_NO_PI
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), flags))
    except OSError as error:
        os.close(tun)
        raise ClusterError(f"--network namespaces: {TUN}: {error.strerror}") from error
    return tun


def _call(command: Sequence[str], text: str = "") -> str:
    """What the program printed; ClusterError if it failed."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=CALL_TIMEOUT_S, check=True
        )
    except subprocess.SubprocessError as error:
        why = getattr(error, "stderr", "") or str(error)
        raise ClusterError(f"--network namespaces: {' '.join(command)}: {why.strip()}") from None
    return done.stdout


QUEUE_BYTES = 64 * 1024
"""The queue before a link with a bandwidth; more is lost, as a router would drop it."""
_HEADER_BYTES = 20
_SOURCE, _DESTINATION = slice(12, 16), slice(16, 20)


class Delivery(NamedTuple):
    """The arrival of a packet: the node, and the time on the caller's clock."""

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
        """The time at which a link with a bandwidth has carried its whole queue."""

    @property
    def links(self) -> frozenset[Link]:
        """The links that are cut or slow."""
        return self._blocked | self._qualities.keys()

    def set_blocked(self, links: Iterable[Link]) -> None:
        """Cut these links and restore all others."""
        self._blocked = frozenset(links)

    def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """Degrade these links to these qualities and restore all others."""
        self._qualities = dict(qualities)
        self._idle_at_s = {link: at for link, at in self._idle_at_s.items() if link in qualities}

    def delivery(self, packet: bytes, now_s: float) -> Delivery | None:
        """Return the arrival of a packet sent now; None if it is lost, or not one of the nodes'."""
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
