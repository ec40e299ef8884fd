"""One test of a matrix and what comes of it, whatever that is.

`python -m jepsen.cli._matrix_run STORE` is a process for one: it reads the test as `Cell.to_json`
writes it, tells on stderr how it goes, and writes it again with what came of it; `not run` where
somebody wanted an end before.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.cli import _options as options
from jepsen.cli._output import say, tell
from jepsen.core import overall, told_faults
from jepsen.errors import ClusterError, InputError
from jepsen.runner.matrix import Cell, Outcome
from jepsen.store import put_aside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jepsen.checkers.verdict import Verdict
    from jepsen.core.spec import RunSpec

logger = logging.getLogger(__name__)

FOUND_MAX = 5
"""Reasons of one checker that are told; all are in the run's folder."""


def run_cell(cell: Cell, store: Path) -> Cell | None:
    """The test with what came of it, whatever it raised; None if somebody wants an end."""
    began_s = time.monotonic()
    spec = cell.spec
    try:
        folder, verdicts = options.run_one(spec, store)
    except KeyboardInterrupt:
        return None
    except InputError as error:
        tell(f"{spec.name}: {error}")
        outcome = Outcome(None, "", (str(error),))
    except ClusterError as error:
        tell(f"{spec.name}: {error}")
        outcome = crashed(spec, store, str(error))
    except Exception as error:
        logger.exception("%s: no verdict, its history is kept", spec.name)
        outcome = crashed(spec, store, repr(error))
    else:
        results = folder.results or {}
        outcome = Outcome(
            overall(verdicts),
            str(folder.path),
            _found(verdicts),
            faults=told_faults(results.get("faults", {})),
        )
        if results.get("interrupted"):
            return None
    return Cell(spec, outcome._replace(seconds=round(time.monotonic() - began_s, 1)))


def crashed(spec: RunSpec, store: Path, why: str) -> Outcome:
    """Of a test that could not be judged."""
    return Outcome(None, put_aside(store, spec.name), (why,))


def _found(verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Why a run is not valid: kinds of anomalies with their numbers, by checker."""
    return tuple(
        f"{name}: {reason}"
        for name, verdict in verdicts.items()
        for reason in _reasons(verdict)[:FOUND_MAX]
    )


def _reasons(verdict: Verdict) -> list[str]:
    counts = Counter(one.name for one in verdict.anomalies)
    told = [f"{name} ({count})" for name, count in counts.items()]
    return told or [verdict.why_unknown] * bool(verdict.why_unknown)


def main() -> None:
    """Runs the test of this process."""
    cell = Cell.from_json(json.load(sys.stdin))
    say(json.dumps((run_cell(cell, Path(sys.argv[1])) or cell).to_json()))


if __name__ == "__main__":
    main()
