"""`make bench-spark`: how fast Spark judges generated histories, and whether it finds what is wrong
with them.

A figure is the time from Parquet to verdicts in Parquet, Spark running, and counts only if exactly
what the generator planted was found: then `exact` is true. `processor_s` is what this process, the
JVM and Spark's Python workers took of the processors for it, `memory_bytes` the most that they had
together. Where Go is, Porcupine judges registers up to a size too, in which all is well, since it
stops at the first that is wrong; it begins with a history in memory. `hot_key` is one register that
is quiet now and then, judged on one core and on two: by the compiled search, which takes a key as a
whole, and as `hot_key_segments` without it, cut where it is quiet. `stream_lag` counts from when
the stream is up, `start_s` is what that took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from jepsen.checkers.registry import LINEARIZABLE
from jepsen.spark.recipe import LOG, REGISTER, UNIQUE_REGISTER, Recipe
from jepsen.spark.session import spark_session
from tests.bench.checking.__main__ import build_porcupine, measured
from tests.bench.checking.histories import porcupine_line
from tests.bench.figures import figure, report
from tests.bench.spark.stream import lags
from tests.bench.spark.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from jepsen.history import Operation

OPERATIONS_A_KEY = 100
LOGS = 64
FAULTS = 100
TIMEOUT_S = 3600
BARRIER_EVERY = 1000
"""Operations on the hot key."""
GOALS = {
    (REGISTER, 100_000_000): "goal: at most 150",
    (UNIQUE_REGISTER, 100_000_000): "goal: at most 60",
    (LOG, 10_000_000): "goal: at most 60",
}
"""Of two cores."""
NO_GOAL = "no goal at this size"


def main() -> None:
    """Measures and writes JSON; exit status 1 if something was not found, or invented."""
    arguments = _arguments()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as temporary:
        scratch = Path(temporary)
        if arguments.hot:
            _hot_key(arguments, scratch, figures)
        with spark_session(arguments.master, arguments.memory, scratch) as spark:
            _measure_all(spark, arguments, scratch, figures)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report(figures), indent=2) + "\n")
    sys.exit(not all(one.get("exact", True) for one in figures.values()))


def _measure_all(
    spark: SparkSession, arguments: argparse.Namespace, scratch: Path, figures: dict[str, Any]
) -> None:
    """All figures but that of the hot key."""
    porcupine = build_porcupine(scratch / "porcupine") if shutil.which("go") else None
    for recipe in _recipes(arguments, valid=porcupine is not None):
        name = f"{'' if recipe.faults else 'valid_'}{recipe.workload}_{recipe.operations}"
        with _generated(recipe, scratch / name) as folder:
            one = figures[name] = _measure(spark, recipe, folder, arguments.turns)
            if porcupine is not None and not recipe.faults:
                one["porcupine"] = _judged_by(porcupine, recipe, folder)
        _say(f"{name}: {one['median']} s, exact: {one['exact']}")
    if arguments.stream_seconds:
        with Usage() as usage:
            start_s, late = lags(spark, arguments.stream_rate, arguments.stream_seconds, scratch)
        one = figures["stream_lag"] = figure(late, "s", "goal: at most 10", 2)
        one["operations_a_second"] = arguments.stream_rate
        one["start_s"] = round(start_s, 2)
        one["processor_s"] = round(usage.processor_s, 2)
        _say(f"stream_lag: {one['median']} s, at most {one['max']} s")


def _hot_key(arguments: argparse.Namespace, scratch: Path, figures: dict[str, Any]) -> None:
    """How much faster two cores are than one, without the compiled search and with it."""
    from jepsen.spark import registers

    recipe = Recipe(REGISTER, arguments.hot, 1, barrier_every=BARRIER_EVERY)
    usual = registers.KERNEL_OPERATIONS
    with _generated(recipe, scratch / "hot") as folder:
        for name, least in (("hot_key_segments", sys.maxsize), ("hot_key", usual)):
            registers.KERNEL_OPERATIONS = least
            one = figures[name] = _by_cores(arguments, recipe, folder, scratch)
            times = one["seconds_on_one_and_two_cores"]
            _say(f"{name}: {one['median']} times as fast, {times}, exact: {one['exact']}")


def _by_cores(
    arguments: argparse.Namespace, recipe: Recipe, folder: Path, scratch: Path
) -> dict[str, Any]:
    """The figure of a history, each turn; the first only warms the JVM up."""
    faster, times, processor_s = [], [], []
    for turn in range(arguments.turns + 1):
        by_cores = []
        for cores in (1, 2):
            with spark_session(f"local[{cores}]", arguments.memory, scratch) as spark:
                by_cores.append(_measure(spark, recipe, folder, 1))
        if turn:
            times.append([one["median"] for one in by_cores])
            processor_s.append([one["processor_s"][0] for one in by_cores])
            faster.append(times[-1][0] / times[-1][1])
    return {
        **figure(faster, "times", "goal: at least 1.6", 2),
        "exact": all(one["exact"] for one in by_cores),
        "recipe": asdict(recipe),
        "statistics": by_cores[-1]["statistics"],
        "seconds_on_one_and_two_cores": times,
        "processor_s_on_one_and_two_cores": processor_s,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.spark.main", description=__doc__)
    add = parser.add_argument
    add("--output", type=Path, default=Path("out/bench-spark.json"))
    add("--sizes", type=int, nargs="*", default=[1_000_000, 10_000_000], help="of registers")
    add("--log-sizes", type=int, nargs="*", default=[1_000_000], help="sends; all are polled")
    add("--hot", type=int, default=1_000_000, help="operations on the hot key; 0: none")
    add("--stream-rate", type=int, default=20_000, help="operations a second")
    add("--stream-seconds", type=int, default=30, help="how long such a stream is written")
    add("--porcupine", type=int, default=1_000_000, help="the greatest size that it judges, too")
    add("--turns", type=int, default=1)
    add("--master", default="local[*]")
    add("--memory", default="4g")
    add("--scratch", type=Path, help="where histories are made")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _recipes(arguments: argparse.Namespace, *, valid: bool) -> Iterator[Recipe]:
    """Of all histories, those for Porcupine only if they are to be `valid`."""
    for workload in (REGISTER, UNIQUE_REGISTER):
        for size in arguments.sizes:
            keys = max(1, size // OPERATIONS_A_KEY)
            yield Recipe(workload, size, keys, min(FAULTS, keys))
            if valid and workload == REGISTER and size <= arguments.porcupine:
                yield Recipe(workload, size, keys)
    for size in arguments.log_sizes:
        yield Recipe(LOG, size, LOGS, FAULTS)


@contextmanager
def _generated(recipe: Recipe, folder: Path) -> Iterator[Path]:
    from jepsen.spark.generate import generate

    generate(recipe, folder)
    yield folder
    shutil.rmtree(folder)


def _measure(spark: SparkSession, recipe: Recipe, folder: Path, turns: int) -> dict[str, Any]:
    """The figure of one history, with what it is made of."""
    from jepsen.spark.check import KAFKA_LOG, Question, check

    question = Question(KAFKA_LOG if recipe.workload == LOG else LINEARIZABLE)
    took, processor_s, memory_bytes, exact = [], [], [], True
    for _ in range(turns):
        found, scratch = Path(mkdtemp(dir=folder)) / "found", Path(mkdtemp(dir=folder))
        with Usage() as usage:
            begin = time.perf_counter()
            files = [str(folder / "operations")]
            (verdict,) = check(spark, files, "auto", question, found, scratch).values()
            took.append(time.perf_counter() - begin)
        processor_s.append(round(usage.processor_s, 2))
        memory_bytes.append(usage.memory_bytes)
        exact = exact and _found(spark, found) == _expected(folder)
        shutil.rmtree(scratch)
    operations = verdict.statistics["operations"]
    return {
        **figure(took, "s", GOALS.get((recipe.workload, recipe.operations), NO_GOAL), 2),
        "exact": exact,
        "recipe": asdict(recipe),
        "statistics": verdict.statistics,
        "operations_a_second": round(operations / min(took)),
        "processor_s": processor_s,
        "memory_bytes": memory_bytes,
    }


def _found(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    rows = spark.read.parquet(str(folder / "anomalies")).select("key", "name", "detail").collect()
    return Counter(
        (row["key"], row["name"], json.loads(row["detail"]).get("value")) for row in rows
    )


def _expected(folder: Path) -> Counter[tuple[Any, ...]]:
    wanted = json.loads((folder / "expected.json").read_text())["anomalies"]
    return Counter((one["key"], one["name"], one["value"]) for one in wanted)


def _judged_by(porcupine: Path, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """What the same history takes Porcupine, with all processors."""
    path = folder / "porcupine.txt"
    end = 2 * recipe.operations
    with path.open("w") as file:
        for operation in _operations(folder / "operations"):
            if line := porcupine_line(operation, end):
                file.write(line + "\n")
    return measured([str(porcupine), "-timeout", f"{TIMEOUT_S}s", str(path)])._asdict()


def _operations(folder: Path) -> Iterator[Operation]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jepsen.history.table import READ_COLUMNS, operations_of

    columns = [name for name in READ_COLUMNS if name != "history"]
    for part in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(part).iter_batches(columns=columns):
            named = pa.Table.from_batches([batch]).append_column("history", [[""] * len(batch)])
            for *_, operation in operations_of(named.to_batches()):
                yield operation


if __name__ == "__main__":
    main()
