"""`make bench-check`: our checker and Porcupine judge the same histories; how fast we write them.

Both begin with a history in memory, each in a process of its own; Porcupine is built from the Go
module proxy (`porcupine/go.mod` pins it). The logs of etcd are no part of the project: they are
judged if `--histories` says where they are. Nothing is asserted: goals stand beside the figures.
Both take turns until there are TURNS, or the case has taken TURNS_S; the middle one stands there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen import compiled
from jepsen.history import Op, OpType
from jepsen.history.formats import HistoryWriter, read_jepsen_log, to_json
from tests.bench.checking.histories import (
    last_read_spoiled,
    many_registers,
    one_register,
    porcupine_lines,
    with_crashed,
)
from tests.bench.figures import figure, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SOURCES = Path(__file__).parent / "porcupine"
WRITTEN_OPS = 100_000
TURNS, TURNS_S = 5, 30.0


class Case(NamedTuple):
    """Histories that are judged together."""

    name: str
    make: Callable[[], list[list[Op]]]
    goal: str


class Measured(NamedTuple):
    """What it took to judge the histories of a case."""

    verdicts: dict[str, int]
    wall_s: float
    processor_s: float
    memory_bytes: int


def cases(keys: int, logs: Path | None) -> list[Case]:
    """All that are judged; those of etcd only if they are there."""
    several = [
        Case(
            "ten_clients_invalid",
            lambda: [last_read_spoiled(one_register(10_000, 10))],
            "goal: 10 times faster than Porcupine, a tenth of its memory",
        ),
        Case(
            "twenty_clients_invalid",
            lambda: [last_read_spoiled(one_register(1_000, 20))],
            "goal: invalid in at most 5 s",
        ),
        Case(
            "thirty_clients_invalid",
            lambda: [last_read_spoiled(one_register(1_000, 30))],
            "goal: invalid in at most 5 s",
        ),
        Case(
            "many_crashed_invalid",
            lambda: [last_read_spoiled(with_crashed(200, 5, 24))],
            "goal: invalid in at most 5 s",
        ),
        Case(
            "many_keys_valid",
            lambda: [many_registers(keys, 1_000, 5)],
            "goal: at most 1.5 times Porcupine's time",
        ),
    ]
    if logs is not None:
        goal = "goal: at most twice Porcupine's time"
        several.insert(0, Case("etcd_logs", lambda: etcd_logs(logs), goal))
    return several


def etcd_logs(folder: Path) -> list[list[Op]]:
    """The logs of real clusters, by name."""
    paths = sorted((folder / "porcupine" / "etcd").glob("*.log"))
    return [read_jepsen_log(path.read_text(encoding="utf-8")) for path in paths]


def compiled_before() -> str:
    """What our judge finds of the compiled search, which is compiled once for each machine.

    Porcupine is compiled before it is measured, too.
    """
    if not compiled.available():
        return "numba is not installed"
    from jepsen.compiled.codes import NEVER, WRITE
    from jepsen.compiled.registers import judge_rows

    judge_rows(bytearray(struct.pack("=6q", WRITE, 0, 0, 0, NEVER, 0)), 0)
    return "kept by numba from an earlier run"


def build_porcupine(folder: Path) -> Path:
    """The program that judges with Porcupine. RuntimeError without Go."""
    if shutil.which("go") is None:
        raise RuntimeError("go is not on the path: install Go 1.21 or newer")
    shutil.copytree(SOURCES, folder)
    subprocess.run(["go", "build", "-o", "judge", "."], cwd=folder, check=True, timeout=600)
    return folder / "judge"


def measured(command: Sequence[str]) -> Measured:
    """Runs a judge, whose output is a JSON object a history and one with its memory."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *each, last = map(json.loads, done.stdout.splitlines())
    verdicts: dict[str, int] = {}
    for one in each:
        verdicts[one["verdict"]] = verdicts.get(one["verdict"], 0) + 1
    return Measured(
        verdicts,
        sum(one["wall_s"] for one in each),
        sum(one["processor_s"] for one in each),
        last["memory_bytes"],
    )


