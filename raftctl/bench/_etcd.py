"""Three etcd servers on loopback, loaded by a compiled generator: the peer of the quorum benchmark.

Needs Debian's `etcd-server` and Go; `missing` says what is not there. Defaults are kept, but for
the election timeout, which is ours, and the heartbeat, a tenth of it as etcd advises.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftctl.bench._voters import ELECTION_TIMEOUT_MS, VOTERS, run_load, wait_for
from raftctl.localcluster.layout import HOST
from raftctl.localcluster.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.bench._voters import Load

SOURCE = Path(__file__).parent / "etcdload"
CONNECTIONS = 8
"""Over which etcd's clients spread; about what does best: with one, its client is the limit."""
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
    """See `raftctl.bench._voters.Voters`."""

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
            "log-level": "error",
        }
        command = ["etcd", *(f"--{option}={value}" for option, value in options.items())]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[voter] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        """See `Voters.stop`."""
        for voter in list(self._processes):
            self.kill(voter)
