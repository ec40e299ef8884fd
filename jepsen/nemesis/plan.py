"""Plans of faults as data: which fault strikes what, when and for how long.

A plan is a list of `Fault`s. `FAULTS` is the one vocabulary of kinds: a fault of the same kind has
the same name on processes and in the simulator. `PACKAGES` has the nemesis' operations that begin
and end the kinds of `jepsen test --nemesis`. A plan can be written, read back, repeated, and
made smaller by leaving faults out (`smallest`), since a fault carries its own end.

Random faults of a test (`jepsen.nemesis.faults`) become a plan afterwards: `performed` reads from
the history what the nemesis did, with the nodes that it chose.

Sources: Jepsen's `jepsen.nemesis.combined` for the names; Zeller, "Simplifying and Isolating
Failure-Inducing Input", for `smallest`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.errors import InputError
from jepsen.generator.combinators import Then, nemesis
from jepsen.generator.core import NEMESIS, NOTHING, Once, Todo
from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jepsen.generator.core import Generator
    from jepsen.history import Op

HEAL = "heal-all"
"""The operation that ends every fault."""
MS_NS = 1_000_000
CERTIFICATE = "certificate"
EVERY_OPERATION = "all"
RUNS_MAX = 24
"""How often `smallest` repeats a run, since each may cost a minute."""


class Kind(NamedTuple):
    """A kind of fault."""

    package: str
    """The name of `jepsen test --nemesis` that has it; empty: only plans for the simulator."""
    unit: str
    """Of the fault's amount, and the name of the parameter in JSON; empty: it has none."""
    meaning: str


FAULTS: Mapping[str, Kind] = {
    # Processes and machines.
    "kill": Kind("kill", "", "the process ends as by SIGKILL; its disk keeps what was written"),
    "stop": Kind("restart", "", "the process is asked to end, as by SIGTERM"),
    "rolling": Kind("rolling", "", "one restart after the other, each when all are in sync"),
    "pause": Kind("pause", "", "the process stands still, as by SIGSTOP"),
    "power_off": Kind("disk", "", "the machine stops; unsynced writes may be lost or torn"),
    "power_cut": Kind("", "operations", "the machine stops amid its next operations on the disk"),
    "stall": Kind("", "ms", "steps of the event loop take long"),
    "suspend": Kind("", "", "the machine is suspended; its monotonic clock stands still"),
    # Links.
    "isolate": Kind("partition", "", "the nodes and all others do not reach each other"),
    "halves": Kind("partition", "", "two halves do not reach each other"),
    "bridge": Kind("partition", "", "two halves reach each other by one node only"),
    "ring": Kind("partition", "", "every node reaches a majority, and no two the same"),
    "one_way": Kind("partition", "", "what the first node sends does not reach the others"),
    "pair": Kind("partition", "", "two nodes do not reach each other"),
    "delay": Kind("slow", "ms", "links have a longer latency"),
    "loss": Kind("slow", "fraction", "links lose packets, so some data is late"),
    "bandwidth": Kind("slow", "bytes_per_s", "links carry few bytes a second"),
    "reset": Kind("", "bytes", "a link's connections are reset again and again"),
    "half_open": Kind("", "", "the network forgets connections; neither end learns of it"),
    # Clocks.
    "clock_skew": Kind("clock", "ms", "the wall clock is off"),
    "clock_rate": Kind("", "rate", "monotonic clocks go faster or slower"),
    # Disks.
    "write_error": Kind("disk", "", "writes fail"),
    "sync_error": Kind("disk", "", "an fsync fails, and unsynced writes are lost"),
    "disk_full": Kind("disk", "", "the disk is full"),
    "disk_fills": Kind("", "bytes", "the disk is full in the middle of a write"),
    "truncate": Kind("disk", "", "the last writes of a killed node are cut short"),
    "bit_flip": Kind("disk", "place", "a bit flips in what a killed node has written"),
    "bit_rot": Kind("", "place", "a bit flips in a complete file under a running node"),
    "wipe": Kind("disk", "", "the machine returns with an empty disk"),
    "slow_disk": Kind("", "times", "every sync takes many times as long"),
    "slow_io": Kind("", "ms", "some reads and writes take long"),
    "hung_writes": Kind("", "", "writes hang until the fault is over"),
    "hung_disk": Kind("", "", "reads and writes hang until the fault is over"),
    "directory_dies": Kind("", "", "every operation on a broker's second disk fails"),
    "directory_sync_error": Kind("", "", "an fsync of that disk fails"),
    "directory_full": Kind("", "", "that disk is full"),
    "directory_fills": Kind("", "bytes", "that disk is full in the middle of a write"),
    # The cluster's configuration.
    "voter": Kind("voters", "", "a controller loses its vote"),
    "broker": Kind("brokers", "", "a broker leaves, and returns with an empty disk"),
    "reassign": Kind("reassign", "partition", "a partition gets these replicas"),
    "feature": Kind("features", "level", "a feature is finalized at a lower level"),
    # Its security.
    CERTIFICATE: Kind("certificates", "authority", "nodes get new certificates by an authority"),
    "password": Kind("passwords", "", "the clients' user gets another password"),
    "revoke": Kind("rules", "", "the clients' user loses the right to these operations"),
}
"""The vocabulary: each kind of fault with its package, its unit and its meaning."""
TARGET_ROLES = ("one", "minority", "all", "leader", "partition-leader", "coordinator")
"""Targets that are resolved to nodes only when the fault begins."""
QUALITIES = tuple(kind for kind, one in FAULTS.items() if one.package == "slow")
TARGETS = ("one", "one", "minority", "leader", "all")
ROLES = ("partition-leader", "coordinator")
"""Targets of clusters that serve Kafka's clients in a test."""
PARTITIONS = ("isolate", "isolate-leader", "halves", "ring", "bridge", "one_way")
DISK, FEATURES = "disk", "features"
"""Packages whose kinds the environment decides."""


