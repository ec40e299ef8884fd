"""One run: starts its environment, reports progress, judges the history, and makes it smaller."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication.trace import LEADER, check_trace
from jepsen.checkers.verdict import verdict_document
from jepsen.core import (
    PROPERTIES,
    Ending,
    Run,
    cut_short,
    faults_struck,
    format_faults,
    judge,
    judge_steps,
    overall,
)
from jepsen.environments.external import ExternalEnvironment
from jepsen.errors import ClusterError, InputError
from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import Op, OpType
from jepsen.nemesis.faults import in_words, kind_struck
from jepsen.nemesis.plan import performed, smallest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jepsen.checkers.verdict import Valid, Verdict
    from jepsen.core.spec import RunSpec
    from jepsen.environments import Environment
    from jepsen.environments.local.environment import LocalEnvironment
    from jepsen.nemesis.plan import Places, Plan
    from jepsen.simulator.runner.fork_server import ForkServers
    from jepsen.store import RunFolder

TELL_S = 1.0
OVERTIME_S = 300.0
"""Beyond its time limit a test takes longer only if it hangs."""


TRACE = "trace"
SETTLED = "settled"
"""Noted when a cluster has come to rest, with the offset up to which its metadata are committed."""


class Progress:
    """A line about a test that runs, not more often than every second."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._counts: Counter[OpType] = Counter()
        self._struck: Counter[str] = Counter()
        self._printed_s = 0.0
        self._fault = ""

    def note(self, op: Op) -> None:
        """Count an operation."""
        if op.by_client:
            self._counts[op.type] += 1
        elif op.process == NEMESIS and op.type is not OpType.INVOKE:
            self._struck.update(filter(None, [kind_struck(op)]))
            if self._struck:
                self._fault = in_words(op)
        if time.monotonic() - self._printed_s >= TELL_S:
            self._printed_s = time.monotonic()
            self._tell(self.line(op.time))

    def line(self, at_ns: int) -> str:
        """Return the line of progress at that time of the test."""
        counts = self._counts
        ended = f"{counts[OpType.OK]} ok, {counts[OpType.FAIL]} fail, {counts[OpType.INFO]} info"
        line = f"{at_ns / 1e9:6.1f} s  {counts[OpType.INVOKE]} operations: {ended}"
        if not self._struck:
            return line
        return f"{line}; faults: {format_faults(self._struck)}; last: {self._fault}"


def run_and_judge(
    folder: RunFolder, tell: Callable[[str], None], seeds: ForkServers | None = None
) -> dict[str, Verdict]:
    """Run the test of a new folder and keep the verdicts there.

    `seeds`: fork servers of the simulator, for which a test of `--env sim` is a seed.
    Ctrl-C ends the test early: the cluster is healed, and what there is is judged. A run that is
    refused, or interrupted before it begins, leaves no folder; one that breaks off is kept aside
    (`RunFolder.put_aside`), where the exception's note says.
    """
    try:
        run = _RUNNERS[folder.spec.env] if seeds is None else partial(_run_sim, seeds=seeds)
        ending = run(folder, folder.spec, tell)
    except (InputError, KeyboardInterrupt):
        folder.remove()
        raise
    except Exception as error:
        _put_aside(folder, error)
        raise
    folder.write_ending(ending.to_json())
    try:
        folder.write_parquet()
        if folder.plan is None:
            folder.write_plan(performed(folder.history()))
        verdicts = judge_folder(folder)
    except Exception as error:
        _put_aside(folder, error)
        raise
    folder.make_latest()
    return verdicts


def _put_aside(folder: RunFolder, error: Exception) -> None:
    aside = folder.put_aside(str(error) or repr(error))
    error.add_note(f"what there is of the run is in {aside}")


def judge_folder(folder: RunFolder) -> dict[str, Verdict]:
    """Judges what is in the folder and keeps the verdicts there."""
    history, spec = folder.history(), folder.spec
    ending = ending_of(folder)
    verdicts = judge(spec, history, ending) | judge_servers_of(folder, history)
    verdicts |= cut_short(spec, history, ending)
    if spec.env == "sim":
        verdicts[PROPERTIES] = judge_steps(ending)
    interrupted_s = None if ending is None else ending.interrupted_s
    document: dict[str, Any] = {
        "valid": overall(verdicts),
        "interrupted": interrupted_s is not None,
        "interrupted_s": interrupted_s,
        "operations": sum(op.type is OpType.INVOKE and op.by_client for op in history),
        "seconds": round(history[-1].time / SECOND_NS, 3) if history else 0.0,
        "faults": faults_struck(spec.nemesis, history),
        "checkers": {name: verdict_document(one) for name, one in verdicts.items()},
    }
    folder.write_results(document)
    return verdicts


def ending_of(folder: RunFolder) -> Ending | None:
    """Return how the run ended; None if it never said so. InputError."""
    document = folder.ending
    try:
        return None if document is None else Ending.from_json(document)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder.path}: not the end of a run: {error!r}") from None


