"""The specification of a test: which workloads and faults there are, and which may be combined."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from jepsen.environments import ClusterSpec, Security
from jepsen.environments.local import NAMESPACES, NETWORKS, RELAYS
from jepsen.errors import InputError
from jepsen.nemesis.plan import PACKAGES, Plan, packages_of, plan_from_json
from jepsen.workloads import Workload, WorkloadOptions

WORKLOADS = {
    "register": "jepsen.workloads.kv:register",
    "set": "jepsen.workloads.kv:set_workload",
    "lock": "jepsen.workloads.kv:lock",
    "watch": "jepsen.workloads.kv:watch",
    "queue": "jepsen.workloads.queue:queue",
    "queue-txn": "jepsen.workloads.queue:queue_txn",
    "list-append": "jepsen.workloads.list_append:list_append",
    "bank": "jepsen.workloads.bank:bank",
    "group": "jepsen.workloads.group:group",
    "topics": "jepsen.workloads.topics:topics",
    "acl": "jepsen.workloads.acl:acl",
    "verifiable": "jepsen.workloads.verifiable:verifiable",
}
"""Loaded when needed, as each needs libraries of its own."""
LOG_WORKLOADS = ("queue", "queue-txn", "list-append", "bank", "group", "verifiable")
"""Those on the partitions of a topic, which have leaders and coordinators."""
KAFKA_WORKLOADS = (*LOG_WORKLOADS, "topics")
"""Those that any Kafka cluster can be tested with."""
SECURED_WORKLOADS = ("acl",)
"""Those whose clients must log in to a cluster that is made for the test."""
LOG_FAULTS = ("reassign",)
"""Those that only such a topic can suffer."""
SECURITY_FAULTS = ("certificates", "passwords", "rules")
"""Those of secured clusters."""
USER_FAULTS = ("passwords", "rules")
"""Those of the one user that the clients of these workloads have; `acl` has users of its own."""
JAVA_WORKLOADS = ("verifiable",)
"""Those that need tools of Apache Kafka beside the cluster, so no part of a matrix."""
_NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
CLUSTER_KEYS = {"group": _NO_DELAY, "verifiable": _NO_DELAY}
"""What a workload wants of nodes that are made for it, unless the user wants something else.

A group whose coordinator goes before the first rebalance waits again for more members: with
the default of 3 s, faults every few seconds leave it no time in which anybody owns anything.
"""
CLIENTS = ("aiokafka", "librdkafka")
RATE_MIN = 0.1


@dataclass(frozen=True, slots=True)
class RunSpec:
    """All that makes a run: with `env` sim the same specification is the same run."""

    workload: str
    """Of `WORKLOADS`; with `env` sim also a scenario, which is all of a test, `module:function`."""
    env: str = "local"
    nemesis: tuple[str, ...] = ()
    time_limit_s: float = 30.0
    rate: float = 50.0
    """Operations a second, of all clients together."""
    concurrency: int = 6
    interval_s: float = 4.0
    """Between faults, and how long they last, on average."""
    seed: int = 0
    keys: int = 3
    ops_per_key: int = 200
    """Of `register`, as `barrier_every`; see WorkloadOptions."""
    barrier_every: int = 0
    replication: int = 3
    acks: str = "all"
    client: str = "aiokafka"
    """Of `queue`: one of CLIENTS."""
    topic: str = "jepsen"
    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    bootstrap_servers: str = ""
    control: str = ""
    command_config: str = ""
    """The file with which clients log in to an external cluster."""
    kafka_home: str = ""
    rate_min: float = RATE_MIN
    """Operations a second that must have succeeded, so that the run shows anything."""
    network: str = RELAYS
    """Of `local`: one of NETWORKS."""
    security: str = Security.PLAINTEXT
    """What clients of a new cluster speak: a name of `Security`."""
    plan: Plan | None = None
    """Faults in place of random ones; `nemesis` then names their packages (`with_plan`)."""

    @property
    def name(self) -> str:
        """Name of the test: workload, environment and faults."""
        workload = self.workload.replace(":", ".")
        return "-".join([workload, self.env, *(self.nemesis or [self.without_nemesis])])

    @property
    def without_nemesis(self) -> str:
        """The word for no faults of `nemesis`: none, or those that a scenario draws."""
        return "own" if self.is_scenario and self.plan is None else "healthy"

    @property
    def is_scenario(self) -> bool:
        """Whether the simulator has all of the test: its cluster, clients and faults."""
        return ":" in self.workload

    def with_plan(self, plan: Plan) -> RunSpec:
        """Return the same test with these faults, and no others."""
        nemesis = packages_of(plan, simulated=self.env == "sim")
        return replace(self, plan=plan, nemesis=nemesis)

    @property
    def cluster(self) -> ClusterSpec:
        """Cluster that the specification wants."""
        keys = {**CLUSTER_KEYS.get(self.workload, {}), **self.overrides}
        return ClusterSpec(
            self.controllers,
            self.brokers,
            keys,
            self.bootstrap_servers,
            self.control,
            self.command_config,
            self.security,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that `from_json` reads."""
        return {
            **{one.name: getattr(self, one.name) for one in fields(self)},
            "nemesis": list(self.nemesis),
            "overrides": dict(self.overrides),
            "plan": None if self.plan is None else [fault.to_json() for fault in self.plan],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RunSpec:
        """Return a specification; InputError names what it does not know."""
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(document) - known)
        if unknown or "workload" not in document:
            raise InputError(f"no test: it has {unknown}, or no workload")
        plan = document.get("plan")
        plan = None if plan is None else plan_from_json(plan)
        nemesis = tuple(document.get("nemesis", ()))
        return cls(**{**document, "nemesis": nemesis, "plan": plan})


