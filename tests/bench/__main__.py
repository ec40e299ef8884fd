"""`python -m tests.bench --output FILE [NAME ...]`: measures, writes JSON, prints a line a figure.

A figure is the median of several turns; all turns are in the file. Nothing is asserted here: goals
stand beside the figures so that a reader can judge. `groups`, `kafka` and `recovery` have their own
options.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.bench import cold_read, failover, idle, produce, recovery, simulator, startup
from tests.bench.figures import line, report
from tests.bench.groups import main as groups
from tests.bench.kafka import main as kafka
from tests.bench.kafka.session import end_with_clusters
from tests.bench.quorum import main as quorum

BENCHMARKS = {
    "startup": startup.run,
    "idle": idle.run,
    "failover": failover.run,
    "produce": produce.run,
    "quorum": quorum.run,
    "cold_read": cold_read.run,
    "simulator": simulator.run,
}
WITH_OPTIONS = {"groups": groups.main, "kafka": kafka.main, "recovery": recovery.main}


def main() -> None:
    """Runs the benchmarks named, or all but those with options of their own."""
    if sys.argv[1:2] and sys.argv[1] in WITH_OPTIONS:
        WITH_OPTIONS[sys.argv[1]](sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []])
    parser.add_argument("--output", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    end_with_clusters()
    figures: dict[str, Any] = {}
    for name in arguments.names or BENCHMARKS:
        for figure, value in BENCHMARKS[name](arguments.turns).items():
            figures[figure] = value
            sys.stdout.write(line(figure, value))
            sys.stdout.flush()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report(figures), indent=2))


if __name__ == "__main__":
    main()
