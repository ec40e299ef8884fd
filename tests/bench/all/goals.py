"""What figures should come to, as data, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.bench.figures import OVERLOADED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RATIO = "_ratio"
OURS = "raftctl"
PEERS = {"kafka": "Apache Kafka", "etcd": "etcd", "porcupine": "Porcupine"}


class Better(StrEnum):
    """Which way a figure should go."""

    HIGHER = "at least"
    LOWER = "at most"


class State(StrEnum):
    """What became of a goal."""

    MET = "met"
    MISSED = "missed"
    OVERLOADED = "no ratio"
    ABSENT = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure and its bound."""

    label: str
    figure: str
    """Its name in the JSON; that of a ratio ends with `_ratio`, and the values of both stand
    beside it."""
    unit: str
    bound: float
    better: Better
    part: str
    """Of `parts.PARTS`, which measures it."""

    def __str__(self) -> str:
        return f"{self.better} {self.bound:g} {self.unit}"


class Outcome(NamedTuple):
    """A goal beside what was measured."""

    goal: Goal
    state: State
    value: float | None
    said: str
    """Why there is no value, if a peer was overloaded."""

    def __str__(self) -> str:
        value = self.said if self.value is None else f"{self.value:g} {self.goal.unit}"
        return f"{self.state}: {self.goal.label}: {value} (goal: {self.goal})"

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON."""
        goal = self.goal
        return {
            "label": goal.label,
            "figure": goal.figure,
            "unit": goal.unit,
            "goal": goal.bound,
            "better": "higher" if goal.better is Better.HIGHER else "lower",
            "part": goal.part,
            "value": self.value,
            "state": str(self.state),
            **({OVERLOADED: self.said} if self.said else {}),
        }


def outcome(goal: Goal, figures: Mapping[str, Any]) -> Outcome:
    """What became of a goal."""
    found = figures.get(goal.figure)
    if found is None:
        return Outcome(goal, State.ABSENT, None, "")
    if OVERLOADED in found:
        return Outcome(goal, State.OVERLOADED, None, found[OVERLOADED])
    value = float(found["median"])
    met = value >= goal.bound if goal.better is Better.HIGHER else value <= goal.bound
    return Outcome(goal, State.MET if met else State.MISSED, value, "")


def beside(figure: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a ratio relates, by peer; of any other name the figure alone."""
    name = figure.removesuffix(RATIO)
    if name == figure:
        return {OURS: figures[figure]} if figure in figures else {}
    found = {peer: figures.get(f"{name}_{peer}") for peer in (OURS, *PEERS)}
    return {peer: of for peer, of in found.items() if of is not None}


def _ratio(label: str, figure: str, bound: float, better: Better, part: str) -> Goal:
    return Goal(label, figure + RATIO, "x", bound, better, part)


def _produce() -> Iterator[Goal]:
    sizes = {100: 1.5, 1 << 10: 2.0, 10 << 10: 2.0, 100 << 10: 1.5, 1 << 20: 1.2}
    for size, bound in sizes.items():
        label = f"produce, acks=all, records of {_bytes(size)}"
        name = f"produce_{size}_B"
        yield _ratio(label, name, bound, Better.HIGHER, "brokers")
        yield _ratio(f"{label}: processor time", f"{name}_cpu", 0.7, Better.LOWER, "brokers")


def _consume() -> Iterator[Goal]:
    for where, called in (("cached", "the page cache"), ("cold", "the disk")):
        for suffix, consumers in (("", "one consumer"), ("_4", "four consumers")):
            label, name = f"consume from {called}, {consumers}", f"consume_{where}{suffix}"
            yield _ratio(label, name, 1.2, Better.HIGHER, "brokers")
            yield _ratio(f"{label}: processor time", f"{name}_cpu", 0.7, Better.LOWER, "brokers")


