"""How fast Spark judges: registers with cas, and registers whose writes are unique, by size.

`python -m tests.bench.spark --output FILE [--sizes 1000000 10000000] [--master local[*]]`. Each
history is generated with planted faults, and a figure counts only if exactly those are found. The
time is that of the check alone, Spark running, from Parquet to verdicts in Parquet.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jepsen.spark.check import Question, check
from jepsen.spark.generate import Recipe, generate
from jepsen.spark.session import spark_session
from raftctl.bench.figures import report

OPERATIONS_A_KEY = 100
FAULTS = 100
GOALS_S = {(100_000_000, False): 150, (100_000_000, True): 60}
"""By (operations, unique): what row J7's issue asks of two cores."""


def main() -> None:
    """Measures and writes JSON; exit status 1 if a verdict is wrong."""
    parser = argparse.ArgumentParser(prog="tests.bench.spark", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench-spark.json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="4g")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        spark_session(arguments.master, arguments.memory, Path(folder)) as spark,
    ):
        for size in arguments.sizes:
            for unique in (False, True):
                name = f"{'unique' if unique else 'cas'}_{size}"
                figures[name] = _measure(spark, size, unique, Path(folder) / name)
                sys.stdout.write(f"{name}: {json.dumps(figures[name])}\n")
                sys.stdout.flush()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report(figures), indent=2))
    sys.exit(not all(figure["exact"] for figure in figures.values()))


def _measure(spark: Any, size: int, unique: bool, folder: Path) -> dict[str, Any]:
    keys = max(1, size // OPERATIONS_A_KEY)
    begin = time.perf_counter()
    generate(spark, Recipe(size, keys, min(FAULTS, keys), unique=unique), folder)
    made = time.perf_counter()
    files = [str(folder / "operations")]
    verdicts = check(
        spark, files, "auto", Question("linearizable"), folder / "found", folder / "scratch"
    )
    took = time.perf_counter() - made
    wrong = spark.read.parquet(str(folder / "found" / "verdicts")).where("valid = 'false'")
    found = {row["key"] for row in wrong.select("key").collect()}
    (verdict,) = verdicts.values()
    return {
        "median": round(took, 2),
        "unit": "s",
        "goal": GOALS_S.get((size, unique), "none"),
        "operations_a_second": round(verdict.statistics["operations"] / took),
        "generated_s": round(made - begin, 2),
        "keys_by_zones": verdict.statistics["keys_by_zones"],
        "exact": found == set(json.loads((folder / "expected.json").read_text())["invalid"]),
    }


if __name__ == "__main__":
    main()
