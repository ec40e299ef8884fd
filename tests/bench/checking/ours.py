"""Judges one history in a process of its own: `python -m tests.bench.checking.ours FILE...`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.checkers.linearizable import Budget, check_linearizable
from jepsen.history.formats import read_history
from tests.bench.checking.histories import MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMORY_BYTES_MAX = 8 << 30


def judge(path: Path, timeout_s: float) -> dict[str, object]:
    """The verdict, and what it took from a history in memory on."""
    history = list(read_history(path))
    budget = Budget(MEMORY_BYTES_MAX, time.monotonic() + timeout_s, time.monotonic)
    processor, began = time.process_time(), time.perf_counter()
    result = check_linearizable(history, MODEL, budget)
    return {
        "verdict": {True: "valid", False: "invalid", "unknown": "unknown"}[result.valid],
        "wall_s": time.perf_counter() - began,
        "processor_s": time.process_time() - processor,
        "configurations_peak": max((key.configurations_peak for key in result.keys), default=0),
    }


def main(arguments: Sequence[str]) -> None:
    """Prints a JSON object a file, and one with the greatest memory of the process."""
    timeout_s, *paths = arguments
    for path in paths:
        sys.stdout.write(json.dumps(judge(Path(path), float(timeout_s))) + "\n")
    sys.stdout.write(json.dumps({"memory_bytes": _peak_memory()}) + "\n")


def _peak_memory() -> int:
    """Since the start of this program: getrusage would count what its parent had before."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main(sys.argv[1:])