@dataclass(frozen=True, slots=True)
class Package:
    """Operations that begin and end a fault (no end if it ends by itself), and its kinds."""

    begin: str
    end: str
    shade: str
    """Its colour in plots."""
    kinds: tuple[str, ...]
    """Of disks and features: what the environment has."""
    by_role: tuple[str, ...] = ()
    """More kinds, where there are roles."""


PACKAGES = {
    "kill": Package("kill", "start", "#e57373", TARGETS, ROLES),
    "pause": Package("pause", "resume", "#ffb74d", TARGETS, ROLES),
    "restart": Package("restart", "", "#4db6ac", ("one", "leader"), ROLES),
    "rolling": Package("rolling", "", "#81c784", ("controllers", "brokers")),
    "partition": Package(
        "partition", "heal", "#9575cd", PARTITIONS, tuple(f"isolate-{role}" for role in ROLES)
    ),
    "slow": Package("slow", "restore", "#64b5f6", QUALITIES),
    "voters": Package("remove-voter", "add-voters", "#dce775", ("one", "leader")),
    "brokers": Package("remove-broker", "add-broker", "#aed581", ("one",), ROLES),
    "reassign": Package("reassign", "", "#a1887f", ("one",)),
    FEATURES: Package("lower-feature", "raise-features", "#fff176", ()),
    "clock": Package("skew", "unskew", "#f06292", ("one", "minority", "all")),
    "certificates": Package("renew-certificates", "", "#7986cb", ("one", "all")),
    "passwords": Package("change-password", "", "#ba68c8", ("clients",)),
    "rules": Package("revoke", "allow", "#a5d6a7", ("read", "write", EVERY_OPERATION)),
    DISK: Package("break-disk", "mend-disk", "#90a4ae", ()),
}
"""What the nemesis can do:

kill        the processes of some nodes end at once, and start again after a while
pause       they stand still, and go on after a while
restart     one node is asked to end, and started again
rolling     all nodes of a role, one after the other, each when the one before is in sync again
partition   some links let nothing pass for a while
slow        some links delay what they carry, deliver some of it late as a network that loses
            packets does, or carry few bytes a second
voters      a controller loses its vote, and gets it back after a while
brokers     a broker is drained, stopped and unregistered, and joins again with an empty disk
reassign    a partition gets other replicas, or prefers another leader
features    a feature of the cluster is finalized at a lower level, and all at their highest later
clock       the wall clocks of some nodes are off for a while
certificates  nodes get new certificates, by either of two authorities, and serve them without a
            restart
passwords   the clients' user gets another password; connections that are open stay
rules       the clients' user loses rights, and gets them back after a while
disk        a node's disk fails, or has lost or damaged what was written last, as each environment
            can bring it about
"""
_ANOTHER_FORM = ("partition", "slow", "clock", DISK, "reassign", FEATURES, "certificates")
"""Packages whose operations have values other than a list of nodes."""

