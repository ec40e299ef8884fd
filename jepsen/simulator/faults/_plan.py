"""A plan of faults: what goes wrong in a run and when, as data that follows from the seed.

A plan is a tuple of faults (`jepsen.nemesis.plan.Fault`), so that a failing run can be repeated
with some of them left out (`jepsen.simulator.cuts`). Faults overlap; the windows between bursts
let the cluster recover, since some bugs show only when it does.

kill          the process ends as by SIGKILL; the disk keeps what was written
power_off     the machine stops; what was not synced may be lost or torn
power_cut     the machine stops after so many operations on its disk: in the middle of a call
stop          the process is asked to end, as by SIGTERM, and killed when its time is over
pause         the process stands still as by SIGSTOP, its timers and sockets wait
stall         one step of the process's event loop after the other takes long, as with a collection
              of garbage; its threads go on, and all that came meanwhile is handled at once
suspend       the machine is suspended: its monotonic clock stands still, CLOCK_BOOTTIME goes on
one_way       what the first node sends does not reach the second
isolate       the node and all other members do not reach each other
halves        the named members and the others do not reach each other
pair          the two do not reach each other, all others do: majorities overlap, but differ
reset         again and again, in the middle of what the first node sends to the second, the
              connection is reset; both hear of it, or only one of them
half_open     the network forgets the connections between the two nodes: neither notices, and
              what is sent on them is lost; new ones work; when it ends the old ones are refused
bandwidth     the first node's link to the second carries only so many bytes a second
delay         both directions between two nodes get a long latency
slow_disk     every sync takes many times as long
slow_io       some reads and writes take long; on the event loop they hold it up
hung_writes   what the node writes, syncs or names hangs until the fault is over
hung_disk     so does what it reads
clock_skew    the node's wall clock is off
clock_rate    the node's other clocks go faster or slower
sync_error    an fsync of the node fails, after which its disk forgets what was to be synced
write_error   the node's disk takes no writes any more
disk_full     the node's disk is full
disk_fills    the node's disk is full after so many bytes more, in the midst of a write; after an
              odd number there is space again once that has failed
bit_flip      a bit flips in what a node that is started reads of the metadata
bit_rot       a bit flips under the node while it runs, in a file that is complete: a closed
              segment, its index, or a snapshot
wipe          the node's machine comes back with an empty disk
directory_dies, directory_sync_error, directory_full, directory_fills
              the disk under a broker's second log directory fails; the broker lives on, and is
              started again when that disk is well

A kill, power_off or pause may strike all members of one role at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import Fault
from jepsen.simulator.disk import HANGING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

BURST_FAULTS_MAX = 4
BURST_MS = 3_000
FAULT_MS_MIN = 200
FAULT_MS_MAX = 4_000
QUIET_MS_MAX = 4_000
SLOW_MS_MAX = 400.0
CLOCK_MS_MAX = 120_000
CLOCK_RATE_ERROR_MAX = 0.05
"""Two clocks that differ by twice as much still differ by less than leases allow for."""
STALL_MS_MIN = 5.0
STALL_MS_MAX = 3_000.0
RESET_BYTES_MIN = 20
RESET_BYTES_MAX = 20_000
NARROW_BYTES_MIN = 30_000.0
NARROW_BYTES_MAX = 300_000.0
SLOW_DISK_TIMES_MAX = 400.0
SLOW_IO_MS_MIN = 1.0
SLOW_IO_MS_MAX = 500.0
WHOLE_GROUP_CHANCE = 0.15
KINDS = {
    "kill": 5,
    "power_off": 3,
    "stop": 3,
    "pause": 4,
    "stall": 3,
    "suspend": 3,
    "one_way": 3,
    "isolate": 4,
    "halves": 2,
    "pair": 2,
    "reset": 3,
    "half_open": 2,
    "bandwidth": 1,
    "delay": 2,
    "slow_disk": 2,
    "slow_io": 2,
    "hung_writes": 2,
    "hung_disk": 2,
    "clock_skew": 1,
    "clock_rate": 2,
}
"""Each kind with its weight."""
LINK_KINDS = ("one_way", "isolate", "halves", "pair", "reset", "half_open", "bandwidth")
PROCESS_KINDS = ("kill", "power_off", "stop", "pause", "stall", "suspend")
WAIT_KINDS = ("slow_io", *HANGING)
PAIR_KINDS = ("one_way", "pair", "delay", "reset", "half_open", "bandwidth")
DISK_KINDS = {
    "sync_error": 3,
    "write_error": 2,
    "disk_full": 2,
    "bit_flip": 4,
    "bit_rot": 3,
    "wipe": 1,
}
"""Each kind of fault of disks with its weight; see `_disk_faults`."""
DISK_FAULTS_MAX = 2
DISKS_FAIL_CHANCE = 0.6
DIRECTORY_KINDS = {"directory_dies": 2, "directory_sync_error": 2, "directory_full": 1}
"""Each kind of fault of log directories with its weight."""
FILLING = ("disk_fills", "directory_fills")
FILLING_SHARE = 0.5
FILLING_MAX = 3
FILLS_AFTER_BYTES_MIN = 1
FILLS_AFTER_BYTES_MAX = 20_000
DIRECTORY_FAULTS_MAX = 3
POWER_CUTS_SHARE = 0.5
POWER_CUTS_MAX = 4
POWER_CUT_OPERATIONS_MAX = 12
"""A flush takes two to ten or so, a snapshot as many; the next call begins where one ends."""
ON_DIRECTORIES = (*DIRECTORY_KINDS, "directory_fills")
ON_DISKS = (*DISK_KINDS, *DIRECTORY_KINDS, *FILLING)
ALL_KINDS = (*KINDS, *DISK_KINDS, *DIRECTORY_KINDS, "power_cut", *FILLING)
"""Whatever a plan that nobody wrote may have."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The kinds of faults that are on, and the time one may last."""

    kinds: frozenset[str] = frozenset(ALL_KINDS)
    ms_max: int = FAULT_MS_MAX

    def kind(self, source: random.Random, weights: Mapping[str, int]) -> str | None:
        """Draw one of those kinds that is on; None if all are off."""
        on = {kind: weight for kind, weight in weights.items() if kind in self.kinds}
        return source.choices(list(on), list(on.values()))[0] if on else None

    def for_ms(self, source: random.Random) -> int:
        """Draw the time that one lasts."""
        return source.randint(FAULT_MS_MIN, self.ms_max)


