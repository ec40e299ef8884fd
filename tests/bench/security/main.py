"""What security costs: `python -m tests.bench.security.main --output FILE [--only CELL]`.

A cell has figures of its own with their goals; nothing is asserted here. `authorizer` is one
process without a network: a decision of a StandardAuthorizer that has millions of rules. `quotas`
is a client that sends all it can beside another one, to Apache Kafka and to us.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.figures import report
from tests.bench.security import authorizer, quotas

if TYPE_CHECKING:
    from collections.abc import Sequence

CELLS = {"authorizer": authorizer.run, "quotas": quotas.run}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one cell or all, and write the figures."""
    parser = argparse.ArgumentParser(prog="tests.bench.security", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench-security.json"))
    parser.add_argument("--only", choices=CELLS)
    parser.add_argument("--rules", type=int, default=authorizer.RULES)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    for name in [given.only] if given.only else CELLS:
        for key, value in CELLS[name](given.turns, given.rules).items():
            figures[key] = value
            sys.stdout.write(f"{key}: {value['median']} {value['unit']} ({value['goal']})\n")
            sys.stdout.flush()
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report(figures), indent=2))


if __name__ == "__main__":
    main()
