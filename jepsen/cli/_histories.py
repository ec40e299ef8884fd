"""Arguments, options and output of the commands that take histories, with Spark and without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.checkers.registry import MODELS
from jepsen.checkers.verdict import WORDS, Verdict, verdict_document
from jepsen.cli._output import Output, anomaly_lines, exit_status, say, say_json, tell
from jepsen.errors import InputError
from jepsen.history import edn
from jepsen.history.formats import Format, detect, read_text
from jepsen.history.parquet import is_parquet, read_parquet
from jepsen.store import HISTORY_FILE

if TYPE_CHECKING:
    from jepsen.history import Op

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
    """Raise InputError unless the option's value is one of those known."""
    if given not in known:
        raise InputError(f"{option} {given}: choose one of {', '.join(known)}")


def refuse_doubles(dumps: list[str]) -> None:
    """Raise InputError if there is nothing to be compared."""
    if len(set(dumps)) < max(2, len(dumps)):
        raise InputError("DUMP: name a file for each replica, two at least and none twice")


def show_replicas(verdict: Verdict, output: Output) -> None:
    """Print the verdict, and exit with its status."""
    if output is Output.JSON:
        say_json(verdict_document(verdict))
    else:
        show(f"{verdict.statistics['replicas']} replicas", verdict)
    raise typer.Exit(exit_status(verdict.valid))


def show(file: str, verdict: Verdict) -> None:
    """Print a history's verdict, and on stderr what was found."""
    say(f"{file} {WORDS[verdict.valid]}")
    for line in anomaly_lines(verdict):
        tell(f"  {line}")
    if verdict.why_unknown:
        tell(f"  {verdict.why_unknown}")


def history_of(source: str | Path, form: Format) -> tuple[list[Op], bool]:
    """(the history, whether in its form failed cas and reads of nil say nothing). HistoryError."""
    if isinstance(source, Path):
        return read_parquet(source)
    return read_text(source, form), detect(source) is Format.EDN


def source_of(file: str) -> str | Path:
    """The text of a file, or of the history in a run's folder; of Parquet the path. InputError."""
    path = Path(file)
    if path.is_dir():
        if not (path / HISTORY_FILE).is_file():
            raise InputError(f"{file}: not a run: name a folder with {HISTORY_FILE}, or a file")
        path = path / HISTORY_FILE
    try:
        if is_parquet(path):
            return path
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: not a history: it is not text") from None
