"""`make fuzz`: random frames against a broker; the last line is JSON, the exit status 0 if all went
well. `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.fuzz.run import fuzz

MEMORY_GROWTH_MAX = 64 << 20


def main() -> int:
    """Runs as told on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()

    def progress(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    began = time.monotonic()
    outcome = asyncio.run(fuzz(wanted.frames, wanted.seed, with_clients=True, progress=progress))
    growth = outcome.memory_bytes[-1] - outcome.memory_bytes[0]
    report = {
        "frames": outcome.frames,
        "seed": wanted.seed,
        "captured_frames": len(outcome.captured),
        "seen": outcome.seen,
        "memory_growth_bytes": growth,
        "seconds": round(time.monotonic() - began, 1),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if growth < MEMORY_GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