EVERYTHING = Draws()


def plan_faults(
    source: random.Random,
    groups: Sequence[Sequence[str]],
    duration_ms: int,
    draws: Draws = EVERYTHING,
) -> tuple[Fault, ...]:
    """Draw faults for members in groups of one role each, in order of their times.

    Rings and slow links are laid within a group more often than across.
    """
    faults: list[Fault] = []
    begin_ms = source.randint(0, 500)
    while begin_ms < duration_ms:
        for _ in range(source.randint(1, BURST_FAULTS_MAX)):
            at_ms = begin_ms + source.randrange(BURST_MS)
            if at_ms < duration_ms and (fault := _one_fault(source, groups, at_ms, draws)):
                faults.append(fault)
        begin_ms += BURST_MS + source.randrange(QUIET_MS_MAX)
    faults += _disk_faults(source, groups, duration_ms, draws)
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _disk_faults(
    source: random.Random, groups: Sequence[Sequence[str]], duration_ms: int, draws: Draws
) -> Iterator[Fault]:
    """A few, in some of the plans: disks fail more seldom than processes and links."""
    if source.random() >= DISKS_FAIL_CHANCE:
        return
    members = _members(groups)
    for _ in range(source.randint(1, DISK_FAULTS_MAX)):
        kind = draws.kind(source, DISK_KINDS)
        if kind is None:
            return
        at_ms = source.randrange(duration_ms)
        for_ms = draws.for_ms(source)
        yield Fault(kind, at_ms, for_ms, (source.choice(members),), source.random())


def plan_directory_faults(
    source: random.Random, brokers: Sequence[str], duration_ms: int, draws: Draws = EVERYTHING
) -> tuple[Fault, ...]:
    """Draw a few faults of log directories, for brokers that have several."""
    faults = []
    for _ in range(source.randint(1, DIRECTORY_FAULTS_MAX)):
        kind = draws.kind(source, DIRECTORY_KINDS)
        if kind is not None:
            at_ms = source.randrange(duration_ms)
            faults.append(Fault(kind, at_ms, draws.for_ms(source), (source.choice(brokers),)))
    return tuple(faults)


