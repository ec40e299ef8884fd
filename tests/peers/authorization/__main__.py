"""Fills the table: `python -m tests.peers.authorization [--write] [--serve]`.

Prints each cell in which the two systems differ. `--write` records what Apache Kafka answers, with
`--only` of some rows alone; of it `page` makes docs/reference/acls.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.kafka.clusters import kafka_jars
from tests.peers.authorization.cells import cells, users
from tests.peers.authorization.recorded import of_cells, recorded, updated, write
from tests.peers.authorization.run import differences, lines, tables
from tests.peers.authorization.systems import both
from tests.peers.tools import CACHE, KAFKA_VERSION


def main() -> None:
    """As the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows with this in their keys")
    parser.add_argument("--write", action="store_true", help="record what Apache Kafka answers")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    jars = kafka_jars(KAFKA_VERSION, CACHE)
    table = [cell for cell in cells() if options.only in cell.row.key]
    with tempfile.TemporaryDirectory() as folder, both(Path(folder), jars, users(table)) as systems:
        began = time.monotonic()
        kafka, ours = tables(*systems, table)
    different = list(differences(kafka, ours))
    sys.stdout.writelines(f"{line}\n" for line in lines(iter(different)))
    took = time.monotonic() - began
    sys.stdout.write(f"{len(table)} cells, {len(different)} differ, {took:.1f} s\n")
    if options.write:
        found = of_cells(kafka.verdicts(), kafka.apis)
        write(updated(recorded(), found, (cell.row.key for cell in cells())))


if __name__ == "__main__":
    main()