class _Turn(NamedTuple):
    """Both judges, one after the other."""

    ours: Measured
    theirs: Measured

    @property
    def wall_ratio(self) -> float:
        return round(self.ours.wall_s / self.theirs.wall_s, 3)

    def row(self) -> dict[str, Any]:
        """What both took, and ours as a part of Porcupine's."""
        return {
            "raftctl": self.ours._asdict(),
            "porcupine": self.theirs._asdict(),
            "wall_ratio": self.wall_ratio,
            "processor_ratio": round(self.ours.processor_s / self.theirs.processor_s, 3),
            "memory_ratio": round(self.ours.memory_bytes / self.theirs.memory_bytes, 3),
        }


def judge_case(case: Case, porcupine: Path, folder: Path, timeout_s: float) -> dict[str, Any]:
    """The case's row: both judges, and ours as a part of Porcupine's."""
    ours, theirs = _written(case.make(), folder / case.name)
    command = [sys.executable, "-m", "tests.bench.checking.ours", str(timeout_s), *ours]
    other = [str(porcupine), "-timeout", f"{timeout_s}s", *theirs]
    began = time.monotonic()
    turns: list[_Turn] = []
    while len(turns) < TURNS and (not turns or time.monotonic() - began < TURNS_S):
        turns.append(_Turn(measured(command), measured(other)))
    turns.sort(key=lambda turn: turn.wall_ratio)
    median = turns[len(turns) // 2]
    return {"goal": case.goal, **median.row(), "wall_ratios": [one.wall_ratio for one in turns]}


def _written(histories: Iterable[list[Op]], folder: Path) -> tuple[list[str], list[str]]:
    """The files of the histories for ours and for Porcupine."""
    folder.mkdir()
    ours, theirs = [], []
    for number, lines in enumerate(histories):
        paths = folder / f"{number}.jsonl", folder / f"{number}.txt"
        with paths[0].open("w") as file:
            file.writelines(to_json(op) + "\n" for op in lines)
        with paths[1].open("w") as file:
            file.writelines(line + "\n" for line in porcupine_lines(lines))
        ours.append(str(paths[0]))
        theirs.append(str(paths[1]))
    return ours, theirs


def written_a_second(folder: Path) -> float:
    """Lines of a history that the harness writes in a second, each at once with the system."""
    lines = [Op(at, at * 1_000, at % 10, OpType.OK, "write", at) for at in range(WRITTEN_OPS)]
    with tempfile.TemporaryDirectory(dir=folder) as own:
        began = time.perf_counter()
        with HistoryWriter(Path(own) / "history.jsonl") as writer:
            for op in lines:
                writer.append(op)
        return WRITTEN_OPS / (time.perf_counter() - began)


def _line(name: str, row: dict[str, Any]) -> str:
    told = []
    for who in ("raftctl", "porcupine"):
        one = row[who]
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in one["verdicts"].items())
        memory = one["memory_bytes"] / 1e6
        told.append(f"{who} {one['wall_s']:.3f} s, {memory:.0f} MB ({verdicts})")
    return f"{name}: {'; '.join(told)}; {row['wall_ratio']} of its time ({row['goal']})\n"


def main() -> None:
    """Judges, prints a line a case, and writes the JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.checking", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench-check.json"))
    parser.add_argument("--histories", type=Path, help="A folder of real histories.")
    parser.add_argument("--keys", type=int, default=1_000, help="Of a thousand operations each.")
    parser.add_argument("--timeout", type=float, default=30.0, help="Seconds a history and judge.")
    parser.add_argument("--only", nargs="*", help="Names of cases.")
    options = parser.parse_args()
    document = report({})
    document["compiled_search"] = compiled_before()
    sys.stdout.write(f"compiled search: {document['compiled_search']}\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        porcupine = build_porcupine(folder / "porcupine")
        written = [written_a_second(folder) for _ in range(3)]
        document["figures"]["history_written"] = figure(
            written, "operations/s", "goal: at least 50,000", 0
        )
        for case in cases(options.keys, options.histories):
            if options.only and case.name not in options.only:
                continue
            row = judge_case(case, porcupine, folder, options.timeout)
            document["figures"][case.name] = row
            sys.stdout.write(_line(case.name, row))
            sys.stdout.flush()
    one = document["figures"]["history_written"]
    sys.stdout.write(f"history_written: {one['median']} {one['unit']} ({one['goal']})\n")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