Link = tuple[str, str]
Places = tuple[int, ...]
"""Some faults of a plan, by their places."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a plan. Times are milliseconds since the plan began."""

    kind: str
    """Of `FAULTS`."""
    at_ms: int
    for_ms: int
    """How long it lasts; 0 if it ends by itself."""
    nodes: tuple[str, ...]
    """Names of nodes, or one of `TARGET_ROLES`.

    Ids of brokers for `reassign`, users for `password`, operations for `revoke`.
    """
    amount: float = 0.0
    """In the kind's unit."""
    links: tuple[Link, ...] = ()
    """Directed links that a fault of links concerns; empty: `links_of` derives them."""

    def __str__(self) -> str:
        extra = f" by {self.amount:.4g}" if self.amount else ""
        return f"{self.kind} {' '.join(self.nodes)}{extra} at {self.at_ms} for {self.for_ms} ms"

    def touches(self, nodes: Sequence[str]) -> bool:
        """Whether one of these nodes is a target; halves concern every node."""
        return self.kind == "halves" or any(node in nodes for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """The form that `from_json` reads: time, fault, target and parameters."""
        parameters: dict[str, Any] = {}
        if unit := FAULTS[self.kind].unit:
            parameters[unit] = self.amount
        if self.links:
            parameters["links"] = [list(link) for link in self.links]
        return {
            "at_ms": self.at_ms,
            "for_ms": self.for_ms,
            "fault": self.kind,
            "target": list(self.nodes),
            "parameters": parameters,
        }

    @classmethod
    def from_json(cls, document: Any) -> Fault:
        """A fault of a plan. InputError for any other form, or a kind that is not in `FAULTS`."""
        try:
            kind, parameters = str(document["fault"]), document.get("parameters", {})
            unit = FAULTS[kind].unit
            return cls(
                kind,
                int(document["at_ms"]),
                int(document.get("for_ms", 0)),
                tuple(map(str, document["target"])),
                float(parameters.get(unit, 0.0)),
                tuple((str(a), str(b)) for a, b in parameters.get("links", ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"no fault of a plan: {document!r} ({error!r}): it needs at_ms, target, and a "
                f"fault of {', '.join(FAULTS)}"
            ) from None


Plan = tuple[Fault, ...]


def plan_from_json(document: Any) -> Plan:
    """A plan from a list of faults, in order of their times. InputError."""
    if not isinstance(document, list):
        raise InputError("no plan: a plan is a list of faults")
    return tuple(sorted(map(Fault.from_json, document), key=lambda fault: fault.at_ms))


def packages_of(plan: Plan, *, simulated: bool = False) -> tuple[str, ...]:
    """The packages of `jepsen test --nemesis` that a plan uses.

    InputError for kinds that only simulated machines have, unless it is for those.
    """
    packages = {fault.kind: FAULTS[fault.kind].package for fault in plan}
    for kind, package in packages.items():
        if not (package or simulated):
            raise InputError(f"{kind}: only machines of the simulator (--env sim) have this fault")
    return tuple(dict.fromkeys(filter(None, packages.values())))


def moments(plan: Sequence[Fault]) -> Iterator[tuple[int, int, bool]]:
    """(time, place in the plan, whether the fault begins) in order; ends come before begins."""
    found = [(fault.at_ms, 1, number) for number, fault in enumerate(plan)]
    found += [(fault.at_ms + fault.for_ms, 0, number) for number, fault in enumerate(plan)]
    return ((at_ms, number, bool(begins)) for at_ms, begins, number in sorted(found))


def both_ways(some: Sequence[str], others: Sequence[str]) -> list[Link]:
    """The links between two groups, in both directions."""
    links = [(one, other) for one in some for other in others]
    return links + [(other, one) for one, other in links]


def links_of(fault: Fault, members: Sequence[str]) -> list[Link]:
    """The directed links that a fault concerns; none for faults of other things.

    `isolate` and `halves` cut the fault's nodes off from all other members. For `bridge` and
    `ring` the order of the nodes counts (`cut_links`).
    """
    if fault.links:
        return list(fault.links)
    nodes = fault.nodes
    match fault.kind:
        case "isolate" | "halves":
            return both_ways(nodes, [name for name in members if name not in nodes])
        case "pair" | "delay" | "loss":
            return both_ways(nodes[:1], nodes[1:])
        case "one_way" | "bandwidth" | "bridge" | "ring":
            return cut_links("one_way" if fault.kind == "bandwidth" else fault.kind, nodes)
    return []


def cut_links(kind: str, nodes: Sequence[str]) -> list[Link]:
    """The links that a partition of this kind cuts among the nodes, in the order given.

    ValueError for a kind that is no partition.
    """
    middle = len(nodes) // 2
    match kind:
        case "isolate":
            return both_ways(nodes[:1], nodes[1:])
        case "halves":
            return both_ways(nodes[:middle], nodes[middle:])
        case "bridge":
            # The node in the middle reaches both halves, which do not reach each other.
            return both_ways(nodes[:middle], nodes[middle + 1 :])
        case "ring":
            # Each reaches its neighbours only: majorities overlap, and no two are the same.
            count = len(nodes)
            far = [
                (one, other)
                for at, one in enumerate(nodes)
                for to, other in enumerate(nodes)
                if min((at - to) % count, (to - at) % count) > max(1, count // 4)
            ]
            return far or both_ways(nodes[:1], nodes[1:2])
        case "one_way":
            return [(nodes[0], other) for other in nodes[1:]]
        case "pair":
            return both_ways(nodes[:1], nodes[1:2])
    raise ValueError(f"no partition {kind}")


# --- a plan as operations of the nemesis ----------------------------------------------------------


def planned(plan: Plan, members: Sequence[str]) -> Generator:
    """The nemesis' operations that perform a plan, each at its time.

    An operation that takes longer than the time to the next one delays that one.
    """
    steps: list[Generator] = []
    for at_ms, number, begins in moments(plan):
        todos = (begin_of if begins else end_of)(plan[number], members)
        steps += [Once(todo.at(at_ms * MS_NS)) for todo in todos]
    return nemesis(Then(tuple(steps))) if steps else NOTHING


def begin_of(fault: Fault, members: Sequence[str]) -> list[Todo]:
    """The operations that begin a fault; one a node for faults of disks."""
    if FAULTS[fault.kind].package == "disk":
        amount = [fault.amount] if fault.amount else []
        return [Todo("break-disk", [node, fault.kind, *amount]) for node in fault.nodes]
    return [_begin_of(fault, members)]


def _begin_of(fault: Fault, members: Sequence[str]) -> Todo:
    nodes, package = list(fault.nodes), FAULTS[fault.kind].package
    role = nodes[0] if len(nodes) == 1 and nodes[0] in TARGET_ROLES else ""
    match package:
        case "restart":
            return Todo("stop" if fault.for_ms else "restart", role or nodes)
        case "partition":
            return Todo("partition", f"{fault.kind}-{role}" if role else _cut(fault, members))
        case "slow":
            return Todo("slow", _slowed(fault, members))
        case "clock":
            return Todo("skew", role or [[node, round(fault.amount)] for node in nodes])
        case "reassign":
            return Todo("reassign", [round(fault.amount), [int(node) for node in nodes]])
        case "features":
            return Todo("lower-feature", [nodes[0], round(fault.amount)])
        case "certificates":
            return Todo("renew-certificates", role or [round(fault.amount) or 1, nodes])
        case "":
            return Todo("inject", [fault.kind, nodes, fault.amount])
    return Todo(PACKAGES[package].begin, role or nodes)


def end_of(fault: Fault, members: Sequence[str]) -> list[Todo]:
    """The operations that end a fault; none if it ends by itself.

    Their value says which fault ends where others of the package may last longer; None: all.
    """
    if not fault.for_ms:
        return []
    role = fault.nodes[0] in TARGET_ROLES
    match FAULTS[fault.kind].package:
        case "kill" | "restart":
            return [Todo("start", None if role else list(fault.nodes))]
        case "pause":
            return [Todo("resume", None if role else list(fault.nodes))]
        case "partition":
            return [Todo("heal", None if role else _cut(fault, members))]
        case "slow":
            return [Todo("restore", _slowed(fault, members))]
        case "clock":
            skewed = [[node, round(fault.amount)] for node in fault.nodes]
            return [Todo("unskew", None if role else skewed)]
        case "disk":
            return [Todo("mend-disk", [node, fault.kind]) for node in fault.nodes]
        case "":
            return [Todo("relieve", [fault.kind, list(fault.nodes)])]
        case package:
            # Of all other packages, the end repairs every fault of the package at once.
            end = PACKAGES[package].end
            return [Todo(end)] if end else []


def _cut(fault: Fault, members: Sequence[str]) -> list[Any]:
    return [fault.kind, [list(link) for link in links_of(fault, members)]]


def _slowed(fault: Fault, members: Sequence[str]) -> list[Any]:
    quality = [fault.amount if fault.kind == kind else 0 for kind in QUALITIES]
    return [quality, [list(link) for link in links_of(fault, members)]]


# --- a plan from a history ------------------------------------------------------------------------


def performed(history: Iterable[Op]) -> Plan:
    """The faults that struck in a test, as a plan that repeats them.

    A fault that never ended lasts to the last line.
    """
    found: list[Fault] = []
    active: dict[str, list[int]] = {}
    """By package, or by kind and nodes for those that end alone."""
    relieved: list[str] = []
    invoked_ms, last_ms = 0, 0
    for op in history:
        last_ms = op.time // MS_NS
        if op.process != NEMESIS:
            continue
        if op.type is OpType.INVOKE:
            invoked_ms = last_ms
            # The completion does not say which fault has ended.
            relieved = [str(op.value)] if op.f == "relieve" else []
            continue
        ended = tuple(active) if op.f == HEAL else (*relieved, *_ENDED_BY.get(op.f, ()))
        for name in ended:
            _end(found, active.pop(name, ()), invoked_ms)
        for fault in _begun_by(op, invoked_ms):
            package = FAULTS[fault.kind].package
            if op.f == "inject":
                active.setdefault(str([fault.kind, list(fault.nodes)]), []).append(len(found))
            elif PACKAGES[package].end or op.f == "stop":
                active.setdefault(package, []).append(len(found))
            found.append(fault)
    for numbers in active.values():
        _end(found, numbers, last_ms)
    return tuple(found)


_ENDED_BY: Mapping[str, tuple[str, ...]] = {
    **{one.end: (name,) for name, one in PACKAGES.items() if one.end},
    "start": ("kill", "restart"),
    # A random partition, slow link or skew replaces the one before.
    "partition": ("partition",),
    "slow": ("slow",),
    "skew": ("clock",),
}


def _end(found: list[Fault], numbers: Iterable[int], at_ms: int) -> None:
    for number in numbers:
        found[number] = replace(found[number], for_ms=max(1, at_ms - found[number].at_ms))


def _begun_by(op: Op, at_ms: int) -> Iterator[Fault]:
    """The faults that an operation has begun; none where it failed or had no target."""
    if not isinstance(op.value, list | tuple) or not op.value:
        return
    match op.f, op.value:
        case "partition", [str(kind), links] if links:
            shape = kind.split("-")[0]
            nodes = (links[0][0],) if shape == "isolate" else _ends_of(links)
            yield Fault(shape, at_ms, 0, nodes, 0.0, tuple((a, b) for a, b in links))
        case "slow", [quality, links] if links:
            kind, amount = next((k, a) for k, a in zip(QUALITIES, quality, strict=True) if a)
            yield Fault(kind, at_ms, 0, _ends_of(links), amount, tuple((a, b) for a, b in links))
        case "skew", skewed:
            for node, by_ms in skewed:
                yield Fault("clock_skew", at_ms, 0, (node,), by_ms)
        case "break-disk", [node, kind, *amount]:
            yield Fault(kind, at_ms, 0, (node,), *amount)
        case "inject", [kind, nodes, amount]:
            yield Fault(kind, at_ms, 0, tuple(nodes), amount)
        case "reassign", [partition, replicas]:
            yield Fault("reassign", at_ms, 0, tuple(map(str, replicas)), partition)
        case "renew-certificates", [authority, nodes]:
            yield Fault(CERTIFICATE, at_ms, 0, tuple(nodes), authority)
        case "lower-feature", [feature, level]:
            yield Fault("feature", at_ms, 0, (feature,), level)
        case f, nodes if f in _OF_NODES:
            yield Fault(_OF_NODES[f], at_ms, 0, tuple(nodes))


def _ends_of(links: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The nodes at the ends of links, each once."""
    return tuple(dict.fromkeys(node for link in links for node in link))


_OF_NODES = {
    PACKAGES[one.package].begin: kind
    for kind, one in FAULTS.items()
    if one.package and one.package not in _ANOTHER_FORM
} | {"stop": "stop"}
"""Operations whose value is a list of nodes, and the kind of the fault."""


# --- a smaller run --------------------------------------------------------------------------------


def smallest(
    count: int, fails: Callable[[Places, int], bool], operations: int = 0
) -> tuple[Places, int]:
    """The places of a plan of `count` faults, and the number of operations, that still fail.

    `fails` repeats the run with the faults at these places only and at most that many operations
    a client; it is called at most RUNS_MAX times. Large pieces of the plan are left out first,
    single faults last (delta debugging). Then `operations` are halved, and fewer of them may need
    fewer faults. 0 operations: their number stays as it is. Returns what was given if every
    smaller run passes.
    """
    tried: dict[tuple[Places, int], bool] = {}

    def still_fails(some: Places, few: int) -> bool:
        if (some, few) not in tried:
            if len(tried) == RUNS_MAX:
                return False
            tried[some, few] = fails(some, few)
        return tried[some, few]

    places = _fewest(tuple(range(count)), partial(still_fails, few=operations))
    fewer = operations
    while fewer > 1 and still_fails(places, fewer // 2):
        fewer //= 2
    if fewer < operations:
        places = _fewest(places, partial(still_fails, few=fewer))
    return places, fewer


def _fewest(places: Places, fails: Callable[[Places], bool]) -> Places:
    if fails(()):
        return ()
    piece = max(len(places) // 2, 1)
    while places:
        for start in range(0, len(places), piece):
            fewer = places[:start] + places[start + piece :]
            if fewer and fails(fewer):
                places = fewer
                break
        else:
            if piece == 1:
                break
            piece //= 2
        piece = min(piece, max(len(places) // 2, 1))
    return places
