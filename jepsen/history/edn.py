"""EDN, Clojure's notation, in which Jepsen writes histories: reads all of it, writes our part.

nil, true, false, numbers, strings and maps become Python's own; a keyword is a `Keyword`, a symbol
a `Symbol`, both kinds of sequence a list, a set a frozenset, a character a string of one. Where a
collection must be hashable (a key of a map, a member of a set) lists become tuples. A tagged value
is handed to the reader's `tags`, or becomes the value alone. Raises `EdnError` for anything else.
Source: github.com/edn-format/edn.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Tags = Mapping[str, Callable[[Any], Any]]

DEPTH_MAX = 200
"""Collections within collections; more is refused rather than overflow the stack."""
_TOKEN = re.compile(
    r"""
    (?:[\s,]|;[^\n]*)+
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<open>\#?\{|\(|\[)
    | (?P<close>[)\]}])
    | (?P<discard>\#_)
    | (?P<tag>\#[A-Za-z][^\s,()\[\]{}";]*)
    | (?P<char>\\(?:u[0-9a-fA-F]{4}|[A-Za-z]+|.))
    | (?P<atom>[^\s,()\[\]{}";\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"[-+]?[0-9]+N?")
_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?M?")
_ATOMS: Mapping[str, Any] = {
    "nil": None,
    "true": True,
    "false": False,
    "##Inf": math.inf,
    "##-Inf": -math.inf,
}
_CHARACTERS: Mapping[str, str] = {
    "newline": "\n",
    "space": " ",
    "tab": "\t",
    "return": "\r",
}
_CLOSING: Mapping[str, str] = {"(": ")", "[": "]", "{": "}", "#{": "}"}
_NO_TAGS: Tags = {}


class EdnError(ValueError):
    """The text is not EDN; the message says where."""


class Keyword(str):
    """A keyword without its colon."""

    __slots__ = ()


class Symbol(str):
    """A symbol."""

    __slots__ = ()


def read_all(text: str, tags: Tags = _NO_TAGS) -> Iterator[Any]:
    """Return the values that the text holds one after the other."""
    reader = _Reader(text, tags)
    while reader.kind:
        if reader.kind == "discard":
            reader.discard(0)
        else:
            yield reader.value(0)


def write(value: Any) -> str:
    """Return the value as EDN. A plain string is written as a string, a `Keyword` as a keyword."""
    match value:
        case None | True | False:
            return {None: "nil", True: "true", False: "false"}[value]
        case Keyword():
            return f":{value}"
        case Symbol():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float() if not math.isfinite(value):
            return "##NaN" if math.isnan(value) else "##Inf" if value > 0 else "##-Inf"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{' '.join(map(write, value))}]"
        case set() | frozenset():
            return f"#{{{' '.join(sorted(map(write, value)))}}}"
        case dict():
            return f"{{{', '.join(f'{write(k)} {write(v)}' for k, v in value.items())}}}"
    raise EdnError(f"{type(value).__name__} has no form in EDN")


class _Reader:
    """A cursor over the tokens; `kind` is that of the current one, empty at the end."""

    def __init__(self, text: str, tags: Tags) -> None:
        self._text = text
        self._tags = tags
        self._end = 0
        self.kind = ""
        self._token = ""
        self._advance()

    def _advance(self) -> None:
        while self._end < len(self._text):
            match = _TOKEN.match(self._text, self._end)
            if match is None:
                raise self._error("unreadable")
            self._end = match.end()
            if match.lastgroup is not None:
                self.kind, self._token = match.lastgroup, match.group()
                return
        self.kind = self._token = ""

    def _error(self, why: str) -> EdnError:
        line = self._text.count("\n", 0, self._end) + 1
        return EdnError(f"line {line}: {why} near {self._text[self._end : self._end + 20]!r}")

    def value(self, depth: int) -> Any:
        """Read the current value and move on to the next token."""
        kind, token = self.kind, self._token
        if depth > DEPTH_MAX:
            raise self._error("nested too deeply")
        self._advance()
        match kind:
            case "atom":
                return self._atom(token)
            case "string":
                return self._string(token)
            case "open":
                return self._collection(token, depth)
            case "tag":
                return self._tags.get(token[1:], _itself)(self._next(depth))
            case "char":
                name = token[1:]
                is_code = len(name) == 5 and name[0] == "u"
                return chr(int(name[1:], 16)) if is_code else _CHARACTERS.get(name, name)
        raise self._error(f"a value is missing before {token!r}" if token else "cut short")

    def _next(self, depth: int) -> Any:
        while self.kind == "discard":
            self.discard(depth)
        return self.value(depth + 1)

    def discard(self, depth: int) -> None:
        """Skip `#_` and the value after it."""
        self._advance()
        self._next(depth)

    def _collection(self, opening: str, depth: int) -> Any:
        items = []
        while self.kind != "close":
            if self.kind == "discard":
                self.discard(depth)
            else:
                items.append(self.value(depth + 1))
        if self._token != _CLOSING[opening]:
            raise self._error(f"{opening} is closed by {self._token}")
        self._advance()
        if opening == "{":
            if len(items) % 2:
                raise self._error("a map has a key without a value")
            pairs = zip(items[::2], items[1::2], strict=True)
            return {hashable(key): value for key, value in pairs}
        return frozenset(map(hashable, items)) if opening == "#{" else items

    def _string(self, token: str) -> str:
        try:
            return str(json.loads(token, strict=False))
        except ValueError:
            raise self._error("a string with an unknown escape") from None

    def _atom(self, token: str) -> Any:
        if token in _ATOMS:
            return _ATOMS[token]
        if token == "##NaN":
            return math.nan
        if token.startswith(":"):
            return Keyword(token[1:])
        if _INTEGER.fullmatch(token):
            return int(token.rstrip("N"))
        if _FLOAT.fullmatch(token):
            return float(token.rstrip("M"))
        if token[0].isdigit():
            raise self._error(f"{token} is no number")
        return Symbol(token)


_HASHABLE = frozenset((int, str, bool, float, type(None)))
"""Types of most values; to ask for them first is quicker than a match."""


def hashable(value: Any) -> Any:
    """Return the value with tuples for lists and sorted pairs for maps, so that it can be a key."""
    if type(value) in _HASHABLE:
        return value
    match value:
        case list() | tuple():
            return tuple(map(hashable, value))
        case dict():
            pairs = [(hashable(key), hashable(item)) for key, item in value.items()]
            return tuple(sorted(pairs, key=repr))
        case set() | frozenset():
            return frozenset(map(hashable, value))
    return value


def _itself(value: Any) -> Any:
    return value
