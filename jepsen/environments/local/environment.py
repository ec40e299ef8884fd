"""A cluster of processes on this machine, with their disks.

Blocking calls run on threads, so that clients go on. Links between nodes are the network's
(`jepsen.environments.local._network`).

Faults of disks, without a disk of their own:

    write_error  every write that makes a file longer fails (EFBIG), as on a full disk
    truncate     the node is killed, and its last bytes are gone
    bit_flip     the node is killed, and a bit of its last bytes is flipped
    wipe         the node is killed, and its disk replaced by an empty one

All but the first are of brokers. Bytes are cut or flipped in logs that have grown since the last
recovery points: a broker checks its logs behind their recovery points as it starts, and after a
kill it leaves the ISR until it has caught up. A voter's log must not be damaged, since Raft counts
on what was synced.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
from typing import TYPE_CHECKING, Any

import psutil

from jepsen.environments import Environment, Security
from jepsen.environments.local import NAMESPACES
from jepsen.environments.local._network import Network, RelayNetwork
from jepsen.environments.local.clocks import Clocks
from jepsen.environments.local.namespaces import NamespaceNetwork
from jepsen.environments.local.security import LocalSecurity
from jepsen.environments.raftctl import RaftctlKeyValues, change_voters
from jepsen.errors import ClusterError, InputError
from raftctl.cli.files import read_config_file
from raftctl.cli.offline.storage import FirstVoters, format_storage, random_uuid_text
from raftctl.cli.offline.voters import voter_of
from raftctl.errors import ConfigError
from raftctl.localcluster import cluster as local
from raftctl.localcluster.fork_server import NodeLauncher
from raftctl.localcluster.processes import mark_as_own, start_node
from raftctl.metadata.features import SUPPORTED
from raftctl.raft.messages import AddVoterRequest, RemoveVoterRequest
from raftctl.runtime.real import RealFileSystem, RealRuntime
from raftctl.security.tls import NodeTls
from raftctl.storage import load_directories

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from jepsen.environments import AccessControl, ClusterSpec, Link, Quality
    from raftctl.config import NodeConfig
    from raftctl.localcluster.processes import ProcessRef
    from raftctl.raft.messages import ChangeVotersRequest, Voter

WRITE_ERROR, TRUNCATE, BIT_FLIP, WIPE = "write_error", "truncate", "bit_flip", "wipe"
CERTIFICATE = "certificate"
CUT_BYTES = 1000
FLIPPED_FROM_END = 10
"""Less than any batch of records is long."""
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_METADATA = "__cluster_metadata-0"


def refuse_writes(pid: int) -> None:
    """Let no file of the process grow from now on."""
    _, most = psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE)
    psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, (0, most))


def allow_writes(pid: int) -> None:
    """Let files of the process grow as they could before."""
    _, most = psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE)
    psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, (most, most))


def damage(data: Path, kind: str) -> list[str]:
    """Damage the logs of a broker that does not run, and say which (paths below `data`)."""
    done = []
    for segment in _grown(data):
        _DAMAGES[kind](segment)
        done.append(str(segment.relative_to(data)))
    return done


def _grown(data: Path) -> Iterator[Path]:
    """The last segment of each log that has grown since the recovery points were noted."""
    points = data / _RECOVERY_POINTS
    noted = points.stat().st_mtime_ns if points.exists() else 0
    for log in sorted(one for one in data.iterdir() if one.is_dir() and one.name != _METADATA):
        segments = sorted(log.glob("*.log"))
        if segments and segments[-1].stat().st_mtime_ns > noted:
            yield segments[-1]


def _cut(segment: Path) -> None:
    with segment.open("r+b") as file:
        file.truncate(max(0, segment.stat().st_size - CUT_BYTES))


def _flip(segment: Path) -> None:
    at = segment.stat().st_size - FLIPPED_FROM_END
    if at < 0:
        return
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


_DAMAGES = {TRUNCATE: _cut, BIT_FLIP: _flip}


READY_S = 90.0
ASK_S = 3.0
POLL_S = 0.1
TERMINATE_S = 20.0
IN_SYNC_MAX_S = 20.0


def network_of(kind: str, *, cut: bool) -> Network:
    """Return the network that a test asks for.

    `kind`: one of NETWORKS. `cut`: True if links are to be cut or slowed, which costs relays.
    """
    if kind == NAMESPACES:
        return NamespaceNetwork()
    return RelayNetwork() if cut else Network()


class LocalEnvironment(Environment):
    """A cluster of processes on this machine."""

    def __init__(
        self, directory: Path, spec: ClusterSpec, network: Network, *, skewed: bool = False
    ) -> None:
        """`skewed`: clocks can be set. InputError."""
        self._clocks = Clocks() if skewed else None
        self._network = network
        hosts = network.hosts(spec.controllers + spec.brokers)
        # A forked node has the environment and the network of the process that it is forked from.
        self._launcher = None if skewed or hosts else NodeLauncher()
        self._security = None if spec.security == Security.PLAINTEXT else LocalSecurity()
        keys = {} if self._security is None else self._security.overrides
        wanted = local.ClusterSpec(
            spec.controllers,
            spec.brokers,
            None,
            {**keys, **spec.overrides},
            hosts,
            self._security,
        )
        try:
            self._cluster = local.LocalCluster.open(
                directory, wanted, random_uuid_text, self._format, self._launch
            )
        except ConfigError as error:
            self._close_launcher()
            self._forget_keys()
            raise InputError(str(error)) from error
        self._access = (
            None
            if self._security is None
            else self._security.access(self._cluster.layout.bootstrap)
        )
        mark_as_own(directory)
        self._directory = directory

    def _format(self, config: NodeConfig, cluster_id: str, voters: str | None) -> None:
        security = self._security if config.is_controller else None
        users = () if security is None else security.first_users
        format_storage(config, cluster_id, voters, users=users)

    def _launch(self, properties: Path, log: Path) -> ProcessRef:
        if self._launcher is not None:
            return self._launcher.launch(properties, log)
        folder = properties.parent
        variables = None if self._clocks is None else self._clocks.variables(folder.name, folder)
        return start_node(properties, log, variables, self._network.prefix(folder.name))

    def _close_launcher(self) -> None:
        if self._launcher is not None:
            self._launcher.close()

    def _forget_keys(self) -> None:
        if self._security is not None:
            self._security.remove()

    def _properties(self, node: str) -> Path:
        return self._directory / node / "node.properties"

    @property
    def controllers(self) -> Sequence[str]:
        return [node.name for node in self._cluster.layout.controllers]

    @property
    def brokers(self) -> Sequence[str]:
        return [node.name for node in self._cluster.layout.brokers]

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.layout.bootstrap

    @property
    def access(self) -> AccessControl | None:
        return self._access

    @property
    def disk_faults(self) -> Mapping[str, Sequence[str]]:
        everybody, brokers = [*self.controllers, *self.brokers], self.brokers
        return {
            WRITE_ERROR: everybody,
            TRUNCATE: brokers,
            BIT_FLIP: brokers,
            WIPE: brokers,
        }

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED

    def start(self) -> None:
        """Start every node."""
        self._network.prepare(self._cluster.layout.nodes, self._directory)
        self._cluster.start_all()

    async def wait_ready(self, progress: Callable[[str], None]) -> None:
        """Return when all serve; raises ClusterError if that takes too long."""
        await self._network.open(self._pids)
        wanted = {node.node_id for node in self._cluster.layout.brokers}
        active: set[int] = set()
        for _ in range(int(READY_S / POLL_S)):
            status = await asyncio.to_thread(self._cluster.status, ASK_S)
            if (now := set(status.active_brokers)) != active:
                progress(f"{len(now)} of {len(wanted)} brokers are active")
            active = now
            if wanted <= active:
                return
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"not ready after {READY_S:g} s: see {self._cluster.log_hint}")

    async def close(self) -> None:
        """End what stands between the nodes."""
        await self._network.close()

    def stop(self) -> None:
        """End every process of the cluster; its data and logs stay."""
        self._cluster.kill_all()
        self._close_launcher()
        self._network.remove()
        self._forget_keys()

    def _pids(self) -> dict[str, int]:
        found = ((node.name, self._cluster.process(node)) for node in self._cluster.layout.nodes)
        return {name: process.pid for name, process in found if process is not None}

    def kv_client(self, timeout_s: float, rng: random.Random) -> RaftctlKeyValues:
        nodes = self._cluster.layout.controllers
        addresses = [node.address for node in rng.sample(nodes, len(nodes))]
        return RaftctlKeyValues(addresses, timeout_s, rng)

    async def leader(self) -> str | None:
        found = await self.leadership()
        return None if found is None else found[0]

    async def leadership(self) -> tuple[str, int] | None:
        status = await asyncio.to_thread(self._cluster.status)
        found = status.leader
        if found is None:
            return None
        return self._cluster.layout.node(found["node_id"]).name, found["epoch"]

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """See `Environment`; a life is a process."""
        before = self._pids()
        status = await asyncio.to_thread(self._cluster.status)
        nodes, after = self._cluster.layout.controllers, self._pids()
        answers = ((node.name, status.answers[node.address]) for node in nodes)
        return {
            name: {
                "leads": answer["role"] == "leader",
                "epoch": answer["epoch"],
                "high_watermark": answer["high_watermark"],
                "log_end": answer["log_end_offset"],
                "life": after[name],
            }
            for name, answer in answers
            # A node that was restarted meanwhile may have answered before or after.
            if answer is not None and before.get(name) == after.get(name, -1)
        }

    def broker_name(self, broker_id: int) -> str | None:
        found = [node.name for node in self._cluster.layout.brokers if node.node_id == broker_id]
        return found[0] if found else None

    async def is_in_sync(self) -> bool:
        return await asyncio.to_thread(self._cluster.is_healthy, ASK_S)

    async def committed_at_rest(self) -> int | None:
        """Wait until the cluster is in sync, and return the high watermark of its metadata.

        None if that takes too long.
        """
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + IN_SYNC_MAX_S
        while now_s() < until_s:
            if await self.is_in_sync():
                status = await asyncio.to_thread(self._cluster.status, ASK_S)
                if status.leader is not None:
                    return int(status.leader["high_watermark"])
            await asyncio.sleep(POLL_S)
        return None

    async def kill(self, node: str) -> None:
        self._check_running(node)
        await self._end(node)

    async def _end(self, node: str) -> None:
        await asyncio.to_thread(self._cluster.kill, self._cluster.layout.node(node))

    def _check_running(self, node: str) -> None:
        if not self._cluster.is_running(self._cluster.layout.node(node)):
            raise RuntimeError(f"{node} does not run")

    async def terminate(self, node: str) -> None:
        await asyncio.to_thread(self._cluster.stop, self._cluster.layout.node(node), TERMINATE_S)

    async def start_node(self, node: str) -> None:
        of_node = self._cluster.layout.node(node)
        if not self._cluster.is_running(of_node):
            await asyncio.to_thread(self._cluster.start, of_node)

    async def pause(self, node: str) -> None:
        self._check_running(node)
        self._signal(node, signal.SIGSTOP)

    async def resume(self, node: str) -> None:
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: str, number: signal.Signals) -> None:
        process = self._cluster.process(self._cluster.layout.node(node))
        if process is not None:
            process.send(number)

    async def set_blocked(self, links: Sequence[Link]) -> None:
        await self._network.set_blocked(links)

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        await self._network.set_quality(qualities)

    async def set_clocks(self, offsets_ms: Mapping[str, int]) -> None:
        if self._clocks is not None:
            self._clocks.set(offsets_ms)
        elif offsets_ms:
            raise InputError("--env local: clocks can be set only if the nodes were started so")

    async def remove_voter(self, node: str) -> bool:
        return await self._change_voters(RemoveVoterRequest(self._voter(node).replica))

    async def add_voter(self, node: str) -> bool:
        return await self._change_voters(AddVoterRequest(self._voter(node)))

    def _voter(self, node: str) -> Voter:
        """As its configuration and its disk say."""
        config = read_config_file(str(self._properties(node)))
        found = load_directories(RealFileSystem(), config.directories, config.node_id)
        return voter_of(config, found[config.metadata_directory].directory_id)

    async def _change_voters(self, request: ChangeVotersRequest) -> bool:
        layout = self._cluster.layout
        controllers = [(node.host, node.port) for node in layout.controllers]
        runtime = RealRuntime(log_level="critical")
        tls = NodeTls(runtime, runtime.log)
        security = self._security
        client = None if security is None else tls.client(security.settings, "CONTROLLER")
        try:
            return await change_voters(runtime, controllers, layout.cluster_id, request, client)
        finally:
            tls.close()
            runtime.close()

    async def replace_disk(self, node: str) -> None:
        config = read_config_file(str(self._properties(node)))
        for directory in config.directories:
            await asyncio.to_thread(shutil.rmtree, directory)
        # A controller whose log named it comes back as another replica, which does not vote yet.
        joins = config.is_controller and not config.controller_quorum_voters
        first = FirstVoters(no_initial_controllers=joins)
        cluster_id = self._cluster.layout.cluster_id
        await asyncio.to_thread(format_storage, config, cluster_id, first=first)

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        """See `Machines`, and `jepsen.environments.local.environment` for what is damaged."""
        if kind == CERTIFICATE:
            return await self._renew(nodes, round(amount or 1))
        (node,) = nodes
        if kind == WRITE_ERROR:
            pids = self._pids_of(nodes)
            for pid in pids:
                refuse_writes(pid)
            return bool(pids)
        await self._end(node)
        if kind == WIPE:
            await self.replace_disk(node)
            return True
        data = self._directory / node / "data"
        return bool(await asyncio.to_thread(damage, data, kind))

    async def _renew(self, nodes: Sequence[str], authority: int) -> bool:
        """Whether all the nodes serve new certificates."""
        security = self._security
        if security is None:
            raise InputError(f"{CERTIFICATE}: the cluster has none")
        renew = (asyncio.to_thread(security.renew, node, authority) for node in nodes)
        return all(await asyncio.gather(*renew))

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        if kind == WRITE_ERROR:
            for pid in self._pids_of(nodes):
                allow_writes(pid)
        for node in nodes:
            await self.start_node(node)

    def _pids_of(self, nodes: Sequence[str]) -> list[int]:
        """Of those that run."""
        found = (self._cluster.process(self._cluster.layout.node(node)) for node in nodes)
        return [one.pid for one in found if one is not None and one.is_alive()]
