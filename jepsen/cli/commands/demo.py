"""`jepsen demo`: kills the active controller and a partition leader while clients write."""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.checkers.replication.trace import LEADER
from jepsen.checkers.verdict import WORDS
from jepsen.cli import _options as options
from jepsen.cli._output import (
    INTERRUPTED,
    Output,
    OutputOption,
    anomaly_lines,
    exit_status,
    say,
    say_json,
    tell,
)
from jepsen.core import overall
from jepsen.core.spec import RunSpec
from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import OpType
from jepsen.nemesis.plan import Fault, packages_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jepsen.checkers.verdict import Verdict
    from jepsen.history import Op

PLAN = (
    Fault("kill", 8_000, 9_000, ("leader",)),
    Fault("kill", 11_000, 6_000, ("partition-leader",)),
)
"""The active controller first, then the leader of a partition; both start again together."""
TIME_LIMIT_S = 25.0
RATE = 400.0
CLIENTS = 12
PARTITIONS = 6
PREFIX = "raftctl-demo-"
SEND = "send"
LOST = ("lost-write", "unseen", "unexpected")
DUPLICATED = ("duplicate",)
OUT_OF_ORDER = (
    "inconsistent-offsets",
    "nonmonotonic-send",
    "int-nonmonotonic-send",
    "nonmonotonic-poll",
    "int-nonmonotonic-poll",
)


def demo(
    time_limit: Annotated[
        float, typer.Option(min=20, help="Seconds of operations; final reads come after.")
    ] = TIME_LIMIT_S,
    rate: options.RateOption = RATE,
    keep: Annotated[
        str, typer.Option(metavar="DIR", help="Keep the run in this store, with data and logs.")
    ] = "",
    override: options.OverrideOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Kills nodes of a new cluster while clients use it.

    Starts 3 controllers and 3 brokers. Kills the active controller and a partition leader, starts
    both again, and reads everything at the end. It is `jepsen test queue` with a fixed plan of
    faults. Exit status as for `jepsen test`.
    """
    spec = RunSpec(
        "queue",
        "local",
        packages_of(PLAN),
        time_limit,
        rate,
        CLIENTS,
        seed=options.new_seed(None),
        keys=PARTITIONS,
        client=options.default_client("local"),
        topic="demo",
        overrides=options.overrides_of(override or ()),
        plan=PLAN,
    )
    store = Path(keep or tempfile.mkdtemp(prefix=PREFIX))
    tell(f"starts {spec.controllers} controllers and {spec.brokers} brokers in {store}")
    try:
        folder, verdicts = options.run_one(spec, store)
        found = {**summary_of(folder.history(), spec.time_limit_s), **counted(verdicts["kafka"])}
        interrupted = bool((folder.results or {}).get("interrupted"))
    except KeyboardInterrupt:
        tell("interrupted: the nodes of the demo are stopped")
        raise
    finally:
        if not keep:
            shutil.rmtree(store, ignore_errors=True)
    _show(found, verdicts, output)
    if keep:
        tell(f"jepsen report {folder.path} makes a page of it")
    valid = overall(verdicts)
    raise typer.Exit(INTERRUPTED if interrupted and valid == "unknown" else exit_status(valid))


def summary_of(history: Sequence[Op], time_limit_s: float) -> dict[str, Any]:
    """Operations, acknowledged records, and seconds of interruption and failover.

    `longest_interruption_s` is the longest time before `time_limit_s` in which no client's write
    succeeded, `new_controller_s` the time from the kill of the active controller until another was
    observed; None if it was not killed, or none was observed.
    """
    sends = [op for op in history if op.by_client and op.f == SEND and op.type is OpType.OK]
    times = [op.time for op in sends if op.time <= time_limit_s * SECOND_NS]
    longest_ns = max((later - earlier for earlier, later in pairwise(times)), default=0)
    return {
        "operations": sum(op.by_client and op.type is OpType.INVOKE for op in history),
        "acknowledged": sum(len(op.value) for op in sends),
        "longest_interruption_s": round(longest_ns / SECOND_NS, 3),
        "new_controller_s": _new_controller_s(history),
    }


def _new_controller_s(history: Sequence[Op]) -> float | None:
    leader, killed_ns = "", None
    for op in history:
        if op.process == OBSERVER and op.f == LEADER and op.value:
            if killed_ns is not None and op.value[0] != leader:
                return round((op.time - killed_ns) / SECOND_NS, 3)
            leader = op.value[0] if killed_ns is None else leader
        elif (op.process, op.f, op.type) == (NEMESIS, "kill", OpType.INFO) and leader in op.value:
            killed_ns = op.time
    return None


def counted(verdict: Verdict) -> dict[str, int]:
    """The number of anomalies that are lost, duplicated and misplaced records."""
    names = [anomaly.name for anomaly in verdict.anomalies]
    groups = {"lost": LOST, "duplicated": DUPLICATED, "out_of_order": OUT_OF_ORDER}
    return {name: sum(one in kinds for one in names) for name, kinds in groups.items()}


def _show(found: Mapping[str, Any], verdicts: Mapping[str, Verdict], output: Output) -> None:
    valid = overall(verdicts)
    if output is Output.JSON:
        say_json({"valid": valid, **found})
        return
    for name, verdict in verdicts.items():
        tell(f"{name}: {WORDS[verdict.valid]}  {verdict.why_unknown}".rstrip())
        for line in anomaly_lines(verdict):
            tell(f"  {line}")
    for name, value in found.items():
        shown = f"{value:,}" if isinstance(value, int) else "-" if value is None else f"{value} s"
        say(f"{name.removesuffix('_s').replace('_', ' '):<24}{shown}")
    lost, duplicated, misplaced = (found[name] for name in ("lost", "duplicated", "out_of_order"))
    say(f"{WORDS[valid]}: lost {lost}, duplicated {duplicated}, out of order {misplaced}")