def _paced() -> Iterator[Goal]:
    for rate in (100, 500, 1000, 2000):
        label = f"end to end at {rate:,} records/s"
        yield _ratio(f"{label}, median", f"paced_{rate}_p50", 0.9, Better.LOWER, "brokers")
        yield _ratio(f"{label}, p99", f"paced_{rate}_p99", 0.3, Better.LOWER, "brokers")
    for rate in (100, 1000, 4000):
        label = f"processor time of a record at {rate:,}/s"
        yield _ratio(label, f"paced_{rate}_cpu", 0.6, Better.LOWER, "brokers")


def _puts() -> Iterator[Goal]:
    for size in (256, 16 << 10):
        for outstanding in (1, 16, 64, 256, 1024):
            bound = 8 if (outstanding, size) == (256, 256) else 1
            label = f"puts/s of {_bytes(size)}, {outstanding:,} outstanding"
            name = f"puts_{outstanding}_of_{size}_B"
            yield _ratio(label, name, bound, Better.HIGHER, "puts")
    yield _ratio("one put at a time", "puts_1_of_256_B_time", 0.9, Better.LOWER, "puts")


def _groups() -> Iterator[Goal]:
    yield _ratio("commits of one coordinator", "commits", 1.2, Better.HIGHER, "groups")
    yield _ratio("commits of all coordinators", "commits_all", 1.2, Better.HIGHER, "groups")
    for producers in (1, 8):
        label = f"transactional produce, producers: {producers}"
        yield _ratio(label, f"transactions_{producers}", 2, Better.HIGHER, "groups")
    for prefix, members, part in (("", 20, "groups"), ("members_200_", 200, "members")):
        for protocol, bound in (("classic", 0.7), ("consumer", 0.5)):
            label = f"rebalance of {members} members, protocol {protocol}"
            yield _ratio(label, f"{prefix}rebalance_{protocol}", bound, Better.LOWER, part)
    yield _ratio("loading 1,000,000 offsets", "load", 0.6, Better.LOWER, "loading")
    label = "longest wait of others while offsets are loaded"
    yield Goal(label, "load_longest_wait_raftctl", "ms", 50, Better.LOWER, "loading")


def _alone() -> Iterator[Goal]:
    lower = Better.LOWER
    yield Goal("processor time of idle 3+3 nodes", "idle_cpu", "% of a core", 1.5, lower, "idle")
    yield Goal("wakes of an idle node, the busiest", "idle_wakes", "1/s", 20, lower, "idle")
    yield Goal("memory of an idle node, the largest", "idle_memory", "MiB", 60, lower, "idle")
    yield Goal("start to the first acknowledged record", "start_raftctl", "s", 1.5, lower, "start")
    many = "10,000 partitions a broker"
    for label, name, unit, bound in (
        ("all logs made", "hosted", "s", 15),
        ("idle, all brokers", "idle", "% of a core", 30),
        ("restart after kill -9", "restart", "s", 10),
    ):
        figure = f"partitions_10000_{name}_raftctl"
        yield Goal(f"{many}: {label}", figure, unit, bound, lower, "partitions")
    label = "2,000,000 partitions: longest stall of a loop"
    yield Goal(label, "scale_2000000_stall", "ms", 50, lower, "scale")
    yield Goal("a simulated hour of 3+3 nodes", "simulated_hour", "s", 20, lower, "simulator")
    label = "simulated seeds a minute (200 in 45 s)"
    yield Goal(label, "simulator_seeds", "1/min", 267, Better.HIGHER, "simulator")
    label = "linearizability of 1,000,000 operations on many keys"
    yield _ratio(label, "many_keys_valid", 1, lower, "checker")
    label = "connections of 10,000 that were refused"
    yield Goal(label, "connections_10000_refused_raftctl", "", 0, lower, "brokers")


def _bytes(size: int) -> str:
    if size >= 1 << 20:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


GOALS: tuple[Goal, ...] = (
    *_puts(),
    *_produce(),
    *_consume(),
    *_paced(),
    *_groups(),
    *_alone(),
)
