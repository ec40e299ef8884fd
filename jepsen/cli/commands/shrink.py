"""`jepsen shrink`: the smallest part of an invalid run's faults with which it is still invalid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.checkers.verdict import WORDS
from jepsen.cli import _options as options
from jepsen.cli._output import say, tell
from jepsen.core import overall
from jepsen.runner import shrink as smallest_of
from jepsen.store import DEFAULT_STORE, RunFolder

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Valid
    from jepsen.core.spec import RunSpec


def shrink(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an invalid run.")],
    store: options.StoreOption = DEFAULT_STORE,
) -> None:
    """Finds the fewest faults that keep a run invalid.

    Prints the plan that is left, which `jepsen test --plan` takes. Repeats the test up to 25 times,
    each time with a part of its faults and in a run of its own. In env sim the same plan is the
    same run. Exit status 0: a plan is printed; 2: the test is not invalid with all faults.
    """

    def repeat(spec: RunSpec) -> Valid:
        folder, verdicts = options.run_one(spec, Path(store))
        valid = overall(verdicts)
        tell(f"{len(spec.plan or ())} faults: {WORDS[valid]}  {folder.path}")
        return valid

    plan = smallest_of(RunFolder.open(run), repeat)
    if plan is None:
        tell("the test is not invalid when these faults are repeated")
        raise typer.Exit(2)
    say(json.dumps([fault.to_json() for fault in plan], indent=2))
