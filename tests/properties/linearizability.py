"""The checker of linearizability beside trying everything: `make properties-linearizable`.

Small random histories of a register, most of them with one result changed, half of them with
operations whose outcome is unknown. What disagrees is told by its seed.
"""

from __future__ import annotations

import argparse
import random
import sys

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.linearizable.models import Register
from tests.unit.jepsen.histories import linearizable_by_force, made_history, spoiled

FUNCTIONS = (
    ("read", "write", "cas"),
    ("read", "write"),
    ("read", "write", "cas", "cas"),
    ("read", "read", "write", "write", "cas"),
)


def verdicts(seed: int) -> tuple[bool, bool]:
    """(the checker's, that of trying everything) on the history of a seed."""
    rng = random.Random(seed)
    domain = rng.choice((2, 3))
    lines = made_history(
        rng,
        operation_count=rng.choice((5, 7, 8)),
        concurrency=rng.choice((3, 4, 6)),
        domain=domain,
        crashes=rng.choice((0.0, 0.2)),
        functions=rng.choice(FUNCTIONS),
    )
    if rng.random() < 0.8:
        lines = spoiled(rng, lines, domain)
    model = Register(failed_cas_observes=rng.random() < 0.7)
    return check_linearizable(lines, model).valid is True, linearizable_by_force(lines, model)


def main() -> int:
    """Compares, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.properties.linearizability", description=__doc__)
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="Of the first history.")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.histories)
    disagreements = invalid = 0
    for seed in seeds:
        ours, right = verdicts(seed)
        invalid += not right
        if ours is not right:
            disagreements += 1
            sys.stdout.write(f"seed {seed}: said {ours}, is {right}\n")
    sys.stdout.write(
        f"{len(seeds)} histories, {invalid} not linearizable, {disagreements} disagreements\n"
    )
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
