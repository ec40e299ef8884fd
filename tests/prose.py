"""Sentences of Markdown pages, for the rule that they are short."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS_MAX = 25
_ITEM = re.compile(r"^\s*(?:[*-]|\d{1,2}\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`\"(\[*-])")


def paragraphs(text: str) -> Iterator[str]:
    """Each paragraph or item of a list on one line, without code, tables, headings and pictures."""
    gathered: list[str] = []
    is_code = False
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            is_code = not is_code
        is_item = _ITEM.match(line) is not None
        is_plain = not (
            is_code
            or not line.strip()
            or line.startswith(("```", "#", "|", "<", "!["))
            or (line.startswith("    ") and not gathered)
        )
        if gathered and (is_item or not is_plain):
            yield " ".join(gathered)
            gathered = []
        if is_plain:
            gathered.append(_ITEM.sub("", line, count=1).strip())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page. Code within a line counts as a word, a link as its text."""
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]*`", "`code`", paragraph)
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        yield from _END.split(plain)


def long_sentences(text: str) -> list[str]:
    """Those of more than `WORDS_MAX` words."""
    return [one for one in sentences(text) if len(one.split()) > WORDS_MAX]
