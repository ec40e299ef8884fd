"""`raftctl completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import enum
import os
from typing import Annotated

import typer

VARIABLE = "_RAFTCTL_COMPLETE"
"""With this in its environment `raftctl` completes instead of doing anything."""


class Shell(enum.StrEnum):
    """Those that Typer knows."""

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
    os.environ[VARIABLE] = f"source_{shell}"
    # The root command, which finds the variable, prints the script instead of running.
    context.find_root().command.main(args=[], prog_name="raftctl")
