"""What commands print: a table for people, JSON for programs. Plain text, no colour."""

from __future__ import annotations

import enum
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Output(enum.StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    empty: str = "nothing to show",
    *,
    optional: Sequence[str] = (),
) -> str:
    """Rows under their headings; columns of numbers are set right, None is shown as a dash,
    a bool as yes or no, a list with commas.

    Without rows it is the sentence `empty`: a bare heading does not say that nothing was found.
    A terminal that is too narrow is not shown the `optional` columns, the last of them first; if
    it is too narrow still, a row becomes a block with a line for each column.
    """
    body = [[_cell(value) for value in row] for row in rows]
    if not body:
        return f"{empty}\n"
    lines = [list(columns), *body]
    width = _terminal_width()
    left_out = list(optional)
    text = _lined_up(lines)
    while width is not None and len(max(text.splitlines(), key=len)) > width:
        if not left_out:
            return _blocks(lines)
        column = lines[0].index(left_out.pop())
        lines = [[*line[:column], *line[column + 1 :]] for line in lines]
        text = _lined_up(lines)
    return text


def _lined_up(lines: Sequence[Sequence[str]]) -> str:
    """Headings and rows, each column as wide as its widest cell."""
    columns = range(len(lines[0]))
    widths = [max(len(line[column]) for line in lines) for column in columns]
    right = [all(_is_number(line[column]) for line in lines[1:]) for column in columns]
    return "".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def _blocks(lines: Sequence[Sequence[str]]) -> str:
    """A line for each cell behind its heading, an empty line between rows."""
    headings, *rows = lines
    width = max(map(len, headings))
    return "\n".join(
        "".join(
            f"{heading:<{width}}  {cell}\n" for heading, cell in zip(headings, row, strict=True)
        )
        for row in rows
    )


def _terminal_width() -> int | None:
    """Columns of the terminal that shows the output; None if a file or program takes it."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 topic`, `2 topics`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
    """Prints progress to stderr, so that stdout holds only the result."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)
