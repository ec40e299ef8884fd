"""`make fuzz`: random frames against a broker; the last line is JSON, the exit status 0 if all went
well. `--seed` repeats a run, and with `--only` one connection of it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.fuzz.logins import run as logins
from tests.fuzz.logins.sockets import fuzz_sockets
from tests.fuzz.run import fuzz

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_GROWTH_MAX = 64 << 20
_MODES = ("served", "before", "during", "sockets")


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--mode",
        choices=_MODES,
        default="served",
        help="requests that are served, frames before or during a login, or all through sockets",
    )
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this connection of a mode of logins")
    wanted = parser.parse_args()
    runs: dict[str, Callable[[argparse.Namespace], tuple[dict[str, Any], str]]] = {
        "served": _served,
        "before": _logins,
        "during": _logins,
        "sockets": _sockets,
    }
    began = time.monotonic()
    try:
        report, failure = runs[wanted.mode](wanted)
    except logins.Failed as error:
        report, failure = {}, str(error)
    report |= {"mode": wanted.mode, "seed": wanted.seed}
    report["seconds"] = round(time.monotonic() - began, 1)
    if failure:
        _progress(failure)
    sys.stdout.write(json.dumps(report) + "\n")
    return 1 if failure else 0


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _served(wanted: argparse.Namespace) -> tuple[dict[str, Any], str]:
    outcome = asyncio.run(fuzz(wanted.frames, wanted.seed, with_clients=True, progress=_progress))
    growth = outcome.memory_bytes[-1] - outcome.memory_bytes[0]
    report = {
        "frames": outcome.frames,
        "captured_frames": len(outcome.captured),
        "seen": outcome.seen,
        "memory_growth_bytes": growth,
    }
    return report, "" if growth < MEMORY_GROWTH_MAX else "memory grows"


def _logins(wanted: argparse.Namespace) -> tuple[dict[str, Any], str]:
    outcome = logins.fuzz(wanted.mode, wanted.frames, wanted.seed, _progress, wanted.only)
    leak = logins.growth(outcome.held)
    report = {
        "frames": outcome.frames,
        "connections": outcome.connections,
        "slowest_frame_ms": round(outcome.slowest_frame_ms, 1),
        "ends": outcome.ends,
        "held": [dataclasses.asdict(one) for one in outcome.held],
    }
    return report, f"it holds more than before: {leak}" if leak else ""


def _sockets(wanted: argparse.Namespace) -> tuple[dict[str, Any], str]:
    run, looks = asyncio.run(fuzz_sockets(wanted.frames // 2, wanted.seed))
    leak = logins.growth(looks)
    report = {
        "frames": run.frames,
        "connections": run.connections,
        "ends": run.ends,
        "held": [dataclasses.asdict(one) for one in looks],
    }
    return report, f"it holds more than before: {leak}" if leak else ""


if __name__ == "__main__":
    sys.exit(main())
