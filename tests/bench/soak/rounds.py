"""A round of a soak: four tests of the harness at once on one cluster, and what comes after."""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from jepsen.checkers.replication.trace import LEADER, check_trace
from jepsen.core import Ending, Run, overall
from jepsen.core.spec import RunSpec
from jepsen.environments.local.environment import LocalEnvironment
from jepsen.generator.core import OBSERVER
from jepsen.nemesis.plan import Fault, Plan
from jepsen.runner import judge_folder
from jepsen.store import RunFolder
from raftctl.localcluster.processes import start_program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from raftctl.localcluster.processes import ProcessRef

RECORD = "soak.jsonl"
WORKLOADS = ("queue", "queue-txn", "group", "register")
"""Records, transactions, a consumer group, keys. The first has the faults."""
KINDS = ("kill", "pause", "isolate", "stop", "delay")
ENDING = ("kill", "stop")
"""Kinds that end a process."""
INTERVAL_S, LASTS_S = 20.0, 6.0
DELAY_MS = 200.0
OVERTIME_S = 300.0
REGISTERS = "register/"
CLIENT_TIMEOUT_S = 10.0
ADMIN_TIMEOUT_S = 60.0


class WatchedEnvironment(LocalEnvironment):
    """A local cluster whose nodes note what they hold."""

    def _launch(self, properties: Path, log: Path) -> ProcessRef:
        module = "tests.bench.soak.node"
        record = properties.with_name(RECORD)
        return start_program([sys.executable, "-m", module, str(properties), str(record)], log)


@dataclass(frozen=True, slots=True)
class Shape:
    """What all rounds have in common."""

    seconds: float
    """Of operations and faults in each."""
    rate: float
    """Operations a second of each workload."""
    seed: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a round."""

    verdicts: dict[str, Any]
    """By workload: its verdict, and how many operations and faults there were."""
    seen: list[tuple[int, str]]
    """Epochs, and the controllers that were seen to be active."""

    def with_verdict(self, valid: bool | str) -> list[str]:
        """The tests with this verdict, False or `unknown`, and where they are."""
        return [
            f"{name}: {valid}: {one['folder']}"
            for name, one in self.verdicts.items()
            if one["valid"] == valid
        ]


def plan_of(number: int, shape: Shape, controllers: Sequence[str], brokers: Sequence[str]) -> Plan:
    """The faults of a round: each kind in turn, at nodes by chance.

    What ends a process hits only the last controller and the last broker.
    """
    rng = random.Random(f"{shape.seed}/{number}")
    members = [*controllers, *brokers]
    # However short the round is, each kind has its turn.
    interval_s = min(INTERVAL_S, shape.seconds / (len(KINDS) + 1))
    count = int(shape.seconds / interval_s) - 1
    faults = []
    for at in range(count):
        kind = KINDS[(number + at) % len(KINDS)]
        node = rng.choice([controllers[-1], brokers[-1]] if kind in ENDING else members)
        others = [one for one in members if one != node] if kind == "delay" else []
        lasts_s = min(LASTS_S, interval_s / 2) * rng.uniform(0.5, 1)
        amount = DELAY_MS if kind == "delay" else 0.0
        at_ms = round((at + 1) * interval_s * 1000)
        faults.append(Fault(kind, at_ms, round(lasts_s * 1000), (node, *others), amount))
    return tuple(faults)


def specs_of(number: int, shape: Shape, plan: Plan) -> list[RunSpec]:
    """The tests of a round."""
    specs = [
        RunSpec(
            workload,
            time_limit_s=shape.seconds,
            rate=shape.rate,
            seed=shape.seed + number,
            topic=f"{workload}-{number}",
        )
        for workload in WORKLOADS
    ]
    return [specs[0].with_plan(plan), *specs[1:]]


class Rounds:
    """Rounds on one cluster."""

    def __init__(self, environment: WatchedEnvironment, store: Path, shape: Shape) -> None:
        self._environment = environment
        self._store = store
        self._shape = shape

    async def run(self, number: int) -> Judged:
        """Runs a round, judges it, and deletes what it has made."""
        nodes = self._environment.controllers, self._environment.brokers
        specs = specs_of(number, self._shape, plan_of(number, self._shape, *nodes))
        folders = await asyncio.gather(*(self._run(spec) for spec in specs))
        await self._environment.committed_at_rest()
        judged = Judged({}, [])
        for spec, folder in zip(specs, folders, strict=True):
            verdicts = await asyncio.to_thread(judge_folder, folder)
            results = folder.results or {}
            judged.verdicts[spec.workload] = {
                "valid": overall(verdicts),
                "operations": results.get("operations"),
                "faults": results.get("faults"),
                "folder": str(folder.path),
            }
        self._look(folders[0], judged)
        await self._clean([spec.topic for spec in specs])
        return judged

    async def _run(self, spec: RunSpec) -> RunFolder:
        folder = RunFolder.create(self._store, spec, "soak")
        with folder.writer() as writer:
            run = Run(spec, self._environment, writer.append)
            try:
                async with asyncio.timeout(spec.time_limit_s + OVERTIME_S):
                    await run.run()
            except TimeoutError:
                # Some client hangs, which aiokafka's do now and then as they leave a group. Without
                # an ending the test is unknown; the soak goes on.
                return folder
        folder.write_ending(Ending().to_json())
        return folder

    def _look(self, folder: RunFolder, judged: Judged) -> None:
        """What the controllers showed of themselves meanwhile."""
        history = folder.history()
        trace = check_trace(history)
        judged.verdicts["trace"] = {"valid": trace.valid, "folder": str(folder.path)}
        observed = [op for op in history if op.process == OBSERVER and op.f == LEADER]
        judged.seen.extend((epoch, name) for name, epoch in (op.value for op in observed))

    async def _clean(self, names: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete, names)
        client = self._environment.kv_client(CLIENT_TIMEOUT_S, random.Random(self._shape.seed))
        await client.open()
        try:
            for key in await client.keys(REGISTERS):
                await client.delete(REGISTERS + key)
        finally:
            await client.close()

    def _delete(self, names: Sequence[str]) -> None:
        """Topics of these names, and all groups; there is no topic for keys."""
        bootstrap = self._environment.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        there = [one for one in admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics if one in names]
        for deleted in admin.delete_topics(there, operation_timeout=ADMIN_TIMEOUT_S).values():
            deleted.result(ADMIN_TIMEOUT_S)
        groups = admin.list_consumer_groups().result(ADMIN_TIMEOUT_S).valid
        ids = [one.group_id for one in groups]
        if ids:
            for gone in admin.delete_consumer_groups(ids).values():
                gone.result(ADMIN_TIMEOUT_S)
