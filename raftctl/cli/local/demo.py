"""`raftctl demo`: the demo of the harness, which is a program of its own."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from raftctl.cli._options import OverrideOption, Printer

HARNESS = "jepsen.cli.main"


def demo(
    printer: Printer,
    keep: Annotated[
        str, typer.Option(metavar="DIR", help="Keep history, data and logs in this directory.")
    ] = "",
    override: OverrideOption = None,
) -> None:
    """Kills nodes of a new cluster while clients use it.

    Starts 3 controllers and 3 brokers. Kills the active controller and a partition leader, starts
    both again, and reads everything at the end. Exit status 0 if nothing is lost, duplicated or
    out of order, 1 if something is, 2 if too little was done to know. It is `jepsen demo`.
    """
    from raftctl.cli.local._left_over import warn_of_left_over

    warn_of_left_over()
    words = ["demo", "--output", printer.output.value]
    words += ["--keep", keep] if keep else []
    for key in override or ():
        words += ["-o", key]
    # In place of this process, so that a signal reaches the one that has started the nodes.
    os.execv(sys.executable, [sys.executable, "-m", HARNESS, *words])
