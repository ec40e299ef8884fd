"""The primitives of faults on simulated machines, and of those that only such machines can have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.environments import Machines, Quality
from jepsen.nemesis.plan import Fault
from jepsen.simulator.faults._plan import ON_DISKS, PROCESS_KINDS
from jepsen.simulator.network import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jepsen.environments import Link as LinkName
    from jepsen.simulator.faults._disk_faults import DiskFaults
    from jepsen.simulator.network import Flow
    from jepsen.simulator.world import World


class SimMachines(Machines):
    """The machines of a world's members, and their links."""

    def __init__(
        self,
        world: World,
        *,
        start: Callable[[str], None],
        power_off: Callable[[str], None],
        guard: Callable[[Fault], bool] = lambda _: True,
        disks: DiskFaults | None = None,
        terminate_s: float = 0.0,
    ) -> None:
        """`start` begins a node's next life; `guard` may refuse a loss of power when it is time.

        Without `disks` faults of disks are impossible. A node that ends has `terminate_s`; with 0
        `terminate` does not wait, and the node has until it is to start again.
        """
        self._world = world
        self._start = start
        self._power_off = power_off
        self._guard = guard
        self._disks = disks
        self._terminate_s = terminate_s
        self._blocked: Iterable[LinkName] = ()
        self._degraded: Iterable[LinkName] = ()
        self._offsets_ms: Mapping[str, int] = {}
        self._active: list[Fault] = []
        """The faults that began by `inject`, oldest first."""
        self._forgotten: dict[Fault, list[list[Flow]]] = {}
        """Of each fault, in the order in which equal ones began."""
        """The connections that each fault has made half open."""

    def may_begin(self, fault: Fault) -> bool:
        """Return True if a fault makes sense now: a process has to run, and a disk to be sound."""
        if fault.kind in ON_DISKS:
            return self._disks is not None and self._disks.may_begin(fault)
        return fault.kind not in PROCESS_KINDS or all(map(self._runs, fault.nodes))

    def _runs(self, node: str) -> bool:
        process = self._world.node(node).process
        return process is not None and process.running

    # --- processes --------------------------------------------------------------------------------

    async def kill(self, node: str) -> None:
        if self._world.node(node).process is not None:
            self._world.kill(node)

    async def terminate(self, node: str) -> None:
        process = self._world.node(node).process
        if process is None or not process.running:
            return
        self._world.terminate(node)
        if self._terminate_s:
            done, _ = await asyncio.wait([process.done], timeout=self._terminate_s)
            if not done:
                self._world.kill(node)

    async def start_node(self, node: str) -> None:
        process = self._world.node(node).process
        if process is not None and process.terminating:
            self._world.kill(node)
        if self._world.node(node).process is None:
            self._start(node)

    async def pause(self, node: str) -> None:
        if self._runs(node):
            self._world.pause(node)

    async def resume(self, node: str) -> None:
        if self._world.node(node).process is not None:
            self._world.resume(node)

    # --- links and clocks -------------------------------------------------------------------------

    async def set_blocked(self, links: Sequence[LinkName]) -> None:
        before, self._blocked = self._blocked, list(links)
        for link in links:
            if link not in before:
                self._world.network.block(*link)
        for link in before:
            if link not in links:
                self._world.network.unblock(*link)

    async def set_quality(self, qualities: Mapping[LinkName, Quality]) -> None:
        """See `Machines`; a delay is the mean of what a link adds to its least latency."""
        usual = Link().latency_extra_mean_ms
        before, self._degraded = self._degraded, list(qualities)
        for name in dict.fromkeys([*before, *qualities]):
            quality = qualities.get(name, Quality())
            link = self._world.network.link(*name)
            link.latency_extra_mean_ms = quality.delay_ms or usual
            link.loss = quality.loss
            link.bytes_per_s = quality.bytes_per_s

    async def set_clocks(self, offsets_ms: Mapping[str, int]) -> None:
        before, self._offsets_ms = self._offsets_ms, dict(offsets_ms)
        for name in dict.fromkeys([*before, *offsets_ms]):
            self._world.node(name).clock_offset_ms = offsets_ms.get(name, 0)

    # --- machines and disks -----------------------------------------------------------------------

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        if amount is None:
            amount = self._world.random.random()
        fault = Fault(kind, 0, 0, tuple(nodes), amount)
        if not self.may_begin(fault):
            return False
        self._active.append(fault)
        if self._disks is not None and kind in ON_DISKS:
            self._disks.begin(fault)
        self._disturb_link(fault)
        for name in nodes:
            self._disturb(fault, name)
        return True

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        same = (one for one in self._active if (one.kind, one.nodes) == (kind, tuple(nodes)))
        fault = next(same, None)
        if fault is None:
            return
        self._active.remove(fault)
        if self._disks is not None and kind in ON_DISKS:
            self._disks.end(fault)
        for name in nodes:
            self._repair(fault, name)
        self._restore_link(fault)

    def _disturb_link(self, fault: Fault) -> None:
        network = self._world.network
        match fault.kind:
            case "reset":
                network.link(*fault.nodes).reset_every(int(fault.amount))
            case "half_open":
                one, other = map(self._world.node, fault.nodes)
                flows = network.forget_between(one, other)
                self._forgotten.setdefault(fault, []).append(flows)

    def _restore_link(self, fault: Fault) -> None:
        match fault.kind:
            case "reset":
                link = {*fault.nodes}
                others = (
                    int(one.amount)
                    for one in self._active
                    if one.kind == fault.kind and {*one.nodes} == link
                )
                self._world.network.link(*fault.nodes).reset_every(next(others, None))
            case "half_open":
                for flow in self._forgotten[fault].pop(0):
                    flow.refuse()

    def _disturb(self, fault: Fault, name: str) -> None:
        disk = self._world.node(name).disk
        match fault.kind:
            case "power_off":
                self._power_off(name)
            case "power_cut":
                self._world.cut_power_within(
                    name,
                    int(fault.amount),
                    power_off=self._power_off,
                    may=lambda: self._guard(fault),
                )
            case "stall":
                self._stall(fault, name)
            case "suspend":
                self._world.suspend(name)
            case "clock_rate":
                self._world.set_clock_rate(name, fault.amount)
            case "slow_disk":
                disk.slowness = fault.amount
            case "slow_io":
                disk.slow_call_s = fault.amount / 1000
            case "hung_writes" | "hung_disk":
                disk.hang(fault.kind)

    def _repair(self, fault: Fault, name: str) -> None:
        node, disk = self._world.node(name), self._world.node(name).disk
        if fault.kind == "power_cut":
            disk.spare()
        match fault.kind:
            case "power_off" | "power_cut":
                if node.process is None:
                    self._start(name)
            case "stall":
                self._world.unstall(name)
            case "suspend":
                self._world.wake(name)
            case "clock_rate":
                self._world.set_clock_rate(name, 1.0)
            case "slow_disk":
                disk.slowness = 1.0
            case "slow_io" | "hung_writes" | "hung_disk":
                disk.heal()

    def _stall(self, fault: Fault, name: str) -> None:
        """Hold the process up as long as it may go on afterwards, while the fault lasts."""
        if fault not in self._active:
            return
        seconds = fault.amount / 1000
        if self._runs(name):
            self._world.stall(name, seconds)
        asyncio.get_running_loop().call_later(2 * seconds, self._stall, fault, name)
