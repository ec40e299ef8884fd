"""Runs the table: `python -m tests.peers.differential [--only PATTERN] [--at KAFKA OURS]`.

Prints what differs and is not listed, and what is listed and does not. `--count` writes the numbers
of the list anew, `--serve` starts both systems and waits.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.listed import judged, lines_of, listed
from tests.peers.differential.playing import System
from tests.peers.differential.run import compared, recounted
from tests.peers.differential.systems import both
from tests.peers.differential.table import scripts
from tests.peers.tools import CACHE, KAFKA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    """As the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="scripts like this")
    parser.add_argument("--at", nargs=2, metavar=("KAFKA", "OURS"), help="host:port of each")
    parser.add_argument("--all", action="store_true", help="print listed differences, too")
    parser.add_argument("--count", action="store_true", help="write the list's numbers anew")
    parser.add_argument("--serve", action="store_true", help="start both systems and wait")
    options = parser.parse_args()
    with _systems(options.at) as (kafka, ours):
        if options.serve:
            sys.stdout.write(f"{kafka.host}:{kafka.port} {ours.host}:{ours.port}\n")
            sys.stdout.flush()
            sys.stdin.read()
            return
        began = time.monotonic()
        chosen = scripts(options.only)
        found, asked = compared(kafka, ours, chosen)
        entries = listed()
        verdict = judged(found, [] if options.all else entries)
        sys.stdout.writelines(f"{line}\n" for line in lines_of(verdict.unlisted))
        if options.only == "*":
            sys.stdout.writelines(f"{line}\n" for line in verdict.stale)
        took = time.monotonic() - began
        told = f"{asked} requests, {verdict.differing} differ, {len(verdict.unlisted)} unlisted"
        sys.stdout.write(f"{told}, {took:.1f} s\n")
        if options.count:
            recounted(found)


@contextlib.contextmanager
def _systems(at: list[str] | None) -> Iterator[tuple[System, System]]:
    if at is not None:
        (kafka, ours) = (one.rpartition(":") for one in at)
        yield System("kafka", kafka[0], int(kafka[2])), System("raftctl", ours[0], int(ours[2]))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    jars = kafka_jars(KAFKA_VERSION, CACHE)
    with tempfile.TemporaryDirectory() as folder, both(Path(folder), jars) as systems:
        yield systems


if __name__ == "__main__":
    main()
