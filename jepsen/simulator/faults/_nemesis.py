"""The nemesis: injects the faults of a plan when their times come, and heals them.

A fault that makes no sense when its time comes (its node is down already), or that the scenario's
guard refuses, is skipped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import both_ways, moments
from jepsen.simulator.faults._plan import ON_DISKS, PROCESS_KINDS, blocked_links
from jepsen.simulator.network import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.nemesis.plan import Fault
    from jepsen.simulator.faults._disk_faults import DiskFaults
    from jepsen.simulator.network import Flow
    from jepsen.simulator.world import World


class Nemesis:
    """Does what a plan says to the members of a world, and undoes it."""

    def __init__(
        self,
        world: World,
        members: Sequence[str],
        *,
        start: Callable[[str], None],
        power_off: Callable[[str], None],
        guard: Callable[[Fault], bool],
        disks: DiskFaults | None = None,
        states: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """`start` begins a node's next life; `guard` may refuse a fault when its time comes.

        Without `disks` faults of disks are skipped. `states` says what a node is at, for the
        world's coverage.
        """
        self._world = world
        self._members = tuple(members)
        self._start = start
        self._power_off = power_off
        self._guard = guard
        self._disks = disks
        self._states = states
        self._blocked: Counter[tuple[str, str]] = Counter()
        self._forgotten: dict[int, list[Flow]] = {}
        """The connections that each fault has made half open."""
        self.active: dict[int, Fault] = {}
        """The faults that were done and are not undone yet, by their place in the plan."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """Goes through the plan; returns when the last fault is over."""
        began_s = asyncio.get_running_loop().time()
        for at_ms, number, begins in moments(faults):
            await asyncio.sleep(began_s + at_ms / 1000 - asyncio.get_running_loop().time())
            if begins:
                self._begin(number, faults[number])
            else:
                self._end(number)

    def heal(self) -> None:
        """Undoes what is left, and starts every member that does not run."""
        for number in list(self.active):
            self._end(number)
        for name in self._members:
            if self._world.node(name).process is None:
                self._start(name)

    def _begin(self, number: int, fault: Fault) -> None:
        processes = [self._world.node(name).process for name in fault.nodes]
        running = all(one is not None and one.running for one in processes)
        senseless = fault.kind in PROCESS_KINDS and not running
        if fault.kind in ON_DISKS:
            senseless = self._disks is None or not self._disks.may_begin(fault)
        # Whether power may be cut is for the guard to say when it is.
        if senseless or (fault.kind != "power_cut" and not self._guard(fault)):
            self._world.trace.add("-", "fault", f"{number} skipped: {fault}")
            return
        self._world.trace.add("-", "fault", f"{number} begins: {fault}")
        self.active[number] = fault
        for name in fault.nodes:
            for state in self._states(name):
                self._world.coverage.struck(fault.kind, state)
        if self._disks is not None and fault.kind in ON_DISKS:
            self._disks.begin(fault)
        for name in fault.nodes:
            self._strike(number, fault, name)
        self._strike_links(number, fault)
        for link in blocked_links(fault, self._members):
            self._blocked[link] += 1
            self._world.network.block(*link)

    def _strike_links(self, number: int, fault: Fault) -> None:
        network = self._world.network
        match fault.kind:
            case "delay":
                self._set_latency(fault, fault.amount)
            case "reset":
                network.link(*fault.nodes).reset_every(int(fault.amount))
            case "half_open":
                one, other = map(self._world.node, fault.nodes)
                self._forgotten[number] = network.forget_between(one, other)
            case "bandwidth":
                network.link(*fault.nodes).bytes_per_s = fault.amount

    def _relieve_links(self, number: int, fault: Fault) -> None:
        network = self._world.network
        match fault.kind:
            case "delay":
                self._set_latency(fault, None)
            case "reset":
                network.link(*fault.nodes).reset_every(None)
            case "half_open":
                for flow in self._forgotten.pop(number):
                    flow.refuse()
            case "bandwidth":
                network.link(*fault.nodes).bytes_per_s = None

    def _strike(self, number: int, fault: Fault, name: str) -> None:
        match fault.kind:
            case "kill":
                self._world.kill(name)
            case "power_off":
                self._power_off(name)
            case "power_cut":
                self._world.cut_power_within(
                    name,
                    int(fault.amount),
                    power_off=self._power_off,
                    may=lambda: self._guard(fault),
                )
            case "stop":
                self._world.terminate(name)
            case "pause":
                self._world.pause(name)
            case "stall":
                self._stall(number, fault, name)
            case "suspend":
                self._world.suspend(name)
            case "clock_rate":
                self._world.set_clock_rate(name, fault.amount)
            case "slow_disk" | "slow_io" | "hung_writes" | "hung_disk":
                self._slow_disk(fault, name)
            case "clock_skew":
                self._world.node(name).clock_offset_ms += round(fault.amount)

    def _end(self, number: int) -> None:
        fault = self.active.pop(number, None)
        if fault is None:
            return
        self._world.trace.add("-", "fault", f"{number} ends")
        if self._disks is not None and fault.kind in ON_DISKS:
            self._disks.end(fault)
        for name in fault.nodes:
            self._relieve(fault, name)
        self._relieve_links(number, fault)
        for link in blocked_links(fault, self._members):
            self._blocked[link] -= 1
            if not self._blocked[link]:
                self._world.network.unblock(*link)

    def _relieve(self, fault: Fault, name: str) -> None:
        node = self._world.node(name)
        if fault.kind == "power_cut":
            node.disk.spare()
        if fault.kind == "stop" and node.process is not None and node.process.terminating:
            self._world.kill(name)
        match fault.kind:
            case "kill" | "power_off" | "power_cut" | "stop":
                if node.process is None:
                    self._start(name)
            case "pause":
                if node.process is not None:
                    self._world.resume(name)
            case "stall":
                self._world.unstall(name)
            case "suspend":
                self._world.wake(name)
            case "clock_rate":
                self._world.set_clock_rate(name, 1.0)
            case "slow_disk" | "slow_io" | "hung_writes" | "hung_disk":
                self._quicken_disk(fault, name)
            case "clock_skew":
                node.clock_offset_ms -= round(fault.amount)

    def _slow_disk(self, fault: Fault, name: str) -> None:
        disk = self._world.node(name).disk
        if fault.kind == "slow_disk":
            disk.slowness = fault.amount
        elif fault.kind == "slow_io":
            disk.slow_call_s = fault.amount / 1000
        else:
            disk.hang(fault.kind)

    def _quicken_disk(self, fault: Fault, name: str) -> None:
        disk = self._world.node(name).disk
        if fault.kind == "slow_disk":
            disk.slowness = 1.0
        else:
            disk.heal()

    def _stall(self, number: int, fault: Fault, name: str) -> None:
        """Holds the process up as long as it may go on afterwards, while the fault lasts."""
        if self.active.get(number) is not fault:
            return
        process = self._world.node(name).process
        seconds = fault.amount / 1000
        if process is not None and process.running:
            self._world.stall(name, seconds)
        loop = asyncio.get_running_loop()
        loop.call_later(2 * seconds, self._stall, number, fault, name)

    def _set_latency(self, fault: Fault, mean_ms: float | None) -> None:
        for source, target in both_ways(fault.nodes[:1], fault.nodes[1:]):
            link = self._world.network.link(source, target)
            link.latency_extra_mean_ms = (
                Link().latency_extra_mean_ms if mean_ms is None else mean_ms
            )
