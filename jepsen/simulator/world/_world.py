"""The world: starts, kills, pauses and cuts off nodes, runs virtual time, and keeps the story.

    with World(seed=7) as world:
        world.run(scenario(world))

A scenario is a coroutine outside every node: it starts processes, breaks things and waits. A
process is a coroutine that gets its `SimRuntime`; unmodified clients are processes of nodes of
their own. `run` raises what went wrong in any process that was alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jepsen.simulator.coverage import Coverage
from jepsen.simulator.cuts import Cuts
from jepsen.simulator.disk import SimDisk
from jepsen.simulator.kernel import START_S, SimLoop, SimTask, Trace, wall_ms
from jepsen.simulator.kernel.process import (
    Process,
    ProcessKilled,
    ProcessState,
    SimNode,
    current_process,
    keep_forever,
)
from jepsen.simulator.network import Network, sockets_of
from jepsen.simulator.world._runtime import SimRuntime, stream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from jepsen.core.spec import RunSpec
    from jepsen.history import Op
    from jepsen.simulator.properties import Recorder

T = TypeVar("T")

HANDLES_MAX = 100_000_000
FAILURES_MAX = 100


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception nobody handled in a living process; `node` is empty outside all nodes."""

    node: str
    at_s: float
    error: BaseException

    def __str__(self) -> str:
        return f"{self.node or 'scenario'} at {self.at_s:.6f} s: {self.error!r}"


class WorldFailed(Exception):
    """Processes failed; the first failure is the cause."""

    def __init__(self, failures: list[Failure]) -> None:
        self.failures = failures
        super().__init__("\n".join(str(failure) for failure in failures))