FAULTS = {
    "local": tuple(PACKAGES),
    "sim": tuple(name for name in PACKAGES if name != "certificates"),
    "external": ("kill", "pause", "restart", "rolling", "reassign"),
}
"""What can be done to the clusters of each environment; to external ones by --control alone."""


SECURED = {"local": Security.SASL_SSL, "sim": Security.SASL_PLAINTEXT}
"""What clients speak on secured clusters of each environment."""


def workloads_in(env: str, security: str = Security.PLAINTEXT) -> tuple[str, ...]:
    """Return the workloads that the environment's clusters can serve with nothing else."""
    if security != Security.PLAINTEXT:
        names = [*KAFKA_WORKLOADS, *SECURED_WORKLOADS]
    else:
        names = list(KAFKA_WORKLOADS if env == "external" else WORKLOADS)
        names = [name for name in names if name not in SECURED_WORKLOADS]
    return tuple(name for name in names if name not in JAVA_WORKLOADS)


def can_suffer(workload: str, fault: str) -> bool:
    """Return whether the fault means anything to a workload."""
    if fault in LOG_FAULTS:
        return workload in LOG_WORKLOADS
    return workload in KAFKA_WORKLOADS or fault not in USER_FAULTS


def faults_in(env: str, control: str = "", security: str = Security.PLAINTEXT) -> tuple[str, ...]:
    """Return the faults that the environment's clusters can be given."""
    known = () if env == "external" and not control else FAULTS[env]
    return tuple(
        one for one in known if one not in SECURITY_FAULTS or security != Security.PLAINTEXT
    )


def faults_ready(
    env: str, control: str = "", security: str = Security.PLAINTEXT
) -> tuple[str, ...]:
    """`faults_in`, without what this machine lacks the means for."""
    if env != "local":
        return faults_in(env, control, security)
    from jepsen.environments.local.clocks import find_library

    known = faults_in(env, security=security)
    return tuple(one for one in known if one != "clock" or find_library())


def check_spec(spec: RunSpec) -> None:
    """InputError for what cannot be run."""
    if spec.is_scenario:
        _check_scenario(spec)
        return
    if spec.workload not in WORKLOADS:
        raise InputError(f"{spec.workload}: no workload; choose one of {', '.join(WORKLOADS)}")
    for name in spec.nemesis:
        _check_fault(spec, name)
    if spec.client not in CLIENTS:
        raise InputError(f"--client {spec.client}: choose one of {', '.join(CLIENTS)}")
    if spec.env == "sim" and spec.client != "aiokafka":
        raise InputError(f"--client {spec.client}: it has clocks of its own, so not in --env sim")
    if spec.env == "external":
        if not spec.bootstrap_servers:
            raise InputError("--env external: say where with --bootstrap-servers HOST:PORT,...")
        if spec.workload not in KAFKA_WORKLOADS:
            raise InputError(f"--env external: only for {', '.join(KAFKA_WORKLOADS)}")
    else:
        _check_not_external(spec)
    _check_java(spec)
    _check_network(spec)
    _check_security(spec)
    if spec.barrier_every and spec.workload != "register":
        raise InputError(f"--barrier-every: only for register, not {spec.workload}")
    if (
        spec.workload in (*KAFKA_WORKLOADS, *SECURED_WORKLOADS)
        and spec.replication > spec.brokers
        and spec.env != "external"
    ):
        raise InputError(f"--replication {spec.replication}: there are {spec.brokers} brokers")


