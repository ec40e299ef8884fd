"""The glue: whole raftctl nodes, production code unchanged, in the deterministic world.

A `SimCluster` lays out controllers and brokers, formats their disks, and starts, kills and restarts
them; scenarios drive it and unmodified Kafka clients talk to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import aiohttp

from jepsen.simulator.faults import DiskFaults
from jepsen.simulator.properties import (
    Properties,
    Violation,
    Watcher,
    check_left_behind,
    quorum_history,
)
from jepsen.simulator.world import World
from raftctl.config import make_config
from raftctl.ids import parse_uuid, uuid_text
from raftctl.metadata.codec import pack_payload
from raftctl.metadata.records import FeatureRange, Record
from raftctl.node import Node
from raftctl.raft.messages import NO_NODE, NodeId, ReplicaKey, Voter
from raftctl.raft.voters import VoterSet
from raftctl.runtime.connector import LoopConnector
from raftctl.storage import MetaProperties, write_first_records, write_initial_voters

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.kernel.process import Process
    from jepsen.simulator.world import SimRuntime

CONTROLLER_PORT = 9093
BROKER_PORT = 9092
FIRST_CONTROLLER_ID = 101
DATA = "/data"
POLL_S = 0.05

TIMEOUTS = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "3000",
}
"""Shorter than by default, so that more happens in the time of a run."""


@dataclass
class SimCluster:
    """Controllers `controller-101`... and brokers `broker-1`... of one world.

    With `watch`, every node is looked at after each of its steps and the properties of
    `jepsen.simulator.properties._invariants` are checked. `dynamic` voters can change: the first
    are written when their disks are formatted, `spares` are more controllers that do not vote yet.
    Else the configuration of every node lists them.
    """

    world: World
    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    timeouts: Mapping[str, str] = field(default_factory=lambda: TIMEOUTS)
    """An empty mapping leaves the defaults in force."""
    cluster_id: str = uuid_text(parse_uuid("c2ltdWxhdGVkLWNsdXN0ZQ"))
    watch: bool = True
    dynamic: bool = True
    spares: int = 0
    asked_by_brokers: int = 0
    """The controllers that are the bootstrap servers of each broker; 0 if brokers are configured as
    controllers are. Brokers may have them though the voters are static."""
    combined: int = 0
    """The number of brokers that are the first controllers at the same time."""
    log_directories: tuple[str, ...] = (DATA,)
    """The log directories of each broker. The metadata log is always in `DATA`."""
    broker_overrides: Mapping[str, str] = field(default_factory=dict)
    """Keys that only brokers may have, such as those of their listeners."""
    first_records: Sequence[Record] = ()
    """Records that the disks of the first controllers are formatted with (KIP-900)."""
    features: dict[str, tuple[FeatureRange, ...]] = field(default_factory=dict, init=False)
    """Nodes of another release: what each of them can work with, by its name."""
    nodes: dict[str, Node] = field(default_factory=dict, init=False)
    """The newest life of each node; to be looked at only."""
    properties: Properties = field(init=False)
    directory_ids: dict[int, UUID] = field(default_factory=dict, init=False)
    """The id of the present disk of each node that has been started."""

    def __post_init__(self) -> None:
        disks = {node_id(name): self.world.node(name).disk for name in self.controller_names}
        self.properties = Properties(quorum_history(disks, DATA, self.directory_ids))
        self.properties.recorder = self.world.recorder

    @property
    def controller_names(self) -> list[str]:
        """The names of the controllers' nodes."""
        count = self.controllers + self.spares
        return [f"controller-{FIRST_CONTROLLER_ID + i}" for i in range(count)]

    @property
    def broker_names(self) -> list[str]:
        """The names of the brokers' nodes."""
        alone = [f"broker-{1 + i}" for i in range(self.brokers - self.combined)]
        return alone + self.controller_names[: self.combined]

    @property
    def names(self) -> list[str]:
        """The names of all nodes, controllers first."""
        return list(dict.fromkeys([*self.controller_names, *self.broker_names]))

    @property
    def election_timeout_s(self) -> float:
        """The time that a campaign lasts at least."""
        config = make_config(self._values(self.controller_names[0]))
        return config.controller_quorum_election_timeout_ms / 1000

    @property
    def check_quorum_s(self) -> float:
        """After so long a leader resigns that no majority fetches from (KIP-595)."""
        config = make_config(self._values(self.controller_names[0]))
        return config.controller_quorum_fetch_timeout_ms * 1.5 / 1000

    @property
    def bootstrap(self) -> list[str]:
        """The bootstrap servers for clients."""
        return [f"{name}:{BROKER_PORT}" for name in self.broker_names]

    def start_all(self) -> None:
        """Start every node."""
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one node, formatting its disk if that is empty."""
        config = make_config(self._values(name))

        async def main(runtime: SimRuntime) -> None:
            self._format(runtime, config.node_id)
            node = self.nodes[name] = Node(config, runtime)
            node.features = self.features.get(name, node.features)
            if self.watch:
                disk, covers = self.world.node(name).disk, self.world.coverage
                process.watch = Watcher(self.properties, node, process.incarnation, disk, covers)
            await node.run()

        process = self.world.start(name, main)
        process.on_exit = partial(self._look_after_exit, process)

    def _look_after_exit(self, process: Process) -> None:
        try:
            check_left_behind(process)
        except Violation as violation:
            self.world.accuse(process.node.name, violation)

    def power_off(self, name: str) -> None:
        """Cut the power of the machine of a node."""
        self.world.power_off(name)
        self.properties.lost_power(node_id(name))

    def wipe(self, name: str) -> None:
        """Put an empty disk into a node that does not run."""
        number = node_id(name)
        if name in self.broker_names:
            self.properties.lost_power(number)
        if name in self.controller_names:
            self.properties.lost_disk((number, self.directory_ids.get(number)))
        self.world.wipe(name)

    def voter(self, name: str) -> Voter:
        """Return a controller with its present disk as the voters' record has it, if it votes."""
        number = NodeId(node_id(name))
        return Voter(ReplicaKey(number, self.directory_ids[number]), name, CONTROLLER_PORT)

    def states(self, name: str) -> list[str]:
        """Return the states in which a fault strikes this node: its role, and what is under way."""
        node = self.nodes.get(name)
        driver = None if node is None or not self.is_up(name) else node.driver
        if node is None or driver is None:
            return ["down"]
        found = [driver.core.role]
        if driver.leader_id == NO_NODE:
            found.append("without-leader")
        if driver.core.is_changing_voters:
            found.append("changing-voters")
        if driver.log.dirty:
            found.append("flushing")
        replicas = getattr(node.broker, "replicas", None)
        for replica in [] if replicas is None else replicas.partitions.values():
            state = replica.state
            leads = "leading-partition" if state.is_leader else "following-partition"
            in_sync = node.config.node_id in state.isr
            found.append(leads if in_sync or state.is_leader else "out-of-sync")
        return sorted(set(found))

    def disk_faults(self) -> DiskFaults:
        """Return the faults that the disks of the nodes can have."""
        return DiskFaults(
            self.world,
            DATA,
            start=self.start,
            serves=self._serves,
            power_off=self.power_off,
            second=next((one for one in self.log_directories if one != DATA), None),
            serves_logs=self._serves_logs,
        )

    def _serves(self, name: str) -> bool:
        """Whether the newest life of a node has recovered what is on its disk."""
        node = self.nodes.get(name)
        return node is not None and self.is_up(name) and node.driver is not None

    def _serves_logs(self, name: str) -> bool:
        """Whether the newest life of a broker has opened its logs and hosts some."""
        node = self.nodes.get(name)
        broker: Any = None if node is None else node.broker
        return self.is_up(name) and broker is not None and bool(broker.replicas.partitions)

    def is_up(self, name: str) -> bool:
        """Return True if the node has a process that runs."""
        process = self.world.node(name).process
        return process is not None and process.running

    def _format(self, runtime: SimRuntime, node_id: int) -> None:
        files = runtime.files
        for path in self.log_directories:
            if path != DATA and MetaProperties.load(files, path) is None:
                files.make_directories(path)
                MetaProperties(self.cluster_id, node_id, runtime.uuid()).save(files, path)
        found = MetaProperties.load(files, DATA)
        if found is None:
            files.make_directories(DATA)
            files.sync_directory("/")
            first = self.dynamic and node_id in self._first_voters
            is_new = first and node_id not in self.directory_ids
            identity = _first_directory_id(node_id) if is_new else runtime.uuid()
            if is_new:
                write_initial_voters(files, DATA, self._voters(), runtime.wall_ms())
            if is_new and self.first_records:
                records = self.first_records
                write_first_records(files, DATA, pack_payload(records), len(records))
            found = MetaProperties(self.cluster_id, node_id, identity)
            found.save(files, DATA)
        self.directory_ids[node_id] = found.directory_id

    @property
    def _first_voters(self) -> dict[int, str]:
        return {node_id(name): name for name in self.controller_names[: self.controllers]}

    def _voters(self) -> VoterSet:
        """The voters with which a dynamic quorum begins."""
        keys = {n: ReplicaKey(NodeId(n), _first_directory_id(n)) for n in self._first_voters}
        voters = [Voter(keys[n], name, CONTROLLER_PORT) for n, name in self._first_voters.items()]
        return VoterSet(voters, dynamic=True)

    def _values(self, name: str) -> dict[str, str]:
        listeners: dict[str, str] = {}
        if name in self.broker_names:
            listeners["broker"] = f"PLAINTEXT://{name}:{BROKER_PORT}"
        if name in self.controller_names:
            listeners["controller"] = f"CONTROLLER://{name}:{CONTROLLER_PORT}"
        voters = {
            "controller.quorum.voters": ",".join(
                f"{node_id(voter)}@{voter}:{CONTROLLER_PORT}" for voter in self.controller_names
            )
        }
        if self.dynamic:
            servers = ",".join(f"{one}:{CONTROLLER_PORT}" for one in self.controller_names)
            voters = {"controller.quorum.bootstrap.servers": servers}
        if list(listeners) == ["broker"] and self.asked_by_brokers:
            asked = self.controller_names[: self.asked_by_brokers]
            servers = ",".join(f"{one}:{CONTROLLER_PORT}" for one in asked)
            voters = {"controller.quorum.bootstrap.servers": servers}
        return {
            "process.roles": ",".join(listeners),
            "node.id": str(node_id(name)),
            **voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners.values()),
            "log.dirs": ",".join(self.log_directories) if "broker" in listeners else DATA,
            "metadata.log.dir": DATA,
            **self.timeouts,
            **self.overrides,
            **(self.broker_overrides if "broker" in listeners else {}),
        }


def _first_directory_id(node_id: int) -> UUID:
    return UUID(int=node_id)


def node_id(name: str) -> int:
    """Return the id of the node of this name."""
    return int(name.partition("-")[2])


class Observer:
    """A program on a node of its own that asks controllers for their status."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    async def wait_for(
        self, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 60
    ) -> dict[str, Any]:
        """Return the first status of an active controller for which the condition holds."""
        async with asyncio.timeout(timeout_s):
            async with aiohttp.ClientSession(connector=LoopConnector()) as session:
                while True:
                    for name in self._cluster.controller_names:
                        status = await self._ask(session, name)
                        if status is not None and status["role"] == "leader" and condition(status):
                            return status
                    await asyncio.sleep(POLL_S)

    async def _ask(self, session: aiohttp.ClientSession, name: str) -> dict[str, Any] | None:
        url = f"http://{name}:{CONTROLLER_PORT}/api/v1/status"
        try:
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as response:
                status: dict[str, Any] = await response.json()
                return status
        except (aiohttp.ClientError, TimeoutError):
            return None