class World:
    """One deterministic world. `tolerated` exceptions, to which a scenario may add, are traced but
    do not fail `run`.
    """

    def __init__(
        self,
        seed: int,
        *,
        handles_max: int = HANDLES_MAX,
        tolerated: tuple[type[BaseException], ...] = (),
        cuts: Cuts | None = None,
    ) -> None:
        self.seed = seed
        self.cuts = cuts or Cuts()
        self.loop = SimLoop(
            stream(seed, "executor"), stream(seed, "slices"), handles_max=handles_max
        )
        self.trace = Trace(lambda: self.loop.now_s)
        self.recorder: Recorder | None = None
        """The recorder of the observed events of nodes, to be set before there is a cluster."""
        self.test: RunSpec | None = None
        """The test of the harness that the run performs, if it has a folder."""
        self.history: list[Op] = []
        self.note: Callable[[Op], object] = self.history.append
        """Gets what clients and the nemesis do."""
        self.checkers: list[str] = []
        """The checkers of `jepsen.checkers.registry` that this history is for."""
        self.coverage = Coverage()
        self.random = stream(seed, "scenario")
        self.network = Network(self.loop, stream(seed, "network"), self.trace)
        self.loop.network = self.network
        self.loop.set_exception_handler(self._on_unhandled)
        self.failures: list[Failure] = []
        self.tolerated = tolerated
        self._context = contextvars.Context()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    # Nodes and processes

    def node(self, name: str) -> SimNode:
        """Return the node of that name, made on first use."""
        nodes = self.network.nodes
        if name not in nodes:
            number = len(nodes) + 1

            def on_sync(detail: str) -> None:
                self.trace.add(name, "sync", detail)

            def clock() -> int:
                return int(wall_ms(self.loop.now_s, nodes[name].process))

            disk = SimDisk(stream(self.seed, "disk", name), on_sync, clock)
            node = SimNode(name, f"10.0.{number // 250}.{number % 250 + 1}", disk)
            disk.is_program = _is_program
            disk.on_wait = partial(self._wait_for_disk, node)
            nodes[name] = node
        return nodes[name]

    def start(
        self, name: str, main: Callable[[SimRuntime], Coroutine[Any, Any, object]]
    ) -> Process:
        """Start a program on a node; its end, good or bad, is the end of the process.

        Await `process.done` for its result, its exception, or `ProcessKilled`.
        """
        node = self.node(name)
        if node.process is not None:
            raise RuntimeError(f"{name} already runs a process")
        node.incarnations += 1
        process = Process(node, node.incarnations, self.loop.create_future())
        # A killed process that nobody waits for is not a failure.
        process.done.add_done_callback(_retrieve)
        node.process = process
        node.reachable = True
        self.network.retry_stalled()
        self.trace.add(name, "start", f"incarnation={process.incarnation}")
        runtime = SimRuntime(self.loop, process, self.trace, self.seed)

        def launch() -> asyncio.Task[object]:
            return self.loop.create_task(main(runtime), context=process.context)

        task = process.main = process.context.run(launch)
        task.add_done_callback(lambda task: self._on_exit(process, task), context=self._context)
        return process

    def kill(self, name: str, *, silent: bool = False) -> None:
        """Kill a process as SIGKILL does; the disk keeps what was written.

        Peers see their connections end, or with `silent` nothing at all until the next start.
        """
        self._end(self._process(name), "kill", silent=silent)

    def power_off(self, name: str) -> None:
        """Cut the power of a machine: no goodbye to peers, and unsynced writes are at risk."""
        node = self.node(name)
        if node.process is not None:
            self._end(node.process, "power_off", silent=True)
        node.reachable = False
        node.disk.crash()

    def cut_power_within(
        self,
        name: str,
        operations: int,
        *,
        power_off: Callable[[str], None] | None = None,
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        """Cut the power of a machine once its process has done so many more operations on its disk.

        That may be in the middle of a call: nothing of the process runs after it. `may` is called
        when the time has come; if it returns False the power stays.
        """
        node = self.node(name)

        def lose(process: Process) -> None:
            if node.process is process:
                (power_off or self.power_off)(name)

        def cut() -> bool:
            process = current_process.get()
            if process is None or process is not node.process or not may():
                return False
            self.trace.add(name, "power_cut")
            # The caller of the disk has to return first, but nothing else gets a turn.
            process.state = ProcessState.PAUSED
            self.loop.call_soon(lose, process, context=self._context)
            return True

        node.disk.cut_within(operations, cut)

    def wipe(self, name: str) -> None:
        """Replace the disk of a node that runs no process by an empty one."""
        node = self.node(name)
        if node.process is not None:
            raise RuntimeError(f"{name} runs a process")
        self.trace.add(name, "wipe")
        node.disk.wipe()

    def terminate(self, name: str) -> None:
        """Ask a process to end, as SIGTERM does: cancel its main coroutine, which may take time.

        `process.done` raises `ProcessKilled` when it has ended.
        """
        process = self._process(name)
        process.terminating = True
        self.trace.add(name, "terminate", f"incarnation={process.incarnation}")
        if process.main is not None:
            process.main.cancel()

    def pause(self, name: str) -> None:
        """Stop a process as SIGSTOP does; the machine still answers for its connections."""
        process = self._process(name)
        process.state = ProcessState.PAUSED
        self.trace.add(name, "pause")

    def resume(self, name: str) -> None:
        """Let a paused process go on; what it missed runs first, in order."""
        process = self._process(name)
        node = process.node
        held = process.state is ProcessState.PAUSED and not node.clock.suspended
        if held and not node.disk.off:
            process.state = ProcessState.RUNNING
            self.trace.add(name, "resume")
            self.loop.requeue(process, process.release())

    def stall(self, name: str, seconds: float) -> None:
        """Hold up the event loop of a process that runs, as one long step of it would.

        Its threads go on. Then it handles all that has come meanwhile in one turn.
        """
        process = self._process(name)
        if not process.running:
            raise RuntimeError(f"{name} does not run")
        process.state = ProcessState.STALLED
        process.stalls += 1
        self.trace.add(name, "stall", f"{seconds:.6f} s")
        stall = process, process.stalls
        if not math.isinf(seconds):
            self.loop.deliver_at(self.loop.now_s + seconds, self._end_stall, stall)

    def _wait_for_disk(self, node: SimNode, seconds: float) -> None:
        """Let the event loop that calls the disk wait: nothing else of it runs meanwhile.

        The call itself returns, since it cannot be held up in the middle.
        """
        process = current_process.get()
        if process is None or process is not node.process or not process.running:
            return
        self.stall(node.name, seconds)
        if math.isinf(seconds):
            stall = process, process.stalls
            node.disk.when_healed(partial(self._end_stall, stall))

    def unstall(self, name: str) -> None:
        """End the stall of a process, if there is one."""
        process = self.node(name).process
        if process is not None:
            self._end_stall((process, process.stalls))

    def _end_stall(self, stall: tuple[Process, int]) -> None:
        process, number = stall
        # It may have been killed, or be stopped by a loss of power that is about to happen.
        if process.state is ProcessState.STALLED and process.stalls == number:
            process.state = ProcessState.RUNNING
            self.trace.add(process.node.name, "unstall")
            self.loop.requeue(process, process.release(timers_last=True))

    def suspend(self, name: str) -> None:
        """Suspend the machine of a process that runs: nothing goes on but CLOCK_BOOTTIME."""
        process = self._process(name)
        if not process.running:
            raise RuntimeError(f"{name} does not run")
        self.trace.add(name, "suspend")
        process.state = ProcessState.PAUSED
        process.node.reachable = False
        process.node.clock.suspend(self.loop.now_s)
        self.loop.clock_changed(process.node)

    def wake(self, name: str) -> None:
        """End the suspension of a machine; what was sent to it arrives soon."""
        node = self.node(name)
        if not node.clock.suspended:
            return
        self.trace.add(name, "wake")
        node.clock.wake(self.loop.now_s)
        self.loop.clock_changed(node)
        if node.process is not None:
            node.reachable = True
            self.network.retry_stalled()
            self.resume(name)

    def set_clock_rate(self, name: str, rate: float) -> None:
        """Let the clocks of a node go at this rate from now on; its wall clock does not."""
        node = self.node(name)
        self.trace.add(name, "clock_rate", f"{rate:.4f}")
        node.clock.set_rate(self.loop.now_s, rate)
        self.loop.clock_changed(node)

    def _process(self, name: str) -> Process:
        process = self.node(name).process
        if process is None:
            raise RuntimeError(f"{name} runs no process")
        return process

    def _on_exit(self, process: Process, task: asyncio.Task[object]) -> None:
        if process.state is ProcessState.DEAD:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, asyncio.CancelledError) and process.terminating:
            # `_end` resolves the futures that wait.
            pass
        elif error is not None:
            self._record(process.node.name, error)
            process.done.set_exception(error)
        else:
            process.done.set_result(task.result())
        if process.on_exit is not None and (error is None or process.terminating):
            process.on_exit()
        self._end(process, "exit", silent=False)

    def _end(self, process: Process, kind: str, *, silent: bool) -> None:
        node = process.node
        self.trace.add(node.name, kind, f"incarnation={process.incarnation}")
        sockets = sockets_of(process)
        endpoints = list(sockets.endpoints.values())
        for endpoint in endpoints:
            if silent:
                endpoint.vanish()
            else:
                endpoint.close()
        listeners = list(sockets.listeners.values())
        sockets.listeners.clear()
        process.bury(self.loop.take_timers(process), endpoints, listeners)
        node.process = None
        node.reachable = not silent
        node.disk.release_locks()
        self.wake(node.name)
        if not process.done.done():
            process.done.set_exception(ProcessKilled(f"{node.name}: {kind}"))

    # Network

    def partition(self, one: str, other: str, *, cut: bool = False) -> None:
        """Block both directions between two nodes; `cut` also resets their connections."""
        self.trace.add(one, "partition", f"{other} cut={cut}")
        self.network.block(one, other)
        self.network.block(other, one)
        if cut:
            self.network.reset_between(self.node(one), self.node(other))

    def block(self, source: str, target: str) -> None:
        """Block one direction: what `source` sends does not reach `target`."""
        self.trace.add(source, "block", target)
        self.network.block(source, target)

    def heal(self) -> None:
        """Open every link."""
        self.trace.add("-", "heal")
        self.network.unblock_all()

    # Running

    def run(self, until: Coroutine[Any, Any, T] | float) -> T | None:
        """Run a scenario to its end, or the world for a number of virtual seconds.

        Raises the scenario's exception, WorldStuck or Livelock; or WorldFailed with all of them if
        a process failed, and again in every later run.
        """
        scenario: Coroutine[Any, Any, Any]
        scenario = asyncio.sleep(until) if isinstance(until, int | float) else until
        task = self.loop.create_task(scenario, name="scenario", context=self._context)
        try:
            result: T | None = self.loop.run_until_complete(task)
        except Exception as error:
            # What went wrong in a node is the likelier cause, so it comes first.
            others = [failure for failure in self.failures if failure.error is not error]
            if not others:
                raise
            mine = Failure("", self.loop.now_s, error)
            raise WorldFailed([*others, mine]) from others[0].error
        finally:
            counts = f"handles={self.loop.handles_run} timers={self.loop.timers_fired}"
            self.trace.add("-", "ran", counts)
        if self.failures:
            raise WorldFailed(self.failures) from self.failures[0].error
        return result

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the world began."""
        return self.loop.now_s - START_S

    def trace_hash(self) -> str:
        """Return the digest of everything that happened so far."""
        return self.trace.hash()

    def close(self) -> None:
        """End every process without running any of their code, and close the loop."""
        if self.loop.is_closed():
            return
        for node in self.network.nodes.values():
            if node.process is not None:
                self._end(node.process, "end", silent=True)
        self.loop.close()
        keep_forever((self, asyncio.all_tasks(self.loop)))

    # Failures

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        owner = context.get("task") or context.get("future")
        process = owner.process if isinstance(owner, SimTask) else current_process.get()
        if process is not None and (process.state is ProcessState.DEAD or process.node.disk.off):
            return
        name = process.node.name if process is not None else ""
        error = context.get("exception")
        if error is None:
            self.trace.add(name or "-", "complaint", str(context.get("message")))
        else:
            self._record(name, error)

    def accuse(self, name: str, error: BaseException) -> None:
        """Somebody who watches a node has found what fails the run."""
        self._record(name, error)

    def _record(self, name: str, error: BaseException) -> None:
        text = "".join(traceback.format_exception_only(error)).strip()
        self.trace.add(name or "-", "failure", text)
        tolerated = self.tolerated
        if name:
            node = self.node(name)
            node.last_error = error
            tolerated += node.forgiven
        if not isinstance(error, tolerated) and len(self.failures) < FAILURES_MAX:
            self.failures.append(Failure(name, self.loop.now_s, error))


def _retrieve(done: asyncio.Future[Any]) -> None:
    done.exception()


def _is_program() -> bool:
    return current_process.get() is not None
