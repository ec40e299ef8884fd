"""Random histories, judged on Spark and in one process: the verdicts must be the same key by key.

`python -m tests.kit.spark.equality --count 5000 --seed 1` tells how many were compared and which
differ, with the compiled search and without. Half of the keys are registers whose writes are
unique, which SQL judges without it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.registry import model_named
from jepsen.cli.main import run
from jepsen.history import OpType, operations
from jepsen.history.parquet import read_parquet
from tests.unit.jepsen.histories import made_history, spoiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jepsen.history import Op
    from jepsen.spark.recipe import Recipe

HOT_OPERATIONS, CHUNK_OPERATIONS = 20, 4
ODD_VALUES = (
    "05",
    "5",
    5,
    -1,
    10**17,
    10**18,
    -(2**63),
    2**70,
    1.0,
    0.5,
    True,
    False,
    "",
    "null",
    "#",
)
Verdicts = dict[tuple[str, str], str]
"""(history, key as text) to the verdict."""
Comparison = Callable[..., tuple[list[str], Counter[str]]]
"""(histories, folder, options of `jepsen spark check`) to (what differs, how many of each kind)."""


def random_history(rng: random.Random) -> list[Op]:
    """One to five keys, the first hot; crashes, and in half of the keys something that is wrong."""
    parts = {}
    for number in range(rng.randint(1, 5)):
        unique = rng.random() < 0.5
        lines = made_history(
            rng,
            operation_count=rng.randint(1, 60 if number == 0 else 12),
            concurrency=rng.randint(1, 5),
            domain=100_000 if unique else 3,
            crashes=rng.choice((0.0, 0.05, 0.3)),
            functions=("read", "write") if unique else ("read", "write", "cas"),
        )
        if rng.random() < 0.5:
            lines = _misread(rng, lines) if unique else spoiled(rng, lines)
        if rng.random() < 0.2:
            lines = _with_odd_values(rng, lines)
        parts[f"key {number}"] = lines
    return interleaved(rng, parts)


def _misread(rng: random.Random, lines: list[Op]) -> list[Op]:
    """One read returns what another operation wrote or read."""
    reads = [op for op in lines if op.type is OpType.OK and op.f == "read"]
    values = [op.value for op in lines if op.type is not OpType.FAIL]
    if not reads:
        return lines
    wrong = rng.choice(reads)
    value = rng.choice(values)
    return [replace(op, value=value) if op is wrong else op for op in lines]


def _with_odd_values(rng: random.Random, lines: list[Op]) -> list[Op]:
    """Some values are others, of any kind: some of them are equal, whatever they look like."""
    some = dict(enumerate(rng.sample(ODD_VALUES, 3)))

    def other(value: Any) -> Any:
        if isinstance(value, list):
            return [other(one) for one in value]
        return value if value is None else some.get(value % 4, value)

    return [replace(op, value=other(op.value)) for op in lines]


def interleaved(rng: random.Random, parts: Mapping[Any, Sequence[Op]]) -> list[Op]:
    """The histories as one, each with a key of its own and processes of its own."""
    turns = [key for key, lines in parts.items() for _ in lines]
    rng.shuffle(turns)
    left = {key: iter(lines) for key, lines in parts.items()}
    place = {key: number * 1_000_000 for number, key in enumerate(parts)}
    history = []
    for index, key in enumerate(turns):
        op = next(left[key])
        process = place[key] + int(op.process)
        history.append(replace(op, index=index, time=index, process=process, key=key))
    return history


def write_table(histories: Mapping[str, Sequence[Op]], path: Path) -> None:
    """The histories as one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jepsen.history.table import batch_of, row_of

    rows = [
        row_of(name, False, one) for name, lines in histories.items() for one in operations(lines)
    ]
    pq.write_table(pa.Table.from_batches([batch_of(rows)]), path)


