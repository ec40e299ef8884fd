"""Help of both programs on a terminal of 80 columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import typer

from jepsen.cli.commands import SECTIONS
from jepsen.cli.commands import app as harness
from raftctl.cli.app import make_app

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("A1")

COLUMNS = 80
CUT = re.compile(r"[a-z]\.\.\.$|…")
"""The end of a line that was too long; a metavar such as `HISTORY...` ends otherwise."""
PROGRAMS = {"raftctl": make_app(), "jepsen": harness}


def helps(path: str, command: Any) -> Iterator[tuple[str, str]]:
    """The words of each command and of each group, with the text of its help."""
    context = command.make_context(path, [], resilient_parsing=True, terminal_width=COLUMNS)
    yield path, command.get_help(context)
    for name, child in getattr(command, "commands", {}).items():
        yield from helps(f"{path} {name}", child)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_line_of_help_is_cut_or_too_long(program: str) -> None:
    found = dict(helps(program, typer.main.get_command(PROGRAMS[program])))
    assert len(found) > 10
    for words, text in found.items():
        lines = text.splitlines()
        assert not [one for one in lines[1:] if CUT.search(one)], words
        assert max(map(len, lines)) <= COLUMNS, words


def test_each_command_of_the_harness_stands_below_a_heading() -> None:
    root = typer.main.get_command(harness)
    assert isinstance(root, typer.core.TyperGroup)
    shown = [name for names in SECTIONS.values() for name in names]
    assert len(set(shown)) == len(shown)
    assert set(root.commands) <= set(shown)
