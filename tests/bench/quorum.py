"""The quorum against etcd: puts a second, the latency of one put, and failover.

Three voters on one machine for each, everything committed durable, values of 256 bytes, the same
number of puts under way, a load process apart, one reply for each put after commit and apply. The
peers take turns (A B A B), so that what else the machine does hits both; ratios are of medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tests.bench.cluster import figure
from tests.bench.etcd_voters import EtcdVoters, missing
from tests.bench.voters import ELECTION_TIMEOUT_MS, VOTERS, RaftctlVoters

if TYPE_CHECKING:
    from tests.bench.voters import Voters

MANY = 256
WARMUP_S = 1.0
SECONDS = 4.0
FAILOVERS_MIN = 10
REJOIN_S = 1.5
MICROSECONDS = 1e6


def run(turns: int) -> dict[str, Any]:
    """All figures; etcd's and the ratios only where etcd can be had."""
    return measure(turns, max(turns, FAILOVERS_MIN), peer=True)


def measure(turns: int, failovers: int, *, peer: bool) -> dict[str, Any]:
    """Figures by name. `failovers` may be 0."""
    lacks = missing() if peer else ""
    if lacks:
        sys.stdout.write(f"quorum: no peer to compare with; missing: {lacks}\n")
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:
        quorums: list[Voters] = []
        try:
            quorums.append(RaftctlVoters(Path(directory) / "raftctl"))
            if peer and not lacks:
                quorums.append(EtcdVoters(Path(directory) / "etcd"))
            figures = _throughput(quorums, turns) | _latency(quorums, turns)
            if failovers:
                figures |= _failover(quorums, failovers)
        finally:
            for quorum in quorums:
                quorum.stop()
    return figures


def _throughput(quorums: list[Voters], turns: int) -> dict[str, Any]:
    speeds: dict[str, list[float]] = {quorum.name: [] for quorum in quorums}
    costs: dict[str, list[float]] = {quorum.name: [] for quorum in quorums}
    for _ in range(turns):
        for quorum in quorums:
            speed, cost = _put_many(quorum)
            speeds[quorum.name].append(speed)
            costs[quorum.name].append(cost)
    goal = f"{MANY} outstanding, {VOTERS} voters, 256 B; goal: 5 x etcd"
    figures = {f"puts_{name}": figure(of, "1/s", goal, 0) for name, of in speeds.items()}
    for name, of in costs.items():
        figures[f"put_cpu_{name}"] = figure(of, "us", "of all voters, without the client", 1)
    return figures | _ratio("puts_ratio", speeds, "goal: at least 5")


def _put_many(quorum: Voters) -> tuple[float, float]:
    """Puts a second, and microseconds of the voters' processors for each."""
    quorum.leader()
    before = _cpu_seconds(quorum)
    report = quorum.load(MANY, WARMUP_S, SECONDS)
    used = _cpu_seconds(quorum) - before
    speed = report["puts"] / report["seconds"]
    return speed, used / (WARMUP_S + SECONDS) / speed * MICROSECONDS


def _cpu_seconds(quorum: Voters) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in quorum.pids()]
    return sum(one.user + one.system for one in times)


def _latency(quorums: list[Voters], turns: int) -> dict[str, Any]:
    medians: dict[str, list[float]] = {quorum.name: [] for quorum in quorums}
    for _ in range(turns):
        for quorum in quorums:
            report = quorum.load(1, WARMUP_S, SECONDS)
            medians[quorum.name].append(report["p50_ms"])
    goal = "one put at a time, median; goal: below etcd's"
    figures = {f"put_latency_{name}": figure(of, "ms", goal) for name, of in medians.items()}
    return figures | _ratio("put_latency_ratio", medians, "goal: below 1")


def _failover(quorums: list[Voters], count: int) -> dict[str, Any]:
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
    return figures | _ratio("quorum_failover_ratio", taken, "lower is better")


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


def _ratio(name: str, values: dict[str, list[float]], goal: str) -> dict[str, Any]:
    """Ours divided by the peer's, of medians; nothing without a peer."""
    ours, *others = [statistics.median(of) for of in values.values()]
    return {name: figure([ours / others[0]], "x", goal, 2)} if others else {}
