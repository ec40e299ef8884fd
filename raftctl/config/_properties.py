"""Java's `.properties` syntax, so that a broker's configuration file reads as it does elsewhere.

Pure. Source: the documentation of `java.util.Properties.load`; the later of two equal keys wins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLANKS = " \t\f"
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a file, in order. Raises ConfigError for a bad escape."""
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match is None:
            # The line is not quoted: it may hold a secret.
            raise ConfigError(f"line {number} cannot be read: write key=value")
        key, value = (_unescape(part, number) for part in match.groups())
        values[key] = value
    return values


def write_properties(values: Mapping[str, str]) -> str:
    """Return the text from which `parse_properties` reads the same keys and values."""
    return "".join(f"{_escape_key(key)}={_escape(value)}\n" for key, value in values.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments; numbered by their first line."""
    pending, first = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            first = number
            if not line or line[0] in "#!":
                continue
        if _is_continued(line):
            pending += line[:-1]
            continue
        if pending or line:
            yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _is_continued(line: str) -> bool:
    """Return whether an odd number of backslashes ends the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ConfigError(f"line {number}: \\u needs four hexadecimal digits")
        return _CONTROL.get(code, code)

    return _ESCAPE.sub(replace, text)


def _escape(value: str) -> str:
    escaped = _escape_controls(value)
    return "\\" + escaped if escaped[:1] == " " else escaped


def _escape_key(key: str) -> str:
    return re.sub(r"(^[#!]|[=: ])", r"\\\1", _escape_controls(key))


def _escape_controls(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    for letter, control in _CONTROL.items():
        escaped = escaped.replace(control, "\\" + letter)
    return escaped
