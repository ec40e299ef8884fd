"""A workload: generator, client and checkers that belong together."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jepsen.checkers.verdict import Checker
from jepsen.client import Client
from jepsen.environments import Environment, Rule
from jepsen.generator.core import NOTHING, Generator


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Options of a workload."""

    concurrency: int = 6
    keys: int = 3
    """Partitions of a topic, or keys used at a time."""
    ops_per_key: int = 200
    """Operations on a register before another takes its place."""
    barrier_every: int = 0
    """After so many operations on a register all of them end before the next begins; 0: never."""
    replication: int = 3
    topic: str = "jepsen"
    acks: str = "all"
    client: str = "aiokafka"
    """The library that talks to Kafka."""
    kafka_home: str = ""
    """A distribution of Apache Kafka, for workloads by its tools."""


async def nothing_to_prepare(environment: Environment) -> None:
    """Prepare nothing, for workloads that need nothing before they begin."""


@dataclass(frozen=True, slots=True)
class Workload:
    """See the module. Everything in it works in every environment."""

    name: str
    client: Callable[[Environment, int, random.Random], Client]
    """For a process."""
    generator: Generator
    """Of clients, for as long as the test lasts."""
    checkers: Mapping[str, Checker]
    final: Generator = NOTHING
    """Of clients, when all is well again."""
    op_timeout_s: float = 10.0
    """An operation that takes longer ends with `info`."""
    rules: Sequence[Rule] = ()
    """What the user of its clients has to be allowed on a secured cluster."""
    prepare: Callable[[Environment], Awaitable[None]] = field(default=nothing_to_prepare)
