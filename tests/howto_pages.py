"""The how-to pages as their readers use them: commands are copied into a shell, in order.

A page's indented and fenced blocks are either commands or something else that is known by its
first line. What stands below a command that follows a `$` is what the page shows of its output.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from raftctl.localcluster.processes import ProcessRef, wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAGES = [README, TUTORIAL, *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
_INDENT = "    "
_FENCE = "```"
_PROMPT = "$ "
_PROGRAMS = re.compile(
    r"(sudo )?(\.venv/bin/)?(raftctl|jepsen|echo|printf|make|curl|python|pip|sleep|wait|kill"
    r"|export|spark-submit|docker|kubectl)\b"
)
NOT_COMMANDS = re.compile(
    r"[\w.-]+=|\{|#!/bin/sh|store/|coverage: "
    r"|leader \d|import |from |class |async |def |assert |@| |\[project|[a-z_]+:$"
)
"""How blocks begin that are no commands: properties, JSON, YAML, scripts, files, output, code."""
NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {
        "make demo": "half a minute: test_local_cluster.py runs it",
        ".venv/bin/jepsen spark check": "needs Java: test_harness_pages.py runs it",
    },
    "check-histories.md": {
        "pip install": "changes the environment that runs it, which has Spark",
    },
    "measure.md": {
        "make bench": "minutes to hours, Java and Maven: integration/test_bench*.py, in small",
        "make soak": "hours: unit/bench/test_soak.py has what it computes",
        "python -m tests.bench": "minutes to hours: integration/test_bench*.py, in small",
    },
    "secure-a-cluster.md": {
        "raftctl storage format": "its files are of no cluster here: test_format.py runs it",
        "raftctl kafka-configs.sh": "its broker has no such store: test_java_tools.py changes one",
        "raftctl tokens": "its users are of no cluster here: test_token_commands.py runs it",
    },
    "simulate.md": {
        "make sim-ci": "200 seeds: a stage of continuous integration of its own",
        "make mutants": "an hour: unit tests run a sample of them",
        "make properties  ": "2,000 sequences: the next line of the page runs a hundred",
        ".venv/bin/python -m tests.bench": "minutes, and only figures",
    },
    "tutorial.md": {
        "make setup": "installs what the tests already run with",
        "export PATH": "the test has the programs on its path",
    },
}
"""Page -> the commands, by their beginnings, that no reader of the tests types, and why."""
_CONTINUED = "\\"
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page."""

    page: str
    line: int
    section: str
    """The nearest heading above."""
    command: str
    shown: tuple[str, ...]
    """Lines that the page shows of its output."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that are indented or fenced, without the indent."""

    line: int
    section: str
    lines: tuple[str, ...]

    @property
    def is_commands(self) -> bool:
        """Whether a reader would copy them into a shell."""
        first = self.lines[0]
        return first.startswith(_PROMPT) or _PROGRAMS.match(first) is not None


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order; an empty line ends an indented one."""
    section, gathered, began, fenced = "", list[str](), 0, False
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([*lines, ""], start=1):
        if line.startswith(_FENCE):
            fenced = not fenced
        is_inside = fenced or line.startswith(_INDENT)
        if is_inside and not line.startswith(_FENCE):
            began = began or number
            gathered.append(line if fenced else line.removeprefix(_INDENT))
            continue
        if gathered and not fenced:
            yield Block(began, section, tuple(gathered))
            gathered, began = [], 0
        if line.startswith("#"):
            section = line.lstrip("# ")


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page, each with its continuation lines."""
    for block in blocks(page):
        if block.is_commands:
            yield from _steps_of(page, block)


def steps_to_run(page: Path) -> Iterator[Step]:
    """The commands of a page but those that stand in `NOT_RUN`."""
    left_out = tuple(NOT_RUN.get(page.name, ()))
    return (step for step in steps(page) if not step.command.startswith(left_out))


def _steps_of(page: Path, block: Block) -> Iterator[Step]:
    is_session = block.lines[0].startswith(_PROMPT)
    at = 0
    while at < len(block.lines):
        began, command = at, block.lines[at].removeprefix(_PROMPT)
        at += 1
        while command.endswith(_CONTINUED):
            command = f"{command[:-1].rstrip()} {block.lines[at].strip()}"
            at += 1
        shown = []
        while is_session and at < len(block.lines) and not block.lines[at].startswith(_PROMPT):
            shown.append(block.lines[at])
            at += 1
        if command.strip():
            yield Step(page.name, block.line + began, block.section, command, tuple(shown))


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it wrote to stdout and stderr, in order."""

    status: int
    output: str


@dataclass
class Reader:
    """Who copies commands into a shell, in a folder, and writes own names for those of the page."""

    folder: Path
    writes: dict[str, str] = field(default_factory=dict)
    """What the page says -> what is written instead, in this order."""
    background: list[ProcessRef] = field(default_factory=list)

    def written(self, text: str) -> str:
        """A text of the page as it is typed."""
        for said, own in self.writes.items():
            text = text.replace(said, own)
        return text

    def run(self, text: str, timeout_s: float = 60, more: Mapping[str, str] | None = None) -> Done:
        """Runs a command line; what it leaves in the background goes on until `close`."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with tempfile.TemporaryFile() as output:
            with subprocess.Popen(
                ["bash", "-c", self.written(text)],
                cwd=self.folder,
                env={**os.environ, **(more or {}), "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as shell:
                try:
                    status = shell.wait(timeout_s)
                except subprocess.TimeoutExpired:
                    os.killpg(shell.pid, signal.SIGKILL)
                    status = -signal.SIGKILL
            output.seek(0)
            return Done(status, output.read().decode())

    def close(self) -> None:
        """Ends what runs in the folder."""
        here = self.folder.resolve()
        found = []
        for process in psutil.process_iter(["cwd"]):
            where = process.info["cwd"]
            if where is not None and here in (Path(where), *Path(where).parents):
                found.append(ProcessRef(process.pid, process.create_time()))
        for one in found:
            one.send(signal.SIGKILL)
        assert wait_gone(found, _STOP_S) == []


_ID = r"(?<!\S)(?=\S*[a-z])(?=\S*[A-Z])[A-Za-z0-9_-]{22}(?!\S)"
_ANY = re.compile(rf"{_ID}|\S*[0-9]\S*|-|\S*[:/=]\S*")
"""Words of an output that differ from run to run: ids (one in 40 has no digit), numbers, addresses,
dashes for none."""
ELLIPSIS = "..."


def shape(line: str) -> list[str]:
    """A line with what differs from run to run taken out."""
    return [_ANY.sub("*", word) for word in line.split()]


def lacking(step: Step, output: str) -> list[str]:
    """The lines that a page shows of a command and that its output has nothing like."""
    found = [shape(line) for line in output.splitlines()]
    return [line for line in step.shown if not any(_fits(shape(line), one) for one in found)]


def _fits(shown: list[str], found: list[str]) -> bool:
    if ELLIPSIS in shown:
        at = shown.index(ELLIPSIS)
        return found[:at] == shown[:at]
    return shown == found