def plan_power_cuts(
    source: random.Random, members: Sequence[str], duration_ms: int, draws: Draws = EVERYTHING
) -> tuple[Fault, ...]:
    """Draw a few losses of power during operations on a node's disk, in some of the plans."""
    if source.random() >= POWER_CUTS_SHARE or "power_cut" not in draws.kinds:
        return ()
    return tuple(
        Fault(
            "power_cut",
            source.randrange(duration_ms),
            draws.for_ms(source),
            (source.choice(members),),
            source.randrange(POWER_CUT_OPERATIONS_MAX),
        )
        for _ in range(source.randint(1, POWER_CUTS_MAX))
    )


def plan_filling_disks(
    source: random.Random,
    members: Sequence[str],
    second_of: Sequence[str],
    duration_ms: int,
    draws: Draws = EVERYTHING,
) -> tuple[Fault, ...]:
    """Draw a few disks that are full in the midst of a write, in some of the plans.

    `second_of`: the brokers that have a second log directory.
    """
    kinds = [kind for kind in FILLING if kind in draws.kinds and (kind != FILLING[1] or second_of)]
    if source.random() >= FILLING_SHARE or not kinds:
        return ()
    faults = []
    for _ in range(source.randint(1, FILLING_MAX)):
        kind = source.choice(kinds)
        name = source.choice(members if kind == "disk_fills" else second_of)
        room = round(_magnitude(source, FILLS_AFTER_BYTES_MIN, FILLS_AFTER_BYTES_MAX))
        at_ms = source.randrange(duration_ms)
        faults.append(Fault(kind, at_ms, draws.for_ms(source), (name,), room))
    return tuple(faults)


def _one_fault(
    source: random.Random, groups: Sequence[Sequence[str]], at_ms: int, draws: Draws
) -> Fault | None:
    members = _members(groups)
    kind = draws.kind(source, KINDS)
    if kind is None:
        return None
    for_ms = draws.for_ms(source)
    if kind in PAIR_KINDS:
        several = [group for group in groups if len(group) > 1]
        pool = source.choice([*several, *several, members])
        nodes = tuple(source.sample(list(pool), 2))
    elif kind == "halves":
        nodes = tuple(sorted(source.sample(members, len(members) // 2)))
    elif kind in PROCESS_KINDS and kind != "stop" and source.random() < WHOLE_GROUP_CHANCE:
        nodes = tuple(source.choice(groups))
    else:
        nodes = (source.choice(members),)
    return Fault(kind, at_ms, for_ms, nodes, _amount(source, kind))


def _members(groups: Sequence[Sequence[str]]) -> list[str]:
    """Everybody once, also who is of two roles."""
    return list(dict.fromkeys(name for group in groups for name in group))


def _amount(source: random.Random, kind: str) -> float:
    match kind:
        case "delay":
            return source.uniform(10, SLOW_MS_MAX)
        case "slow_disk":
            return source.uniform(10, SLOW_DISK_TIMES_MAX)
        case "slow_io":
            return _magnitude(source, SLOW_IO_MS_MIN, SLOW_IO_MS_MAX)
        case "clock_skew":
            return source.uniform(-CLOCK_MS_MAX, CLOCK_MS_MAX)
        case "clock_rate":
            return source.uniform(1 - CLOCK_RATE_ERROR_MAX, 1 + CLOCK_RATE_ERROR_MAX)
        case "stall":
            return _magnitude(source, STALL_MS_MIN, STALL_MS_MAX)
        case "reset":
            return round(_magnitude(source, RESET_BYTES_MIN, RESET_BYTES_MAX))
        case "bandwidth":
            return _magnitude(source, NARROW_BYTES_MIN, NARROW_BYTES_MAX)
    return 0.0


def _magnitude(source: random.Random, least: float, most: float) -> float:
    """Each order of magnitude as often as another."""
    return math.exp(source.uniform(math.log(least), math.log(most)))
