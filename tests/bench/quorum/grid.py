"""`python -m tests.bench.quorum.grid`: puts by how many are under way, and by size of their values.

The quorums and their load are those of `tests.bench.quorum.main`. With one put under way the time
of a put stands beside the rate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.figures import figure, line, report
from tests.bench.kafka.session import end_with_clusters
from tests.bench.quorum.main import Plan, put_many, ratio, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.quorum.main import Turn

OUTSTANDING = [1, 16, 64, 256, 1024]
VALUE_BYTES = [256, 16 << 10]
RATE_GOALS = {256: "goal: at least 8"}
"""By puts under way; the others: no less than etcd."""


def cell(outstanding: int, value_bytes: int, turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """The figures of one number under way and one size, from the turns of each quorum."""
    name = f"puts_{outstanding}_of_{value_bytes}_B"
    goal = f"{outstanding} outstanding, {value_bytes} B; "
    goal += RATE_GOALS.get(outstanding, "goal: at least 1")
    found = _quantity(
        name, {one: [t.puts_per_s for t in of] for one, of in turns.items()}, "1/s", goal
    )
    found |= _quantity(
        f"{name}_cpu",
        {one: [t.cpu_us for t in of] for one, of in turns.items()},
        "us",
        "processor time of all voters for each put",
    )
    if outstanding == 1:
        times = {one: [t.p50_ms for t in of] for one, of in turns.items()}
        found |= _quantity(f"{name}_time", times, "ms", "median of one put; goal: at most 0.9")
    return found


def _quantity(
    name: str, values: dict[str, list[float]], unit: str, goal: str
) -> dict[str, dict[str, Any]]:
    of_each = {f"{name}_{one}": figure(of, unit, goal) for one, of in values.items()}
    return of_each | ratio(f"{name}_ratio", values, goal)


def main(words: Sequence[str]) -> None:
    """Measures every pair, prints a line a figure, and writes JSON after each pair."""
    parser = argparse.ArgumentParser(prog="tests.bench.quorum.grid", description=__doc__)
    parser.add_argument("--peer", choices=["etcd", "none"], default="etcd")
    parser.add_argument("--outstanding", type=int, nargs="+", default=OUTSTANDING)
    parser.add_argument("--value-bytes", type=int, nargs="+", default=VALUE_BYTES)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("out/bench-puts.json"))
    given = parser.parse_args(words)
    end_with_clusters()
    figures: dict[str, Any] = {}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for value_bytes in given.value_bytes:
        # With disks of their own: large values would leave less room for those after them.
        with running(given.peer) as quorums:
            for outstanding in given.outstanding:
                plan = Plan(outstanding, value_bytes, given.seconds)
                turns: dict[str, list[Turn]] = {one.name: [] for one in quorums}
                for _ in range(given.turns):
                    for one in quorums:
                        turns[one.name].append(put_many(one, plan))
                found = cell(outstanding, value_bytes, turns)
                sys.stdout.write("".join(line(name, value) for name, value in found.items()))
                sys.stdout.flush()
                figures |= found
                given.output.write_text(json.dumps(report(figures), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
