"""Which form a history's text has, told by what it holds, not by the name of its file."""

from __future__ import annotations

import enum
import io
import json
import re
from typing import TYPE_CHECKING

from jepsen.history._operations import HistoryError, Op, numbered_json, read_edn, read_jepsen_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Format(enum.StrEnum):
    """The forms of histories."""

    AUTO = "auto"
    JSON_LINES = "json"
    EDN = "edn"
    LOG = "log"


_LOG = re.compile(r"^.*\bINFO +jepsen\.util - \S+\s+:(?:invoke|ok|fail|info)\b", re.MULTILINE)
_EDN_MAP = re.compile(r":(?:process|type|f)\s")


def detect(text: str) -> Format:
    """The form of the text. HistoryError if it has none of them."""
    start = text.lstrip("\ufeff \t\r\n")
    first = start.partition("\n")[0]
    if first.startswith("{") and _is_json_object(first):
        return Format.JSON_LINES
    if _LOG.search(start):
        return Format.LOG
    if start.startswith(("{", "[", "(", "#", ";")) and _EDN_MAP.search(start):
        return Format.EDN
    what = f"it begins with {first[:60]!r}" if first else "it is empty"
    raise HistoryError(f"not a history: {what}; write JSON lines, EDN or Jepsen's log")


def read_text(text: str, form: Format = Format.AUTO) -> list[Op]:
    """The operations. HistoryError names what is wrong with the text."""
    match detect(text) if form is Format.AUTO else form:
        case Format.EDN:
            return read_edn(text)
        case Format.LOG:
            return read_jepsen_log(text)
    return list(json_lines(io.StringIO(text, newline="\n")))


def json_lines(lines: Iterable[str]) -> Iterator[Op]:
    """The operations of lines with their line feeds, as they are read. Raises HistoryError.

    A last line that a crash has cut short is left out.
    """
    for number, line in enumerate(lines):
        if not line.endswith("\n") and not _is_json_object(line):
            return
        yield numbered_json(line, number)


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
