"""Nodes of a demo that was killed, which go on."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.cli._output import say_progress
from raftctl.errors import ConfigError
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.processes import OWNER_FILE, load_process

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "raftctl-demo-"
"""Begins the name of the temporary folder of `jepsen demo`, with its cluster somewhere below."""


def left_over(temporary: Path) -> Iterator[Path]:
    """Folders of clusters whose demo is gone while nodes run."""
    for layout in sorted(temporary.glob(f"{PREFIX}*/**/cluster.json")):
        owner = load_process(layout.parent / OWNER_FILE)
        if owner is not None and owner.is_alive():
            continue
        # Made or removed at this moment, or by another program.
        with contextlib.suppress(ConfigError, OSError):
            cluster = LocalCluster.load(layout.parent)
            if any(cluster.is_running(node) for node in cluster.layout.nodes):
                yield layout.parent


def warn_of_left_over(known: Path | None = None) -> None:
    """Name on stderr the command that stops nodes of killed demos, except those of `known`."""
    for folder in left_over(Path(tempfile.gettempdir())):
        if known is not None and known.absolute() == folder:
            continue
        say_progress(
            "warning: nodes of a demo that was killed still run: "
            f"raftctl down --dir {folder} stops them"
        )
