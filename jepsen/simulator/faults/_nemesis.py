"""The nemesis of a scenario: the harness's, with a plan, a guard and the faults that it may refuse.

A fault that makes no sense when its time comes (its node is down already), or that the scenario's
guard refuses, is skipped.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from jepsen.generator.core import NEMESIS
from jepsen.history import Op, OpType
from jepsen.nemesis import Injector
from jepsen.nemesis.plan import begin_of, end_of, moments
from jepsen.simulator.faults._machines import SimMachines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.generator.core import Todo
    from jepsen.nemesis.plan import Fault
    from jepsen.simulator.faults._disk_faults import DiskFaults
    from jepsen.simulator.world import World


class PlannedNemesis:
    """Performs a plan on the members of a world, and ends what is left of it."""

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
        self._guard = guard
        self._states = states
        self._machines = SimMachines(
            world, start=start, power_off=power_off, guard=guard, disks=disks
        )
        self._injector = Injector(self._machines)
        self.history: list[Op] = []
        """What it has done, in order; the indices are for the caller that keeps it."""
        self.active: dict[int, Fault] = {}
        """The faults that began and have not ended yet, by their place in the plan."""

    async def run(self, faults: Sequence[Fault]) -> None:
        """Go through the plan; return when the last fault is over."""
        began_s = asyncio.get_running_loop().time()
        for at_ms, number, begins in moments(faults):
            await asyncio.sleep(began_s + at_ms / 1000 - asyncio.get_running_loop().time())
            if begins:
                await self._begin(number, faults[number])
            else:
                await self._end(number)

    async def heal(self) -> None:
        """End what is left, and start every member that does not run."""
        for number in list(self.active):
            await self._end(number)
        for name in self._members:
            if self._world.node(name).process is None:
                await self._machines.start_node(name)

    async def _begin(self, number: int, fault: Fault) -> None:
        may = self._machines.may_begin(fault)
        # Whether power may be cut is for the guard to say when it is.
        if not may or (fault.kind != "power_cut" and not self._guard(fault)):
            self._world.trace.add("-", "fault", f"{number} skipped: {fault}")
            return
        self._world.trace.add("-", "fault", f"{number} begins: {fault}")
        self.active[number] = fault
        for name in fault.nodes:
            for state in self._states(name):
                self._world.coverage.struck(fault.kind, state)
        await self._perform(begin_of(fault, self._members))

    async def _end(self, number: int) -> None:
        fault = self.active.pop(number, None)
        if fault is not None:
            self._world.trace.add("-", "fault", f"{number} ends")
            await self._perform(end_of(fault, self._members))

    async def _perform(self, todos: Sequence[Todo]) -> None:
        for todo in todos:
            op = Op(0, self._now_ns(), NEMESIS, OpType.INVOKE, todo.f, todo.value)
            self.history.append(op)
            value = await self._injector.perform(todo.f, todo.value)
            op = replace(op, time=self._now_ns(), type=OpType.INFO, value=value)
            self.history.append(op)
            assert not self._injector.failures, self._injector.failures

    def _now_ns(self) -> int:
        return round(self._world.elapsed_s * 1e9)
