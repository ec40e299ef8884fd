"""The quorums that the benchmark compares: raftctl's voters, and etcd on loopback.

etcd is loaded by a compiled generator. It needs Debian's `etcd-server` and Go; `missing` says what
is not installed. Both have defaults, but for etcd's election timeout, which is raftctl's, and its
heartbeat, a tenth of that as etcd advises.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.config import make_config, write_properties
from raftctl.localcluster.layout import (
    FIRST_CONTROLLER_ID,
    HOST,
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

    from raftctl.localcluster.processes import ProcessRef


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

    def __init__(self, directory: Path) -> None:
        """Starts them; their disks and logs are in `directory`."""
        ids = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + VOTERS)
        nodes = [
            LocalNode(f"controller-{node_id}", node_id, "controller", port)
            for node_id, port in zip(ids, free_ports(VOTERS), strict=True)
        ]
        timeout = str(ELECTION_TIMEOUT_MS)
        self._layout = ClusterLayout(
            random_uuid_text(),
            tuple(nodes),
            (
                ("controller.quorum.election.timeout.ms", timeout),
                ("controller.quorum.fetch.timeout.ms", timeout),
            ),
        )
        self._directory = directory
        self._processes: dict[int, ProcessRef] = {}
        first = initial_controllers(self._layout, random_uuid_text)
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
        command = [sys.executable, "-m", "tests.bench.quorum.load", "--leader", address]
        return run_load([*command, "--cluster-id", self._layout.cluster_id, *load.options()])

    def prober(self, survivors: Sequence[int]) -> list[str]:
        """See `Voters.prober`."""
        addresses = ",".join(self._layout.nodes[voter].address for voter in survivors)
        command = [sys.executable, "-m", "tests.bench.quorum.probe", "--controllers", addresses]
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


SOURCE = Path(__file__).parent / "etcdload"
CONNECTIONS = 8
"""Over which etcd's clients spread; about what does best: with one, its client is the limit."""
BACKEND_BYTES_MAX = 8 << 30
"""etcd refuses puts when its database is this large; 2 GiB by default, which large values fill."""
FSYNC_COUNTERS = (
    "etcd_disk_wal_fsync_duration_seconds_count",
    "etcd_disk_backend_commit_duration_seconds_count",
)
"""Of its log and of its database; both end in fdatasync."""


def missing() -> str:
    """What has to be installed before etcd can be measured; empty if nothing."""
    lacks = []
    if shutil.which("etcd") is None:
        lacks.append("etcd (Debian: apt-get install etcd-server)")
    if shutil.which("go") is None:
        lacks.append("Go 1.22 or newer, for its load generator")
    return " and ".join(lacks)


class EtcdVoters:
    """See `tests.bench.quorum.voters.Voters`."""

    name = "etcd"

    def __init__(self, directory: Path) -> None:
        """Builds the generator and starts the servers; all their files are in `directory`."""
        ports = free_ports(2 * VOTERS)
        self._clients = [f"{HOST}:{port}" for port in ports[:VOTERS]]
        self._peers = [f"{HOST}:{port}" for port in ports[VOTERS:]]
        self._directory = directory
        directory.mkdir(parents=True)
        self._generator = directory / "etcdload"
        build = ["go", "build", "-o", str(self._generator), "."]
        subprocess.run(build, cwd=SOURCE, check=True, capture_output=True)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for voter in range(VOTERS):
            self.start(voter)

    def leader(self) -> int:
        """See `Voters.leader`."""
        return wait_for(self._leader, "no etcd leads")

    def _leader(self) -> int | None:
        for voter in self._processes:
            status = self._status(voter)
            if status is not None and status["leader"] == status["header"]["member_id"]:
                return voter
        return None

    def _status(self, voter: int) -> dict[str, Any] | None:
        """What its JSON gateway says of the voter; a leader of 0 is left out of it."""
        request = urllib.request.Request(
            f"http://{self._clients[voter]}/v3/maintenance/status", data=b"{}"
        )
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(request, timeout=1) as answer:
                status: dict[str, Any] = json.load(answer)
            return status if "leader" in status else None
        return None

    def pid(self, voter: int) -> int:
        """See `Voters.pid`."""
        return self._processes[voter].pid

    def fsyncs(self) -> int:
        """See `Voters.fsyncs`, as its metrics tell."""
        return sum(self._fsyncs(voter) for voter in self._processes)

    def _fsyncs(self, voter: int) -> int:
        url = f"http://{self._clients[voter]}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
        return sum(int(float(line[1])) for line in lines if line and line[0] in FSYNC_COUNTERS)

    def load(self, load: Load) -> dict[str, Any]:
        """See `Voters.load`."""
        command = [str(self._generator), "-endpoints", self._clients[self.leader()]]
        return run_load([*command, "-connections", str(CONNECTIONS), *load.options("-")])

    def prober(self, survivors: Sequence[int]) -> list[str]:
        """See `Voters.prober`."""
        endpoints = ",".join(self._clients[voter] for voter in survivors)
        return [str(self._generator), "-probe", "-endpoints", endpoints]

    def kill(self, voter: int) -> None:
        """See `Voters.kill`."""
        process = self._processes.pop(voter)
        process.kill()
        process.wait()

    def start(self, voter: int) -> None:
        """See `Voters.start`."""
        name = f"etcd-{voter}"
        cluster = ",".join(f"etcd-{i}=http://{peer}" for i, peer in enumerate(self._peers))
        client, peer = f"http://{self._clients[voter]}", f"http://{self._peers[voter]}"
        options = {
            "name": name,
            "data-dir": str(self._directory / name),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster,
            "initial-cluster-state": "new",
            "election-timeout": str(ELECTION_TIMEOUT_MS),
            "heartbeat-interval": str(ELECTION_TIMEOUT_MS // 10),
            "quota-backend-bytes": str(BACKEND_BYTES_MAX),
            "log-level": "error",
        }
        command = ["etcd", *(f"--{option}={value}" for option, value in options.items())]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[voter] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """See `Voters.stop`."""
        for voter in list(self._processes):
            self.kill(voter)
