"""The look of the harness's pages: that of the console, in light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import raftctl
from jepsen.report._style import DARK, LIGHT, STYLE

CONSOLE = Path(raftctl.__file__).parent / "console" / "page" / "style.css"


def tokens(text: str) -> dict[str, str]:
    """Name to value of each colour."""
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", text))


def test_colours_are_those_of_the_console() -> None:
    css = CONSOLE.read_text()
    light, dark = css.partition("@media (prefers-color-scheme: dark)")[::2]
    chosen = dark.partition(':root[data-theme="dark"]')[2]
    for mine, theirs in ((LIGHT, light), (DARK, dark), (DARK, chosen)):
        of_console = tokens(theirs.partition("* {")[0])
        assert tokens(mine).items() <= of_console.items()


def test_every_colour_is_used_and_none_is_written_out() -> None:
    named = set(re.findall(r"var\((--[\w-]+)\)", STYLE))
    assert named == set(tokens(LIGHT)) == set(tokens(DARK))
    assert re.findall(r"#[0-9a-f]{3,6}\b", STYLE.partition("* {")[2]) == []