def _check_scenario(spec: RunSpec) -> None:
    if spec.env != "sim" or (spec.nemesis and spec.plan is None):
        raise InputError(
            f"{spec.workload}: a scenario has faults of its own: only with --env sim, "
            "and with --plan in place of --nemesis"
        )
    if spec.security != Security.PLAINTEXT:
        raise InputError(f"--security {spec.security}: a scenario has a cluster of its own")


def _check_not_external(spec: RunSpec) -> None:
    given = {
        "--bootstrap-servers": spec.bootstrap_servers,
        "--control": spec.control,
        "--command-config": spec.command_config,
    }
    for option, value in given.items():
        if value:
            raise InputError(f"{option}: only with --env external, not {spec.env}")


def _check_java(spec: RunSpec) -> None:
    wanted = spec.workload in JAVA_WORKLOADS
    if wanted != bool(spec.kafka_home) or (wanted and spec.env == "sim"):
        tools = ", ".join(JAVA_WORKLOADS)
        raise InputError(
            f"--kafka-home is for --workload {tools}, which needs it and cannot run in --env sim"
        )
    if wanted:
        from jepsen.workloads.verifiable import check_tools

        check_tools(spec.kafka_home)


def _check_network(spec: RunSpec) -> None:
    if spec.network not in NETWORKS:
        raise InputError(f"--network {spec.network}: choose one of {', '.join(NETWORKS)}")
    if spec.network == NAMESPACES:
        if spec.env != "local":
            raise InputError(f"--network {spec.network}: only with --env local, not {spec.env}")
        from jepsen.environments.local.namespaces import check_means

        check_means()


def _check_security(spec: RunSpec) -> None:
    option = f"--security {spec.security}"
    if spec.security not in tuple(Security):
        raise InputError(f"{option}: choose one of {', '.join(Security)}")
    possible = SECURED.get(spec.env)
    if spec.security == Security.PLAINTEXT:
        if spec.workload in SECURED_WORKLOADS:
            how = f"use --security {possible}" if possible else f"not with --env {spec.env}"
            raise InputError(f"{spec.workload}: its clients must log in; {how}")
        return
    if spec.security != possible:
        instead = f"use {possible} there" if possible else "it says how with --command-config"
        raise InputError(f"{option}: not available with --env {spec.env}; {instead}")
    if spec.workload not in (known := workloads_in(spec.env, spec.security)):
        raise InputError(f"{option}: only for {', '.join(known)}")


def _check_fault(spec: RunSpec, name: str) -> None:
    if name not in PACKAGES:
        raise InputError(f"--nemesis {name}: choose from {', '.join(PACKAGES)}")
    if not can_suffer(spec.workload, name):
        sufferers = (one for one in WORKLOADS if can_suffer(one, name))
        raise InputError(f"--nemesis {name}: only for {', '.join(sufferers)}")
    possible = faults_in(spec.env, spec.control, spec.security)
    if name not in possible:
        if name in FAULTS[spec.env] and name in SECURITY_FAULTS:
            raise InputError(f"--nemesis {name}: only with --security {SECURED[spec.env]}")
        if not possible:
            raise InputError(f"--nemesis {name}: --env {spec.env} needs --control COMMAND for it")
        known = ", ".join(possible)
        raise InputError(
            f"--nemesis {name}: not available with --env {spec.env}; choose from {known}"
        )


def workload_of(spec: RunSpec) -> Workload:
    """Return the workload that the specification names."""
    module, _, function = WORKLOADS[spec.workload].partition(":")
    options = WorkloadOptions(
        concurrency=spec.concurrency,
        keys=spec.keys,
        ops_per_key=spec.ops_per_key,
        barrier_every=spec.barrier_every,
        replication=spec.replication,
        topic=spec.topic,
        acks=spec.acks,
        client=spec.client,
        kafka_home=spec.kafka_home,
    )
    made: Workload = getattr(importlib.import_module(module), function)(options)
    return made
