"""What `bench-all` runs: a table of parts, each a command with its time budget."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.figures import figure

if TYPE_CHECKING:
    from collections.abc import Mapping

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark. Its command writes figures into the file that `--output` names."""

    about: str
    budget_s: int
    """After that it is ended; what it has written by then counts."""
    command: str
    """A module and its options."""
    quick: str
    """Options for a moment, to see that the part works; of two equal ones the last counts."""
    prefix: str = ""
    """Before the names of its figures, if another part has the same."""
    within_hour: bool = True
    """Otherwise it runs only if it is named."""

    def words(self, output: str, *, quick: bool) -> list[str]:
        """The command line after `python -m`."""
        more = f" {self.quick}" if quick else ""
        return [*f"{self.command}{more}".split(), "--output", output]


WARM = "--warm-megabytes 2000 --warm-seconds 120"
COLD = "--warm-megabytes 0 --warm-seconds 0"
SMALL = f"--peer none --turns 1 --warmup-megabytes 1 {COLD}"
SMALL_GROUPS = f"--peer none --turns 1 --seconds 0.2 --warmup-seconds 0.1 --outstanding 4 {COLD}"
PARTS: dict[str, Part] = {
    "start": Part(
        "start of 3+3 nodes to the first acknowledged record",
        210,
        "tests.bench kafka --only startup --turns 5",
        "--peer none --turns 1",
    ),
    "idle": Part(
        "idle 3+3 nodes: processor time, wakes, memory",
        90,
        "tests.bench idle --turns 5",
        "--turns 1",
    ),
    "puts": Part(
        "puts by number outstanding and size, beside etcd",
        6 * MINUTE_S,
        "tests.bench.quorum.grid --turns 5 --seconds 1.5",
        "--peer none --turns 1 --seconds 0.2 --outstanding 1 16 --value-bytes 256",
    ),
    "brokers": Part(
        "produce, consume, a steady pace, 10,000 connections, beside Apache Kafka",
        26 * MINUTE_S,
        "tests.bench kafka --only record_sizes consume_cached consume_cached_4 consume_cold"
        f" consume_cold_4 paced connections --turns 5 --megabytes 64 --cached-megabytes 256"
        f" --paced-seconds 4 {WARM}",
        f"{SMALL} --only consume_cached paced --megabytes 1 --cached-megabytes 1 --rates 100"
        " --paced-seconds 1",
    ),
    "groups": Part(
        "groups and transactions beside Apache Kafka",
        14 * MINUTE_S,
        f"tests.bench groups --turns 5 --seconds 4 --warmup-seconds 10 {WARM}"
        " --only rebalance_classic rebalance_consumer commits commits_all transactions_1"
        " transactions_8",
        f"{SMALL_GROUPS} --only commits",
    ),
    "partitions": Part(
        "10,000 partitions on each broker, and how figures grow up to there",
        3 * MINUTE_S,
        "tests.bench kafka --peer none --only partitions_1 partitions_100 partitions_1000"
        " partitions_10000 --partitions-max 10000 --growth-turns 1",
        "--only partitions_1 --warmup-megabytes 1",
    ),
    "simulator": Part(
        "simulated hours and seeds",
        3 * MINUTE_S,
        "tests.bench simulator --turns 5",
        "--turns 1",
    ),
    "checker": Part(
        "a million operations judged, beside Porcupine",
        2 * MINUTE_S,
        "tests.bench.checking --only many_keys_valid",
        "--keys 2",
    ),
    "loading": Part(
        "a coordinator takes up 1,000,000 offsets, beside Apache Kafka",
        15 * MINUTE_S,
        f"tests.bench groups --turns 5 --warmup-seconds 10 {WARM} --only loading",
        f"{SMALL_GROUPS} --offsets 1000",
        within_hour=False,
    ),
    "members": Part(
        "rebalances of 200 members beside Apache Kafka",
        10 * MINUTE_S,
        "tests.bench groups --turns 5 --warmup-seconds 30 --members 200 --partitions 600"
        " --only rebalance_classic rebalance_consumer",
        f"{SMALL_GROUPS} --members 2 --partitions 4 --only rebalance_classic",
        prefix="members_200_",
        within_hour=False,
    ),
    "commits": Part(
        "commits of one coordinator by the number of groups, beside Apache Kafka",
        10 * MINUTE_S,
        f"tests.bench groups --turns 5 --seconds 3 --warmup-seconds 10 {WARM}"
        " --only commits_by_groups",
        SMALL_GROUPS,
        within_hour=False,
    ),
    "growth": Part(
        "up to 1,000 partitions on each broker, beside Apache Kafka",
        10 * MINUTE_S,
        f"tests.bench kafka --only partitions_1 partitions_100 partitions_1000 {WARM}",
        f"{SMALL} --only partitions_1",
        within_hour=False,
    ),
    "scale": Part(
        "controllers with up to two million partitions",
        3 * HOUR_S,
        "tests.bench.scale.main",
        "--up-to 1000",
        within_hour=False,
    ),
}
"""In the order in which they run."""
_STALL = re.compile(r"_stall_ms$")


def figures_of(part: Part, document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a part's file, whatever the form of its benchmark, under their full names."""
    found: dict[str, Any] = {}
    for name, value in document.get("figures", {}).items():
        if "wall_ratio" in value:
            found |= _judged(name, value)
        else:
            found[name] = value
    for row in document.get("rows", ()):
        found |= _scaled(row)
    return {part.prefix + name: value for name, value in found.items()}


def _judged(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a case of the checkers, both judges and their ratio."""
    both = {one: row[one]["wall_s"] for one in ("raftctl", "porcupine")}
    found = {f"{name}_{one}": figure([of], "s", "") for one, of in both.items()}
    ratio = figure(row["wall_ratios"], "x", row["goal"])
    # The middle turn, whose two values stand beside it.
    return {**found, f"{name}_ratio": {**ratio, "median": row["wall_ratio"]}}


def _scaled(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of one size of the controllers, what is compared with goals or drawn."""
    prefix = f"scale_{row['partitions']}"
    stalls = [_greatest(value) for name, value in row.items() if _STALL.search(name)]
    found = {f"{prefix}_stall": figure([max(stalls)], "ms", "")} if stalls else {}
    if "created_per_s" in row:
        found[f"{prefix}_created"] = figure([_greatest(row["created_per_s"])], "1/s", "")
    return found


def _greatest(value: Any) -> float:
    return float(max(value) if isinstance(value, list) else value)
