"""Breaking a cluster that the harness did not start: a program of its owner does it.

The program is called with a word and perhaps a node's name (docs/how-to/test-any-kafka.md):

nodes                          prints a line a node: `controller NAME ID` or `broker NAME ID`
kill, start, stop NAME         ends its process at once, starts it, asks it to end and waits
pause, resume NAME             lets it stand still, and go on

What is so already stays so: to start a node that runs is no error. Exit status 0: it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
from typing import NamedTuple

from jepsen.errors import InputError

ROLES = ("controller", "broker")
TAKES_S = 60.0


class Node(NamedTuple):
    """Of a cluster that the program controls."""

    role: str
    name: str
    node_id: int
    """By which Kafka clients know it."""


class Control:
    """Calls the program."""

    def __init__(self, command: str) -> None:
        """Asks for the nodes. InputError for a program that does not say which there are."""
        self._words = split(command)
        try:
            told = subprocess.run(
                [*self._words, "nodes"], capture_output=True, text=True, timeout=TAKES_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"--control {command}: {error}") from None
        if told.returncode:
            raise InputError(f"--control {command}: nodes: {_last_line(told.stderr)}")
        self.nodes = [_node(line, command) for line in told.stdout.splitlines()]
        if not self.names("broker"):
            raise InputError(f"--control {command}: nodes: no line `broker NAME ID`")

    def names(self, role: str) -> list[str]:
        """Of the nodes in a role, in the order in which they were told."""
        return [node.name for node in self.nodes if node.role == role]

    async def do(self, what: str, node: str) -> None:
        """Waits until it is done. RuntimeError, with the program's last words, if it is not."""
        process = await asyncio.create_subprocess_exec(
            *self._words,
            what,
            node,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C is for the harness, which then has the program heal what is broken.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TAKES_S):
                _, errors = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{what} {node}: {_last_line(errors.decode(errors='replace'))}")


def split(command: str) -> list[str]:
    """The words of the command, as a shell would take them. InputError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--control {command}: {error}") from None
    if not words:
        raise InputError("--control: name a program")
    return words


def _node(line: str, command: str) -> Node:
    words = line.split()
    if len(words) != 3 or words[0] not in ROLES or not words[2].isdecimal():
        raise InputError(
            f"--control {command}: nodes: {line!r}: write `controller NAME ID` or `broker NAME ID`"
        )
    return Node(words[0], words[1], int(words[2]))


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2] or "it said nothing"
