"""The demo's own folders, and those of a demo that was killed, whose nodes go on."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from raftctl.cli._output import say_progress
from raftctl.errors import ConfigError
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.processes import ProcessRef, load_process, save_process

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "raftctl-demo-"
_OWNER = "demo.json"


def new_folder() -> Path:
    """An empty folder among the temporary ones."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX))


def mark_as_own(folder: Path) -> None:
    """Writes down which process cares for the folder's nodes."""
    own = ProcessRef(os.getpid(), psutil.Process().create_time())
    save_process(folder / _OWNER, own)


def left_over(temporary: Path) -> Iterator[Path]:
    """Folders of demos that are gone while nodes of theirs run."""
    for layout in sorted(temporary.glob(f"{_PREFIX}*/cluster.json")):
        owner = load_process(layout.parent / _OWNER)
        if owner is not None and owner.is_alive():
            continue
        # Made or removed at this moment, or by another program.
        with contextlib.suppress(ConfigError, OSError):
            cluster = LocalCluster.load(layout.parent)
            if any(cluster.is_running(node) for node in cluster.layout.nodes):
                yield layout.parent


def warn_of_left_over(known: Path | None = None) -> None:
    """Names, on stderr, what stops the nodes that killed demos have left, but those of `known`."""
    for folder in left_over(Path(tempfile.gettempdir())):
        if known is not None and known.absolute() == folder:
            continue
        say_progress(
            "warning: nodes of a demo that was killed still run: "
            f"raftctl down --dir {folder} stops them"
        )
