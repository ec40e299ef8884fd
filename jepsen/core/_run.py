"""One run of a test on a cluster that is ready, from the first operation to the last."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication.trace import LEADER, METADATA_LOG, REPLICA
from jepsen.core._interpreter import Interpreter
from jepsen.core.spec import LOG_WORKLOADS, workload_of
from jepsen.generator.combinators import AnyOf, Sleep, Stagger, TimeLimit, clients, phases
from jepsen.nemesis import Nemesis, SecurityFaults
from jepsen.nemesis.faults import healing, package
from jepsen.nemesis.plan import FEATURES, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jepsen.core.spec import RunSpec
    from jepsen.environments import Environment
    from jepsen.environments.admin import BrokerMembership, BrokerRoles, FeatureLevels
    from jepsen.generator.core import Generator
    from jepsen.history import Op

RECOVERY_S = 3.0
FINAL_S = 60.0
LEADER_POLL_S = 1.0


class Run:
    """Runs one test; `stop` ends it early, with everything healed."""

    def __init__(self, spec: RunSpec, environment: Environment, note: Callable[[Op], Any]) -> None:
        self._spec = spec
        self._environment = environment
        self._workload = workload_of(spec)
        self.interrupted_s: float | None = None
        """When it was asked to stop, in seconds of the test."""
        rng = random.Random(f"{spec.seed}/clients")
        self.interpreter = Interpreter(
            spec.concurrency,
            lambda process: self._workload.client(environment, process, rng),
            Nemesis(
                environment,
                random.Random(f"{spec.seed}/nemesis"),
                self._roles(),
                self._membership(),
                self._features(),
                self._security(),
            ),
            note,
            random.Random(f"{spec.seed}/generator"),
            self._workload.op_timeout_s,
        )

    def _roles(self) -> BrokerRoles | None:
        """Return the roles of brokers, if the workload has partitions."""
        if self._spec.workload not in LOG_WORKLOADS:
            return None
        # Not imported for keys and values, which need no Kafka client.
        from jepsen.environments.admin import BrokerRoles

        rng = random.Random(f"{self._spec.seed}/roles")
        return BrokerRoles(self._environment.operator, self._spec.topic, rng)

    def _membership(self) -> BrokerMembership | None:
        """Return the membership of brokers, if the test changes it."""
        if "brokers" not in self._spec.nemesis:
            return None
        # Not imported for keys and values, which need no Kafka client.
        from jepsen.environments.admin import BrokerMembership

        return BrokerMembership(self._environment, random.Random(f"{self._spec.seed}/membership"))

    def _features(self) -> FeatureLevels | None:
        """Return the levels of features, if the test changes them."""
        if FEATURES not in self._spec.nemesis:
            return None
        from jepsen.environments.admin import FeatureLevels

        return FeatureLevels(self._environment, random.Random(f"{self._spec.seed}/features"))

    def _security(self) -> SecurityFaults | None:
        """Return the faults of a secured cluster."""
        if self._environment.access is None:
            return None
        rng = random.Random(f"{self._spec.seed}/security")
        return SecurityFaults(self._environment, self._workload.rules, rng)

    def stop(self) -> None:
        """End the test early: begin no more operations, then heal and read as at any end."""
        if self.interrupted_s is None:
            self.interrupted_s = self.interpreter.elapsed_s
        self.interpreter.stopped = True

    async def run(self) -> None:
        """Run the test, from a cluster that is ready to the final reads."""
        await self._allow_clients()
        await self._workload.prepare(self._environment)
        watch = asyncio.get_running_loop().create_task(self._watch_controllers())
        try:
            await self.interpreter.run(self._main())
            self.interpreter.stopped = False
            await self.interpreter.run(self._ending())
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await self.interpreter.close()

    async def _allow_clients(self) -> None:
        """Allow the clients of a secured cluster what the workload needs, and nothing else."""
        access = self._environment.access
        if access is not None:
            await access.set_password(access.user)
            await access.allow(access.user, self._workload.rules)

    async def _watch_controllers(self) -> None:
        """Record changes of the active controller, and of each controller's log."""
        last = None
        known: dict[str, Mapping[str, Any]] = {}
        while True:
            with contextlib.suppress(Exception):
                found = await self._environment.leadership()
                if found not in (None, last):
                    last = found
                    self.interpreter.observe(LEADER, list(found or ()))
            with contextlib.suppress(Exception):
                for node, replica in (await self._environment.replicas()).items():
                    if known.get(node) != replica:
                        known[node] = replica
                        self.interpreter.observe(REPLICA, dict(replica), node, METADATA_LOG)
            await asyncio.sleep(LEADER_POLL_S)

    def _main(self) -> Generator:
        spec = self._spec
        work = clients(Stagger(1 / spec.rate, self._workload.generator))
        if spec.plan:
            members = [*self._environment.controllers, *self._environment.brokers]
            faults = planned(spec.plan, members)
            return TimeLimit(spec.time_limit_s, AnyOf((work, faults)))
        roles = spec.workload in LOG_WORKLOADS
        disks = tuple(self._environment.disk_faults)
        features = tuple(self._environment.features)
        faults = package(
            spec.nemesis,
            spec.interval_s,
            time_limit_s=spec.time_limit_s,
            roles=roles,
            disks=disks,
            features=features,
        )
        return TimeLimit(spec.time_limit_s, AnyOf((work, faults)))

    def _ending(self) -> Generator:
        recovery = Sleep(RECOVERY_S if self._spec.nemesis else 0)
        final = TimeLimit(FINAL_S, clients(Stagger(RECOVERY_S / 10, self._workload.final)))
        return phases(healing(), recovery, final)
