"""Three voters of ours as processes on loopback: started, loaded, killed, gone afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

from raftctl.config import make_config, write_properties
from raftctl.ids import uuid_text
from raftctl.localcluster.layout import (
    FIRST_CONTROLLER_ID,
    ClusterLayout,
    LocalNode,
    initial_controllers,
    node_values,
)
from raftctl.localcluster.ports import free_ports
from raftctl.localcluster.processes import start_node, wait_gone
from raftctl.localcluster.status import ask_controller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from raftctl.config import NodeConfig
    from raftctl.localcluster.processes import ProcessRef

    Format = Callable[[NodeConfig, str, str | None], object]
    """Formats the directories of a node for a cluster id, with the first voters."""

T = TypeVar("T")

VOTERS = 3
ELECTION_TIMEOUT_MS = 1000
"""Of both peers: the least time after which a follower gives up a leader that is silent."""
READY_S = 30.0
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Load:
    """What a load process does: the same for all peers."""

    outstanding: int
    """Puts under way at any time."""
    value_bytes: int
    seconds: float
    """That are measured."""
    warmup_s: float

    def options(self, dashes: str = "--") -> list[str]:
        """On the command line of a load process, which knows them by the same names."""
        values = {
            "outstanding": self.outstanding,
            "value-bytes": self.value_bytes,
            "seconds": self.seconds,
            "warmup": self.warmup_s,
        }
        return [text for name, value in values.items() for text in (dashes + name, str(value))]


class Voters(Protocol):
    """A quorum that is measured."""

    name: str

    def leader(self) -> int:
        """Which voter leads, waiting for one. Raises TimeoutError."""

    def pid(self, voter: int) -> int:
        """The voter's process."""

    def fsyncs(self) -> int:
        """How often the voters have had their disks sync, all together, since they were started."""

    def load(self, load: Load) -> dict[str, Any]:
        """Runs the load process against the leader and returns its report."""

    def prober(self, survivors: Sequence[int]) -> list[str]:
        """The command of a process that puts until the survivors have committed something."""

    def kill(self, voter: int) -> None:
        """Kills a voter as a crash would."""

    def start(self, voter: int) -> None:
        """Starts a voter with what it has on disk."""

    def stop(self) -> None:
        """Kills all."""


class RaftctlVoters:
    """Controllers without brokers, each with its directory, fsync on as always."""

    name = "raftctl"

    def __init__(self, directory: Path, cluster_id: str, format_storage: Format) -> None:
        """Starts them; their disks and logs are in `directory`."""
        ids = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + VOTERS)
        nodes = [
            LocalNode(f"controller-{node_id}", node_id, "controller", port)
            for node_id, port in zip(ids, free_ports(VOTERS), strict=True)
        ]
        timeout = str(ELECTION_TIMEOUT_MS)
        self._layout = ClusterLayout(
            cluster_id,
            tuple(nodes),
            (
                ("controller.quorum.election.timeout.ms", timeout),
                ("controller.quorum.fetch.timeout.ms", timeout),
            ),
        )
        self._directory = directory
        self._processes: dict[int, ProcessRef] = {}
        first = initial_controllers(self._layout, lambda: uuid_text(uuid4()))
        for voter, node in enumerate(nodes):
            path = directory / node.name
            path.mkdir(parents=True)
            values = node_values(self._layout, node, str(path / "data"))
            (path / "node.properties").write_text(write_properties(values))
            format_storage(make_config(values, lambda _: None), self._layout.cluster_id, first)
            self.start(voter)

    def leader(self) -> int:
        """See `Voters.leader`."""
        return wait_for(self._leader, "no controller leads")

    def _leader(self) -> int | None:
        for voter, node in enumerate(self._layout.nodes):
            if voter in self._processes:
                status = ask_controller(node.address)
                if status is not None and status["role"] == "leader":
                    return voter
        return None

    def pid(self, voter: int) -> int:
        """See `Voters.pid`."""
        return self._processes[voter].pid

    def fsyncs(self) -> int:
        """See `Voters.fsyncs`: of the metadata log."""
        return sum(self._status(voter)["metadata_log_fsyncs"] for voter in self._processes)

    def _status(self, voter: int) -> dict[str, Any]:
        address = self._layout.nodes[voter].address
        return wait_for(lambda: ask_controller(address), f"{address} does not answer")

    def load(self, load: Load) -> dict[str, Any]:
        """See `Voters.load`."""
        address = self._layout.nodes[self.leader()].address
        command = [sys.executable, "-m", "raftctl.bench.quorum_load", "--leader", address]
        return run_load([*command, "--cluster-id", self._layout.cluster_id, *load.options()])

    def prober(self, survivors: Sequence[int]) -> list[str]:
        """See `Voters.prober`."""
        addresses = ",".join(self._layout.nodes[voter].address for voter in survivors)
        command = [sys.executable, "-m", "raftctl.bench.quorum_probe", "--controllers", addresses]
        return [*command, "--cluster-id", self._layout.cluster_id]

    def kill(self, voter: int) -> None:
        """See `Voters.kill`."""
        process = self._processes.pop(voter)
        process.send(signal.SIGKILL)
        if wait_gone([process], READY_S):
            raise TimeoutError(f"process {process.pid} does not end")

    def start(self, voter: int) -> None:
        """See `Voters.start`."""
        path = self._directory / self._layout.nodes[voter].name
        self._processes[voter] = start_node(path / "node.properties", path / "node.log")

    def stop(self) -> None:
        """See `Voters.stop`."""
        for voter in list(self._processes):
            self.kill(voter)


def wait_for(look: Callable[[], T | None], complaint: str) -> T:
    """Looks again and again until there is something to see. Raises TimeoutError."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(POLL_S)
    raise TimeoutError(complaint)


def run_load(command: Sequence[str]) -> dict[str, Any]:
    """Runs a load process, ours or the compiled one, to its end; its report."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    report: dict[str, Any] = json.loads(done.stdout)
    return report
