"""How far verdicts are behind a writer that keeps a pace."""

from __future__ import annotations

import bisect
import threading
import time
from typing import TYPE_CHECKING

from jepsen.history import OpType
from jepsen.history.formats import to_json
from jepsen.spark.recipe import UNIQUE_REGISTER, Recipe
from tests.kit.spark.equality import generated

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from pyspark.sql import SparkSession

    from jepsen.spark.live import Seen

OPERATIONS_A_KEY = 100
IDLE_S = 10.0
_SLICE_S = 0.05

_FIRST = 1_000
"""Lines that are written before the pace begins."""


class _Writer:
    """Writes a history at a pace, and knows when each operation was there."""

    def __init__(self, path: Path, lines: list[tuple[str, bool]], lines_a_second: int) -> None:
        self._path = path
        self._lines = lines
        self._slice = max(1, int(lines_a_second * _SLICE_S))
        self._ended: list[int] = [0]
        self._at: list[float] = [time.monotonic()]
        self.judged = threading.Event()
        """That the first lines were, so the stream is up."""

    def run(self) -> None:
        """Returns when all is written."""
        with self._path.open("w") as file:
            self._write(file, self._lines[:_FIRST])
            self.judged.wait()
            begin = time.monotonic()
            for number, first in enumerate(range(_FIRST, len(self._lines), self._slice)):
                time.sleep(max(0.0, begin + number * _SLICE_S - time.monotonic()))
                self._write(file, self._lines[first : first + self._slice])

    def _write(self, file: TextIO, part: list[tuple[str, bool]]) -> None:
        file.writelines(line for line, _ in part)
        file.flush()
        self._at.append(time.monotonic())
        self._ended.append(self._ended[-1] + sum(ends for _, ends in part))

    def written_at(self, operation: int) -> float:
        """When the end of that operation, counted from one, was in the file."""
        return self._at[bisect.bisect_left(self._ended, operation)]


def lags(spark: SparkSession, rate: int, seconds: int, scratch: Path) -> tuple[float, list[float]]:
    """(seconds until the stream is up, of each micro-batch those from its first operation's end to
    the verdict).
    """
    from jepsen.spark.check import Question
    from jepsen.spark.live import watch

    path = scratch / "stream.jsonl"
    operations = rate * seconds
    recipe = Recipe(UNIQUE_REGISTER, operations, max(1, operations // OPERATIONS_A_KEY))
    lines = [
        (to_json(op) + "\n", op.type is not OpType.INVOKE)
        for op in generated(recipe, scratch / "stream")
    ]
    writer = _Writer(path, lines, 2 * rate)
    found: list[float] = []
    before, begin, start_s = 0, time.monotonic(), 0.0

    def judged(seen: Seen) -> bool:
        nonlocal before, start_s
        if not writer.judged.is_set():
            start_s = time.monotonic() - begin
            writer.judged.set()
        elif seen.operations > before:
            found.append(time.monotonic() - writer.written_at(before + 1))
        before = seen.operations
        return True

    thread = threading.Thread(target=writer.run, daemon=True)
    thread.start()
    own = scratch / "watched"
    watch(spark, str(path), "auto", Question("linearizable"), own, judged, idle_s=IDLE_S)
    thread.join()
    return start_s, found
