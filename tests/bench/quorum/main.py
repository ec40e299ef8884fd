"""The quorum against etcd: `python -m tests.bench.quorum.main`. Puts a second, latency, failover.

Three voters on one machine for each, everything committed durable, the same number of puts under
way, a load process apart, one reply for each put after commit and apply. The peers take turns
(A B A B), so that what else the machine does hits both; ratios are of medians. Load runs in
processes of its own (`load`, `etcdload`), so that measuring does not slow what is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from raftctl.cli._output import table
from tests.bench.figures import figure, report
from tests.bench.quorum.voters import (
    ELECTION_TIMEOUT_MS,
    VOTERS,
    EtcdVoters,
    Load,
    RaftctlVoters,
    missing,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.quorum.voters import Voters

WARMUP_S = 1.0
REJOIN_S = 1.5
MICROSECONDS = 1e6
BUSY = 0.85
"""A processor, or all, used to this share or more is what limits."""
PAIRS = (
    ("puts a second", "puts", "puts_ratio"),
    ("processor time of the voters for each put", "put_cpu", ""),
    ("fsyncs of the voters for each put", "put_fsyncs", ""),
    ("one put at a time, median", "put_latency", "put_latency_ratio"),
    ("kill -9 of the leader to the next commit", "quorum_failover", "quorum_failover_ratio"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and how often."""

    outstanding: int = 256
    value_bytes: int = 256
    seconds: float = 4.0
    """Of each turn of puts, after a second that is not measured."""
    turns: int = 5
    failovers: int = 50
    peer: str = "etcd"
    """`etcd` or `none`."""


class Measured(NamedTuple):
    """What came of it."""

    figures: dict[str, dict[str, Any]]
    """By name, the peer's name at the end."""
    limits: list[str]
    """A sentence for each quorum: what it had no more of."""


class Turn(NamedTuple):
    """One turn of many puts."""

    puts_per_s: float
    p50_ms: float
    cpu_us: float
    fsyncs: float
    """Both of all voters, for each put."""
    leader_share: float
    """Of one processor."""
    machine_share: float
    """Busy seconds of all processors, by any process."""


def run(turns: int) -> Mapping[str, Any]:
    """All figures; etcd's and the ratios only where etcd can be had."""
    return measure(Plan(turns=turns)).figures


def main(words: Sequence[str]) -> None:
    """Prints the figures of both quorums side by side, and what limited each."""
    plan = Plan()
    parser = argparse.ArgumentParser(prog="tests.bench.quorum.main", description=__doc__)
    parser.add_argument("--peer", choices=["etcd", "none"], default=plan.peer)
    parser.add_argument("--outstanding", type=int, default=plan.outstanding, help="puts under way")
    parser.add_argument("--value-bytes", type=int, default=plan.value_bytes)
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="of each turn")
    parser.add_argument("--turns", type=int, default=plan.turns)
    parser.add_argument("--failovers", type=int, default=plan.failovers, help="leaders to kill")
    parser.add_argument("--output", type=Path, help="all turns, as JSON")
    arguments = vars(parser.parse_args(words))
    output = arguments.pop("output")
    measured = measure(Plan(**arguments))
    sys.stdout.write("\n".join([_comparison(measured.figures).rstrip(), *measured.limits, ""]))
    if output is not None:
        document = {**report(measured.figures), "limits": measured.limits}
        output.write_text(json.dumps(document, indent=2))


def measure(plan: Plan) -> Measured:
    """Starts the quorums, measures them in turns, and leaves nothing behind.

    Without etcd or Go, stderr gets what is missing, and raftctl is measured alone.
    """
    with running(plan.peer) as quorums:
        measured = _throughput(quorums, plan)
        figures = measured.figures | _latency(quorums, plan)
        if plan.failovers:
            figures |= _failover(quorums, plan.failovers)
    return Measured(figures, measured.limits)


@contextlib.contextmanager
def running(peer: str) -> Iterator[list[Voters]]:
    """Ours, and etcd if it is asked for (`etcd` or `none`) and can be had."""
    lacks = missing() if peer == "etcd" else ""
    if lacks:
        sys.stderr.write(f"quorum: no peer to compare with; missing: {lacks}\n")
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        quorums: list[Voters] = []
        try:
            quorums.append(RaftctlVoters(Path(directory) / "raftctl"))
            if peer == "etcd" and not lacks:
                quorums.append(EtcdVoters(Path(directory) / "etcd"))
            yield quorums
        finally:
            for quorum in quorums:
                quorum.stop()


def _throughput(quorums: Sequence[Voters], plan: Plan) -> Measured:
    turns: dict[str, list[Turn]] = {quorum.name: [] for quorum in quorums}
    for _ in range(plan.turns):
        for quorum in quorums:
            turns[quorum.name].append(put_many(quorum, plan))
    goal = f"{plan.outstanding} outstanding, {VOTERS} voters, {plan.value_bytes} B; goal: 5 x etcd"
    figures: dict[str, dict[str, Any]] = {}
    for name, of in turns.items():
        figures[f"puts_{name}"] = figure([turn.puts_per_s for turn in of], "1/s", goal, 0)
    for name, of in turns.items():
        cpu = [turn.cpu_us for turn in of]
        figures[f"put_cpu_{name}"] = figure(cpu, "us", "of all voters, without the client", 1)
    for name, of in turns.items():
        fsyncs = [turn.fsyncs for turn in of]
        figures[f"put_fsyncs_{name}"] = figure(fsyncs, "fsyncs", "of all voters", 4)
    speeds = {name: [turn.puts_per_s for turn in of] for name, of in turns.items()}
    figures |= ratio("puts_ratio", speeds, "goal: at least 5")
    return Measured(figures, [_limit(name, of) for name, of in turns.items()])


