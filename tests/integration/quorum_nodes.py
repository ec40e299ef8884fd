"""Nodes of a quorum whose voters change, one by one, as an operator runs them."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftctl.cli.offline.storage import random_uuid_text
from raftctl.config import write_properties
from raftctl.localcluster.layout import HOST, LOCAL_TIMEOUTS
from raftctl.localcluster.ports import free_ports
from raftctl.localcluster.processes import ProcessRef, wait_gone
from raftctl.localcluster.status import ask_controllers
from tests.integration.clusters import launcher, processes_of, wait_until
from tests.integration.commands import raftctl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.integration.commands import CommandResult

STOP_S = 15.0
SERVERS = "controller.quorum.bootstrap.servers"
STATIC = "controller_quorum_voters"


@dataclass
class QuorumNode:
    """A node: its files, where it listens, and its process."""

    node_id: int
    role: str
    port: int
    directory: Path
    process: ProcessRef | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    @property
    def properties(self) -> Path:
        """Its configuration."""
        return self.directory.with_suffix(".properties")

    @property
    def log(self) -> Path:
        """What it wrote."""
        return self.directory.with_suffix(".log")


@dataclass
class QuorumNodes:
    """Controllers and brokers that know only some controllers to ask."""

    root: Path
    cluster_id: str = field(default_factory=random_uuid_text)
    nodes: dict[int, QuorumNode] = field(default_factory=dict)

    def add(self, role: str, node_ids: Iterable[int]) -> list[QuorumNode]:
        """New nodes, not formatted and not configured yet."""
        ids = list(node_ids)
        made = [
            QuorumNode(node_id, role, port, self.root / f"node-{node_id}")
            for node_id, port in zip(ids, free_ports(len(ids)), strict=True)
        ]
        self.nodes.update({node.node_id: node for node in made})
        return made

    def configure(self, node: QuorumNode, bootstrap: Iterable[QuorumNode], **more: str) -> None:
        """Writes its configuration; `more` are keys with underscores.

        It knows servers to ask, unless the voters are among the keys.
        """
        listener = "CONTROLLER" if node.role == "controller" else "PLAINTEXT"
        values = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            **({} if STATIC in more else {SERVERS: ",".join(one.address for one in bootstrap)}),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{node.address}",
            "log.dirs": str(node.directory),
            **LOCAL_TIMEOUTS,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        node.properties.write_text(write_properties(values))

    def format(self, node: QuorumNode, *options: str) -> None:
        """Formats its disk."""
        done = raftctl(
            "storage",
            "format",
            *("--config", str(node.properties), "--cluster-id", self.cluster_id),
            *options,
        )
        assert done.status == 0, done

    def start(self, node: QuorumNode) -> None:
        """Starts its process."""
        node.process = launcher().launch(node.properties, node.log)

    def stop(self, *nodes: QuorumNode, number: signal.Signals = signal.SIGTERM) -> None:
        """Asks the processes to end, or kills them, and waits until they are gone."""
        running = [node.process for node in nodes if node.process is not None]
        for process in running:
            process.send(number)
        left = wait_gone(running, STOP_S)
        assert left == [], [node.log.read_text() for node in nodes]

    def kill_all(self) -> None:
        """Ends everything, and makes sure of it."""
        self.stop(*self.nodes.values(), number=signal.SIGKILL)
        assert processes_of(self.root) == []

    def directory_id(self, node: QuorumNode) -> str:
        """That of the node's disk."""
        told = raftctl("storage", "info", "--config", str(node.properties), "--output", "json")
        return str(told.document[0]["directory_id"])

    def quorum(self, at: QuorumNode, *arguments: str) -> CommandResult:
        """Runs `raftctl quorum` against one controller, whichever leads."""
        command, *rest = arguments
        return raftctl("quorum", command, "--controllers", at.address, *rest, "--timeout", "30")

    def remove(self, at: QuorumNode, node: QuorumNode, directory_id: str = "") -> CommandResult:
        """Takes the vote from a node, by default that of its present disk."""
        identity = directory_id or self.directory_id(node)
        options = ("--controller-id", str(node.node_id), "--controller-directory-id", identity)
        return self.quorum(at, "remove-voter", *options)

    def status(self, *at: QuorumNode) -> dict[str, Any] | None:
        """What the leader among these controllers says."""
        return ask_controllers([node.address for node in at], 2.0).leader

    def wait_for_voters(self, node_ids: list[int], *at: QuorumNode) -> dict[str, Any]:
        """Waits until a leader among these has these voters, and its own record committed."""
        found: list[dict[str, Any]] = []

        def told() -> bool:
            status = self.status(*at)
            if status is None or status["metadata_offset"] < 0:
                return False
            found[:] = [status]
            return [voter["node_id"] for voter in status["voter_set"]] == node_ids

        wait_until(told, lambda: f"voters {node_ids}, but {json.dumps(found)[:2000]}")
        return found[0]
