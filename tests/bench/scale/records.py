"""Starts watched nodes and reads what they noted (`watched.py`)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftctl.cli.files import read_config_file
from raftctl.cli.offline.storage import FirstVoters, format_storage
from raftctl.localcluster.processes import ProcessRef, start_program
from raftctl.storage import METADATA_LOG_NAME
from tests.bench.scale.loading import processor_s, resident_mib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode

Span = tuple[float, float]
"""From and to, by `time.perf_counter`."""
RECORD = "watched.jsonl"
NOTED_S = 0.2
"""Until a node has noted that its loop was late."""


def launch(properties: Path, log: Path) -> ProcessRef:
    """Starts the node of a properties file, and has it noted beside that what it does."""
    module = "tests.bench.scale.watched"
    record = properties.with_name(RECORD)
    return start_program([sys.executable, "-m", module, str(properties), str(record)], log)


class WatchedNode:
    """One node of the cluster and what it noted."""

    def __init__(self, cluster: LocalCluster, node: LocalNode) -> None:
        self._cluster = cluster
        self._node = node
        self._directory = cluster.directory / node.name
        self._read_bytes = 0
        self._notes: list[dict[str, Any]] = []
        self.node_id = node.node_id
        self.address = node.address

    def start(self) -> None:
        """Starts its process."""
        self._cluster.start(self._node)

    def kill(self) -> None:
        """Ends its process as a crash would."""
        self._cluster.kill(self._node)

    def wipe(self) -> None:
        """Formats its disk anew, and forgets what was noted; it must not run."""
        config = read_config_file(str(self._directory / "node.properties"))
        for directory in config.directories:
            shutil.rmtree(directory)
        joins = config.is_controller and not config.controller_quorum_voters
        first = FirstVoters(no_initial_controllers=joins)
        format_storage(config, self._cluster.layout.cluster_id, first=first)
        (self._directory / RECORD).unlink(missing_ok=True)
        self._read_bytes, self._notes = 0, []

    def resident_mib(self) -> float:
        """Of its process; 0 if there is none."""
        process = self._cluster.process(self._node)
        return resident_mib(process.pid) if process is not None and process.is_alive() else 0.0

    def processor_s(self) -> float:
        """The time that its process has used; it must run."""
        process = self._cluster.process(self._node)
        return 0.0 if process is None else processor_s(process.pid)

    def notes(self, what: str, after: float = 0.0) -> list[dict[str, Any]]:
        """What was noted of this kind since, in order."""
        self._read_on()
        return [one for one in self._notes if one["what"] == what and one["at"] >= after]

    def _read_on(self) -> None:
        path = self._directory / RECORD
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read_bytes)
            # The last line may be only half there.
            whole, end, _ = file.read().rpartition(b"\n")
        self._read_bytes += len(whole + end)
        self._notes += map(json.loads, whole.splitlines())

    def log_directory(self) -> Path:
        """Where its metadata log and snapshots are."""
        config = read_config_file(str(self._directory / "node.properties"))
        return Path(config.metadata_directory) / METADATA_LOG_NAME


async def longest_stall(nodes: Sequence[WatchedNode], span: Span) -> dict[str, float]:
    """The longest that an event loop of these was late meanwhile, and by its own work, in ms."""
    await asyncio.sleep(NOTED_S)
    began, ended = span
    stalls = [
        one
        for node in nodes
        for one in node.notes("stall", began)
        if one["at"] - one["ms"] / 1000 <= ended
    ]
    return {
        "stall_ms": max((one["ms"] for one in stalls), default=0.0),
        "stall_own_ms": max((one["own_ms"] for one in stalls), default=0.0),
    }