def _limit(name: str, turns: Sequence[Turn]) -> str:
    """What the turns had no more of, by the use of processors."""
    leader = statistics.median(turn.leader_share for turn in turns)
    machine = statistics.median(turn.machine_share for turn in turns)
    used = f"leader {leader:.0%} of one core, machine {machine:.0%} of {os.cpu_count()}"
    if machine >= BUSY:
        return f"{name}: limited by the machine's processors ({used})"
    if leader >= BUSY and name == RaftctlVoters.name:
        return f"{name}: limited by the leader's event loop, which uses one core ({used})"
    return f"{name}: limited by waiting for syncs and messages, not by processors ({used})"


def put_many(quorum: Voters, plan: Plan) -> Turn:
    """One turn of a quorum, after a moment that is not measured."""
    leader = quorum.leader()
    fsyncs_before, before, began = quorum.fsyncs(), _cpu_seconds(quorum), time.perf_counter()
    psutil.cpu_percent()
    report = quorum.load(Load(plan.outstanding, plan.value_bytes, plan.seconds, WARMUP_S))
    machine_share = psutil.cpu_percent() / 100
    elapsed = time.perf_counter() - began
    used = [after - b for after, b in zip(_cpu_seconds(quorum), before, strict=True)]
    speed = report["puts"] / report["seconds"]
    puts = report["all_puts"]
    return Turn(
        puts_per_s=speed,
        p50_ms=report["p50_ms"],
        cpu_us=sum(used) / puts * MICROSECONDS,
        fsyncs=(quorum.fsyncs() - fsyncs_before) / puts,
        leader_share=used[leader] / elapsed,
        machine_share=machine_share,
    )


def _cpu_seconds(quorum: Voters) -> list[float]:
    times = [psutil.Process(quorum.pid(voter)).cpu_times() for voter in range(VOTERS)]
    return [one.user + one.system for one in times]


def _latency(quorums: Sequence[Voters], plan: Plan) -> dict[str, Any]:
    medians: dict[str, list[float]] = {quorum.name: [] for quorum in quorums}
    for _ in range(plan.turns):
        for quorum in quorums:
            report = quorum.load(Load(1, plan.value_bytes, plan.seconds, WARMUP_S))
            medians[quorum.name].append(report["p50_ms"])
    goal = "one put at a time, median; goal: below etcd's"
    figures = {f"put_latency_{name}": figure(of, "ms", goal) for name, of in medians.items()}
    return figures | ratio("put_latency_ratio", medians, "goal: below 1")


def _failover(quorums: Sequence[Voters], count: int) -> dict[str, Any]:
    taken: dict[str, list[float]] = {quorum.name: [] for quorum in quorums}
    for _ in range(count):
        for quorum in quorums:
            seconds = _kill_leader(quorum)
            taken[quorum.name].append(seconds * 1000 / ELECTION_TIMEOUT_MS)
    goal = f"kill -9 of the leader to next commit; 1 is {ELECTION_TIMEOUT_MS} ms"
    figures = {
        f"quorum_failover_{name}": figure(of, "election timeouts", goal)
        for name, of in taken.items()
    }
    return figures | ratio("quorum_failover_ratio", taken, "lower is better")


def _kill_leader(quorum: Voters) -> float:
    """Seconds from the kill to the next put that the survivors commit."""
    leader = quorum.leader()
    survivors = [voter for voter in range(VOTERS) if voter != leader]
    command, pipe = quorum.prober(survivors), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as prober:
        if prober.stdin is None or prober.stdout is None:
            raise RuntimeError("the prober has no pipes")
        _expect("ready", prober.stdout.readline())
        began = time.perf_counter()
        quorum.kill(leader)
        prober.stdin.write("go\n")
        prober.stdin.flush()
        _expect("committed", prober.stdout.readline())
        taken = time.perf_counter() - began
    quorum.start(leader)
    time.sleep(REJOIN_S)
    return taken


def _expect(word: str, line: str) -> None:
    if line.strip() != word:
        raise RuntimeError(f"the prober said {line!r}, not {word}")


def ratio(name: str, values: dict[str, list[float]], goal: str) -> dict[str, Any]:
    """Ours divided by the peer's, of medians; nothing without a peer."""
    ours, *others = [statistics.median(of) for of in values.values()]
    return {name: figure([ours / others[0]], "x", goal, 2)} if others else {}


def _comparison(figures: dict[str, dict[str, Any]]) -> str:
    """Medians of ours and the peer's side by side; for failover also the slowest."""
    rows = []
    for label, name, ratio in PAIRS:
        if f"{name}_raftctl" not in figures:
            continue
        ours, theirs = figures[f"{name}_raftctl"], figures.get(f"{name}_etcd", {})
        of = figures.get(ratio, {}).get("median")
        rows.append((label, ours["unit"], ours["median"], theirs.get("median"), of))
        if name == "quorum_failover":
            rows.append(("the same, slowest", ours["unit"], ours["max"], theirs.get("max"), None))
    return table(("FIGURE", "UNIT", "RAFTCTL", "ETCD", "RATIO"), rows)


if __name__ == "__main__":
    main(sys.argv[1:])
