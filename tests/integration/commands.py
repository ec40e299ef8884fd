"""`raftctl` run as users run it, in a process of its own, without the start of an interpreter.

Each command is forked from a process that has imported other people's libraries and the types of
records and requests. The commands' own modules each of them imports for itself, as a new
interpreter does: what one forgets is not made up for by another.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import setproctitle

from raftctl.cli.main import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.context import ForkServerContext

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND_TIMEOUT_S = 90
IMPORTED_ONCE = (
    "aiohttp",
    "confluent_kafka.admin",
    "psutil",
    "raftctl.cli.main",
    "raftctl.config",
    "raftctl.metadata.requests",
    "structlog",
    "typer",
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left: its exit status and everything it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The JSON that a successful command printed."""
        assert self.status == 0, self
        return json.loads(self.stdout)


def raftctl(*arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
    """Runs `raftctl` to its end. Any thread may call it."""
    with tempfile.TemporaryDirectory() as folder:
        written = [Path(folder) / name for name in ("stdout", "stderr")]
        command = _forks().Process(target=_command, args=(arguments, written, dict(os.environ)))
        command.start()
        try:
            command.join(timeout_s)
            status = command.exitcode
        finally:
            command.kill()
            command.join()
            command.close()
        if status is None:
            raise subprocess.TimeoutExpired(["raftctl", *arguments], timeout_s)
        return CommandResult(status, *(path.read_text() for path in written))


@cache
def _forks() -> ForkServerContext:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([*IMPORTED_ONCE])
    return forks


def _command(
    arguments: Sequence[str], written: Sequence[Path], environment: Mapping[str, str]
) -> None:
    """The forked process: it has the streams, signals, place and title of a command."""
    for number, path in enumerate(written, start=1):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setproctitle.setproctitle(" ".join([sys.executable, "-m", "raftctl", *arguments]))
    sys.exit(run(arguments))
