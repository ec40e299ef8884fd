"""The environment `sim`: a test's cluster in the deterministic world.

A test of the harness is a scenario here, `jepsen.simulator.environment:WORKLOAD`: so a run of
`jepsen test --env sim` is a run of a seed as any other.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

from jepsen.core import Run
from jepsen.core.spec import WORKLOADS
from jepsen.environments import Environment, Security
from jepsen.environments.raftctl import RaftctlKeyValues, change_voters
from jepsen.errors import InputError
from jepsen.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, Observer, SimCluster
from jepsen.simulator.faults import SimMachines
from jepsen.simulator.secured import RULES, SecuredUsers
from raftctl.errors import ConfigError
from raftctl.localcluster.ports import API_VERSIONS_REQUEST
from raftctl.metadata.features import SUPPORTED
from raftctl.raft.messages import AddVoterRequest, RemoveVoterRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from jepsen.environments import AccessControl, ClusterSpec
    from jepsen.environments.access import ClusterAccess
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.raft.messages import ChangeVotersRequest

ASK_S = 1.0
TERMINATE_S = 20.0
DISK_FAULTS = ("power_off", "sync_error", "write_error", "disk_full", "bit_flip")
WIPE = "wipe"
OPERATOR_NODE = "operator"
CLIENTS_NODE = "jepsen"


def __getattr__(name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
    """The scenario of a workload, which is imported: what imports draw has no part in a run."""
    if name not in WORKLOADS:
        raise AttributeError(name)
    importlib.import_module(WORKLOADS[name].partition(":")[0])
    return run_test


async def run_test(world: World) -> None:
    """Run the test of the run's folder, from a started cluster to its last operation."""
    spec = world.test
    assert spec is not None, "a run without a folder has no test"
    try:
        cluster = SimEnvironment(world, spec.cluster)
        cluster.start()
    except ConfigError as error:
        raise InputError(str(error)) from None

    async def clients(runtime: SimRuntime) -> None:
        await cluster.wait_ready()
        await Run(spec, cluster, world.note).run()

    await world.start(CLIENTS_NODE, clients).done


class SimEnvironment(SimMachines, Environment):
    """See `jepsen.environments.Environment`."""

    def __init__(self, world: World, spec: ClusterSpec) -> None:
        self._cluster = cluster = SimCluster(world, spec.controllers, spec.brokers, spec.overrides)
        self._access: ClusterAccess | None = None
        if spec.security != Security.PLAINTEXT:
            users = SecuredUsers(world.random)
            cluster.overrides = {**RULES, **spec.overrides}
            cluster.broker_overrides, cluster.first_records = users.broker_keys, users.records
            self._access = users.access(",".join(cluster.bootstrap))
        super().__init__(
            world,
            start=cluster.start,
            power_off=cluster.power_off,
            disks=cluster.disk_faults(),
            terminate_s=TERMINATE_S,
        )
        self._observer = Observer(cluster)

    @property
    def controllers(self) -> Sequence[str]:
        return self._cluster.controller_names

    @property
    def brokers(self) -> Sequence[str]:
        return self._cluster.broker_names

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._cluster.bootstrap)

    @property
    def access(self) -> AccessControl | None:
        return self._access

    @property
    def disk_faults(self) -> Mapping[str, Sequence[str]]:
        everybody = (*self.controllers, *self.brokers)
        # A controller that does not know how it has voted must not come back as the same voter.
        return {**dict.fromkeys(DISK_FAULTS, everybody), WIPE: self.brokers}

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED

    def start(self) -> None:
        """Start every node."""
        self._cluster.start_all()

    async def wait_ready(self) -> None:
        """Return when a controller leads and every broker is active."""
        wanted = len(self.brokers)

        def ready(status: dict[str, Any]) -> bool:
            return len([one for one in status["brokers"] if not one["fenced"]]) == wanted

        await self._observer.wait_for(ready)

    def kv_client(self, timeout_s: float, rng: random.Random) -> RaftctlKeyValues:
        names = rng.sample(list(self.controllers), len(self.controllers))
        return RaftctlKeyValues([f"{name}:{CONTROLLER_PORT}" for name in names], timeout_s, rng)

    async def leader(self) -> str | None:
        found = await self.leadership()
        return None if found is None else found[0]

    async def leadership(self) -> tuple[str, int] | None:
        try:
            status = await self._observer.wait_for(lambda _: True, ASK_S)
        except TimeoutError:
            return None
        return f"controller-{status['leader_id']}", status["epoch"]

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """See `Environment`: every step of every node is judged."""
        return {}

    def broker_name(self, broker_id: int) -> str | None:
        name = f"broker-{broker_id}"
        return name if name in self.brokers else None

    async def is_in_sync(self) -> bool:
        """See `Environment`.

        Brokers are asked first, as those of processes are (`LocalCluster.is_healthy`).
        """
        for name in self.brokers:
            if not await _serves(name):
                return False
        try:
            status = await self._observer.wait_for(lambda _: True, ASK_S)
        except TimeoutError:
            return False
        active = [one for one in status["brokers"] if not one["fenced"]]
        return len(active) == len(self.brokers) and not status["under_replicated_partitions"]

    async def remove_voter(self, node: str) -> bool:
        return await self._change_voters(RemoveVoterRequest(self._cluster.voter(node).replica))

    async def add_voter(self, node: str) -> bool:
        return await self._change_voters(AddVoterRequest(self._cluster.voter(node)))

    async def _change_voters(self, request: ChangeVotersRequest) -> bool:
        controllers = [(name, CONTROLLER_PORT) for name in self.controllers]

        async def operate(runtime: SimRuntime) -> bool:
            return await change_voters(runtime, controllers, self._cluster.cluster_id, request)

        done: bool = await self._world.start(OPERATOR_NODE, operate).done
        return done

    async def replace_disk(self, node: str) -> None:
        """See `Environment`; formatted when the node starts."""
        self._cluster.wipe(node)

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        """See `Machines`; damage that a node has not noticed fails the run."""
        try:
            await super().relieve(kind, nodes)
        except AssertionError as error:
            # Else it would only be a fault that could not be ended.
            self._world.accuse(nodes[0], error)


async def _serves(broker: str) -> bool:
    """Whether it answers a request; one that has not registered yet makes it wait."""
    try:
        async with asyncio.timeout(ASK_S):
            reader, writer = await asyncio.open_connection(broker, BROKER_PORT)
            try:
                writer.write(API_VERSIONS_REQUEST)
                return bool(await reader.read(1))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
