"""`make properties`: many random sequences of requests, failovers and snapshots.

Sequences come in rounds, each with a seed of its own, so that a round that fails can be run again
by itself. Half of the rounds settle partitions in slices of one.
"""

from __future__ import annotations

import argparse
import sys

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.properties.machine import ModelMachine, SlowModelMachine

ROUND = 100
"""Sequences of one seed."""


def run_round(number: int, sequences: int, steps: int) -> None:
    """Raises whatever a sequence raises, with the steps that led to it on standard output."""
    machine = SlowModelMachine if number % 2 else ModelMachine
    budget = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=budget)


def main() -> int:
    """0: all sequences did what the model does; 1: one did not."""
    parser = argparse.ArgumentParser(prog="make properties", description=__doc__)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=40, help="of a sequence, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    options = parser.parse_args()
    done, number = 0, options.seed
    while done < options.sequences:
        sequences = min(ROUND, options.sequences - done)
        try:
            run_round(number, sequences, options.steps)
        except BaseException:
            command = f"make properties SEQUENCES={sequences} SEED={number}"
            sys.stderr.write(f"round {number} failed; to run it again: {command}\n")
            raise
        done += sequences
        sys.stdout.write(f"round {number}: {done} of {options.sequences} sequences as the model\n")
        sys.stdout.flush()
        number += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