def generated(recipe: Recipe, folder: Path) -> list[Op]:
    """The lines of what `jepsen spark generate` makes, without Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jepsen.spark.generate import group_batches

    folder.mkdir(exist_ok=True)
    path = folder / "generated.parquet"
    batches = [one for group in range(recipe.groups) for one in group_batches(recipe, group)]
    pq.write_table(pa.Table.from_batches(batches), path)
    history, _ = read_parquet(path)
    return history


def verdicts_in_one_process(histories: Mapping[str, Sequence[Op]]) -> Verdicts:
    """What `jepsen check` says of each key."""
    from jepsen.history.table import text_of

    words = {True: "true", False: "false", "unknown": "unknown"}
    model = model_named("cas-register")
    return {
        (name, text_of(key.key)): words[key.valid]
        for name, lines in histories.items()
        for key in check_linearizable(lines, model).keys
    }


def quietly(arguments: Sequence[str]) -> str:
    """Runs a command of `jepsen`, and returns what it prints: thousands of verdicts, maybe."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()) as complaint:
        if run(list(arguments)) not in (0, 1, 2):
            raise AssertionError(complaint.getvalue())
    return said.getvalue()


def verdicts_on_spark(path: Path, folder: Path, *options: str) -> tuple[Verdicts, Counter[str]]:
    """What `jepsen spark check` says of each key of the file, and how often it knew by what."""
    import pyarrow.parquet as pq

    quietly(["spark", "check", str(path), "--output", str(folder), *options])
    rows = pq.read_table(folder / "verdicts").to_pylist()
    found = {(row["history"].removeprefix(f"{path}:"), row["key"]): row["valid"] for row in rows}
    if len(found) != len(rows):
        raise AssertionError("a key was judged twice")
    return found, Counter(f"{row['method']} {row['valid']}" for row in rows)


def random_histories(count: int, seed: int) -> dict[str, list[Op]]:
    """So many random histories by their seeds."""
    return {str(one): random_history(random.Random(one)) for one in range(seed, seed + count)}


def compare(
    histories: Mapping[str, Sequence[Op]], folder: Path, *options: str
) -> tuple[dict[Any, Any], Counter[str]]:
    """(what differs, how the verdicts came about) of the histories."""
    write_table(histories, folder / "histories.parquet")
    wanted = verdicts_in_one_process(histories)
    found, methods = verdicts_on_spark(folder / "histories.parquet", folder / "found", *options)
    keys = wanted.keys() | found.keys()
    differing = {
        key: (wanted.get(key), found.get(key)) for key in keys if wanted.get(key) != found.get(key)
    }
    return differing, methods


def show_differences(
    program: str,
    description: str | None,
    made: Callable[[int, int], dict[str, list[Op]]],
    compared: Comparison,
) -> None:
    """A command that compares so many histories from a seed on; exit status 1 if some differ."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--master", default="local[*]")
    arguments = parser.parse_args()
    histories = made(arguments.count, arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        differing, kinds = compared(histories, Path(folder), "--master", arguments.master)
    sys.stdout.write(f"{arguments.count} histories: {dict(kinds)}; {len(differing)} differ\n")
    sys.stdout.writelines(f"{line}\n" for line in differing[:20])
    sys.exit(bool(differing))


def main() -> None:
    """Compares; exit status 1 if a verdict differs."""
    from jepsen.spark import registers

    parser = argparse.ArgumentParser(prog="tests.kit.spark.equality", description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--master", default="local[*]")
    arguments = parser.parse_args()
    # Small histories have hot keys, too.
    registers.HOT_OPERATIONS, registers.CHUNK_OPERATIONS = HOT_OPERATIONS, CHUNK_OPERATIONS
    registers.WHOLE_OPERATIONS_MAX = HOT_OPERATIONS
    histories = random_histories(arguments.count, arguments.seed)
    wrong = 0
    for registers.KERNEL_OPERATIONS in (0, sys.maxsize):
        with tempfile.TemporaryDirectory() as folder:
            differing, methods = compare(histories, Path(folder), "--master", arguments.master)
        wrong += len(differing)
        sys.stdout.write(f"{methods.total()} keys: {dict(methods)}; {len(differing)} differ\n")
        for (history, key), (wanted, found) in sorted(differing.items()):
            sys.stdout.write(f"seed {history} {key}: in one process {wanted}, on Spark {found}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
