"""`raftctl plugins` and `raftctl version`."""

from __future__ import annotations

import platform
from importlib.metadata import entry_points

import raftctl
from raftctl.cli._output import Output, OutputOption, show, table


def plugins(output: OutputOption = Output.TABLE) -> None:
    """Lists plug-ins, which `broker.plugin` can name."""
    from raftctl.plugins import BROKER_GROUP

    rows = [
        {"name": point.name, "object": point.value, "package": point.dist and point.dist.name}
        for point in sorted(entry_points(group=BROKER_GROUP), key=lambda point: point.name)
    ]
    cells = [list(row.values()) for row in rows]
    show(output, rows, table(("NAME", "OBJECT", "PACKAGE"), cells, "no plug-in is installed"))


def version(output: OutputOption = Output.TABLE) -> None:
    """Prints the versions of raftctl and Python."""
    document = {"raftctl": raftctl.__version__, "python": platform.python_version()}
    show(output, document, " ".join(f"{name} {number}" for name, number in document.items()))
