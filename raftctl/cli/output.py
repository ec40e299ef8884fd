"""What commands print: a table for people, JSON for programs. Plain text, no colour."""

from __future__ import annotations

import enum
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli.arguments import (
    ADDRESSES_DEFAULT,
    BOOTSTRAP_VARIABLE,
    bootstrap_servers,
    local_brokers,
    not_empty,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Output(enum.StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", metavar="table|json", help="How to print the result.")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", metavar="KEY=VALUE", help="Sets a configuration key."),
]
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="Brokers to ask, of any Kafka cluster.",
        callback=bootstrap_servers,
        envvar=BOOTSTRAP_VARIABLE,
        default_factory=local_brokers,
        show_default=ADDRESSES_DEFAULT,
    ),
]
DirectoryOption = Annotated[
    str, typer.Option("--dir", metavar="DIR", help="The directory of the cluster.")
]
TopicOption = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", callback=not_empty("--topic"))
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of librdkafka's client, e.g. `acks=1`."),
]
ConfigOption = Annotated[
    str, typer.Option("--config", metavar="FILE", help="The node's .properties file.")
]


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str = "nothing to show"
) -> str:
    """Rows under their headings; columns of numbers are set right, None is shown as a dash,
    a bool as yes or no.

    Without rows it is the sentence `empty`: a bare heading does not say that nothing was found.
    """
    body = [[_cell(value) for value in row] for row in rows]
    if not body:
        return f"{empty}\n"
    lines = [list(columns), *body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    right = [all(_is_number(line[column]) for line in body) for column in range(len(columns))]
    return "".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def _is_number(cell: str) -> bool:
    """Also true of a dash, which stands for a number that is not known."""
    return cell == "-" or cell.lstrip("-").replace(",", "").isdigit()


def show(output: Output, document: Any, text: str) -> None:
    """Prints the document as JSON, or the text."""
    say(json.dumps(document, indent=2) if output is Output.JSON else text)


def say(text: str) -> None:
    """Prints text to stdout at once."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def say_event(event: str, **fields: Any) -> None:
    """Prints an event as a line of JSON, with the time in ms since the epoch."""
    document = {"timestamp": time.time_ns() // 1_000_000, "name": event, **fields}
    say(json.dumps(document, separators=(",", ":")))


def say_progress(sentence: str) -> None:
    """Tells on stderr how work goes on, so that stdout holds only the result."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
