r"""`ssl.principal.mapping.rules`: from a certificate's subject to a principal's name. Pure.

A rule is `DEFAULT`, the subject as it is, or `RULE:PATTERN/REPLACEMENT/[L|U]`; the first whose
pattern matches all of the subject decides. `$1` in a replacement is the pattern's first group, as
in Java. Patterns are Python's regular expressions, which take what Java's rules commonly use.
Source: Apache Kafka's SslPrincipalMapper; KIP-371, KIP-492.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|"
_SPLITTER = re.compile(rf"\s*(?:{_RULE})\s*(,|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None is `DEFAULT`."""
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name, or None if the rule is for other subjects."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._expand, subject)
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name

    def _expand(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda found: self._referred(found, match), self.replacement)

    @staticmethod
    def _referred(found: re.Match[str], match: re.Match[str]) -> str:
        """Return what stands for `$12`: group 12, or group 1 and "2", or the text itself."""
        if found[2] is None:
            return found[1]
        groups, digits = match.re.groups, found[2]
        count = 1
        while count < len(digits) and int(digits[: count + 1]) <= groups:
            count += 1
        if int(digits[:count]) > groups:
            return found[0]
        return (match[int(digits[:count])] or "") + digits[count:]


class PrincipalMapper:
    """The rules of a listener, in their order."""

    def __init__(self, rules: str) -> None:
        """Parse the rules; ValueError with the rule and the remedy if one is malformed."""
        self._rules = tuple(_parsed(rules))

    def name(self, subject: str) -> str | None:
        """Return the name of the principal with that subject, or None if no rule is for it."""
        names = (rule.apply(subject) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def _parsed(rules: str) -> Iterator[_Rule]:
    text, position = rules.strip(), 0
    while position < len(text):
        found = _SPLITTER.match(text, position)
        if found is None:
            raise ValueError(
                f"{text[position:].strip()!r} is no rule: write DEFAULT or "
                "RULE:pattern/replacement/[LU]"
            )
        position = found.end()
        is_default, pattern, replacement, case = found[1], found[2], found[3], found[4]
        if is_default:
            yield _Rule(None)
        elif pattern is not None:
            yield _Rule(_compiled(pattern, replacement), replacement, case)


def _compiled(pattern: str, replacement: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    referred = [found[2] for found in _REFERENCE.finditer(replacement) if found[2]]
    if not compiled.groups and any(int(digits[0]) for digits in referred):
        raise ValueError(f"{pattern!r} has no group for ${referred[0]}: put parentheses in it")
    return compiled
