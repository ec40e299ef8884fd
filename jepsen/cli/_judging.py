"""Options and output that the commands share which judge histories, with Spark and without."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jepsen.checkers.registry import MODELS
from jepsen.checkers.verdict import WORDS, Verdict, verdict_document
from jepsen.cli._output import Output, anomaly_lines, exit_status, say, say_json, tell
from jepsen.errors import InputError
from jepsen.history import edn

FAILURES = ("auto", "observe", "ignore")
MIB = 1 << 20

DumpsArgument = Annotated[
    list[str], typer.Argument(metavar="DUMP...", help="Dumps of the replicas, one file each.")
]


def model_option(text: str) -> tuple[str, Any]:
    """(name, initial value) of `name` or `name(initial value in EDN)`. Raises InputError."""
    name, bracket, rest = text.partition("(")
    one_of("--model", name, MODELS)
    if not bracket:
        return name, None
    try:
        values = list(edn.read_all(rest.removesuffix(")")))
    except edn.EdnError as error:
        raise InputError(f"--model {text}: {error}") from None
    if len(values) != 1:
        raise InputError(f"--model {text}: write one value in the brackets")
    return name, values[0]


def one_of(option: str, given: str, known: Any) -> None:
    """Raises InputError unless the option's value is one of those known."""
    if given not in known:
        raise InputError(f"{option} {given}: choose one of {', '.join(known)}")


def refuse_doubles(dumps: list[str]) -> None:
    """Raises InputError if there is nothing to be compared."""
    if len(set(dumps)) < max(2, len(dumps)):
        raise InputError("DUMP: name a file for each replica, two at least and none twice")


def show_replicas(verdict: Verdict, output: Output) -> None:
    """Prints the verdict, and exits with its status."""
    if output is Output.JSON:
        say_json(verdict_document(verdict))
    else:
        show(f"{verdict.statistics['replicas']} replicas", verdict)
    raise typer.Exit(exit_status(verdict.valid))


def show(file: str, verdict: Verdict) -> None:
    """Prints a history's verdict, and on stderr what was found."""
    say(f"{file} {WORDS[verdict.valid]}")
    for line in anomaly_lines(verdict):
        tell(f"  {line}")
    if verdict.why_unknown:
        tell(f"  {verdict.why_unknown}")
