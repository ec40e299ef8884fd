"""Commands about this program: `raftctl plugins`, `version` and `completion`."""

from __future__ import annotations

import enum
import os
import platform
from importlib.metadata import entry_points
from typing import Annotated

import typer

import raftctl
from raftctl.cli._arguments import COMPLETION_VARIABLE
from raftctl.cli._options import Printer


def plugins(printer: Printer) -> None:
    """Lists plug-ins, which `broker.plugin` can name."""
    from raftctl.plugins import BROKER_GROUP

    rows = [
        {"name": point.name, "object": point.value, "package": point.dist and point.dist.name}
        for point in sorted(entry_points(group=BROKER_GROUP), key=lambda point: point.name)
    ]
    printer.show_rows(("NAME", "OBJECT", "PACKAGE"), rows, "no plug-in is installed")


def version(printer: Printer) -> None:
    """Prints the versions of raftctl and Python."""
    document = {"raftctl": raftctl.__version__, "python": platform.python_version()}
    printer.show(document, " ".join(f"{name} {number}" for name, number in document.items()))


class Shell(enum.StrEnum):
    """The shells that Typer completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish|powershell")],
) -> None:
    """Prints the script that completes commands in a shell. `source <(raftctl completion bash)`
    tries it out.

    `raftctl --install-completion` installs it for the shell that runs.
    """
    os.environ[COMPLETION_VARIABLE] = f"source_{shell}"
    # The root command, which finds the variable, prints the script instead of running.
    context.find_root().command.main(args=[], prog_name="raftctl")
