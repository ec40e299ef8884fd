"""Faults of a simulated cluster: a plan drawn from the seed, and the nemesis that performs it.

A plan is a tuple of faults (`jepsen.nemesis.plan`), that is, data. A failing run can therefore
be repeated with some of them left out (`runner`). Faults overlap. Quiet windows between bursts
let the cluster recover, because some bugs only show then. A fault that makes no sense when its
time comes, or that the scenario's guard refuses, is skipped.

Kinds: processes (kill, stop, pause, stall), machines (power_off, power_cut, suspend, wipe),
links (one_way, pair, isolate, halves, reset, half_open, bandwidth, delay), clocks (clock_skew,
clock_rate) and disks (errors, full disks, hanging and slow calls, flipped bits). The table of
kinds is in `_plan`; a kind that the harness has too has the same name (decision 22).

What nodes owe in return is checked here only for disks. A node stops on a disk error; a node
whose metadata is damaged refuses to start and names the file; a broker outlives its second log
directory.

Invariants:
* The same seed makes the same plan, whatever the cluster does with it.
* Every fault ends: when a run is over all links, clocks and disks are sound again.
* Only the guard of a scenario knows how many members may be down at once.
"""

from jepsen.simulator.faults._disk_faults import DiskFaults
from jepsen.simulator.faults._machines import SimMachines
from jepsen.simulator.faults._nemesis import PlannedNemesis
from jepsen.simulator.faults._plan import (
    ALL_KINDS,
    FAULT_MS_MAX,
    FILLING,
    Draws,
    plan_directory_faults,
    plan_faults,
    plan_filling_disks,
    plan_power_cuts,
)

__all__ = [
    "ALL_KINDS",
    "FAULT_MS_MAX",
    "FILLING",
    "DiskFaults",
    "Draws",
    "PlannedNemesis",
    "SimMachines",
    "plan_directory_faults",
    "plan_faults",
    "plan_filling_disks",
    "plan_power_cuts",
]