def judge_servers_of(folder: RunFolder, history: Sequence[Op]) -> dict[str, Verdict]:
    """Judge the reports and the disks of a local cluster's nodes; {} for other clusters."""
    if folder.spec.env != "local" or not folder.nodes.is_dir():
        return {}
    from jepsen.environments.local.servers import judge_servers

    observed = [op for op in history if op.process == OBSERVER]
    committed = next((op.value for op in observed if op.f == SETTLED), None)
    seen = [(epoch, name) for name, epoch in (op.value for op in observed if op.f == LEADER)]
    return {TRACE: check_trace(history)} | judge_servers(folder.nodes, committed, seen)


def shrink(folder: RunFolder, run: Callable[[RunSpec], Valid]) -> Plan | None:
    """Leave faults out of a run's plan while `run` of the rest is invalid.

    The plan is that of the specification, or else what the nemesis did by chance. `run` performs a
    specification and returns its verdict. Returns None if the whole plan does not fail again.
    InputError for a run without faults.
    """
    spec = folder.spec
    plan = spec.plan or folder.plan or performed(folder.history())
    if not plan:
        raise InputError(f"{folder.path}: no fault struck in this run")

    def fails(places: Places, operations: int = 0) -> bool:
        del operations
        return run(spec.with_plan(tuple(plan[place] for place in places))) is False

    if not fails(tuple(range(len(plan)))):
        return None
    places, _ = smallest(len(plan), fails)
    return tuple(plan[place] for place in places)


def _run_sim(
    folder: RunFolder, spec: RunSpec, tell: Callable[[str], None], seeds: ForkServers | None = None
) -> Ending:
    """A seed of the simulator, which writes the history and the ending into the folder."""
    from jepsen.simulator.runner.determinism import run_in_subprocess

    tell(f"seed {spec.seed}: {spec.time_limit_s:g} virtual seconds")
    scenario = (
        spec.workload if spec.is_scenario else f"jepsen.simulator.environment:{spec.workload}"
    )
    options = ["--folder", str(folder.path)]
    try:
        run = run_in_subprocess if seeds is None else seeds.run
        result = run(scenario, spec.seed, options=options, timeout_s=None)
    except KeyboardInterrupt:
        history = folder.history()
        return Ending(interrupted_s=history[-1].time / SECOND_NS if history else 0.0)
    if result.refusal:
        raise InputError(result.refusal)
    (folder.path / "sim.log").write_text(result.output, encoding="utf-8")
    last = result.output.rstrip().rpartition("\n")[2]
    tell(last)
    ending = ending_of(folder)
    if ending is None:
        raise ClusterError(f"the simulator has ended with the run: {last}")
    return ending


def _run_local(folder: RunFolder, spec: RunSpec, tell: Callable[[str], None]) -> Ending:
    from jepsen.environments.local.environment import LocalEnvironment, network_of

    network = network_of(spec.network, cut=not {"partition", "slow"}.isdisjoint(spec.nemesis))
    skewed = "clock" in spec.nemesis
    environment = LocalEnvironment(folder.nodes, spec.cluster, network, skewed=skewed)
    try:
        environment.start()
        return asyncio.run(_local(folder, spec, environment, tell))
    finally:
        environment.stop()


async def _local(
    folder: RunFolder, spec: RunSpec, environment: LocalEnvironment, tell: Callable[[str], None]
) -> Ending:
    try:
        await environment.wait_ready(tell)
        return await _run(folder, spec, environment, tell, environment.committed_at_rest)
    finally:
        await environment.close()


def _run_external(folder: RunFolder, spec: RunSpec, tell: Callable[[str], None]) -> Ending:
    environment = ExternalEnvironment(spec.cluster)
    return asyncio.run(_run(folder, spec, environment, tell))


async def _run(
    folder: RunFolder,
    spec: RunSpec,
    environment: Environment,
    tell: Callable[[str], None],
    committed_at_rest: Callable[[], Awaitable[int | None]] | None = None,
) -> Ending:
    """Raises ClusterError for a run that hangs."""
    progress = Progress(tell)
    with folder.writer() as writer:

        def note(op: Op) -> None:
            writer.append(op)
            progress.note(op)

        run = Run(spec, environment, note)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError):  # only the main thread is interrupted
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, run.stop)
        limit_s = spec.time_limit_s + OVERTIME_S
        try:
            async with asyncio.timeout(limit_s) as limit:
                await run.run()
        except TimeoutError:
            if not limit.expired():
                raise
            raise ClusterError(f"the run was not over after {limit_s:g} s") from None
        if committed_at_rest is not None:
            run.interpreter.observe(SETTLED, await committed_at_rest())
    return Ending(interrupted_s=run.interrupted_s)


_RUNNERS: dict[str, Callable[[RunFolder, RunSpec, Callable[[str], None]], Ending]] = {
    "sim": _run_sim,
    "local": _run_local,
    "external": _run_external,
}
ENVIRONMENTS = tuple(_RUNNERS)
