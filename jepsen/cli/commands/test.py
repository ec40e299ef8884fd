"""`jepsen test`: breaks a cluster, records what its clients saw, judges it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.checkers.verdict import WORDS
from jepsen.cli import _options as options
from jepsen.cli._output import (
    INTERRUPTED,
    Output,
    OutputOption,
    anomaly_lines,
    exit_status,
    say,
    say_json,
    tell,
)
from jepsen.core import format_faults, overall
from jepsen.core.spec import RATE_MIN, WORKLOADS, RunSpec
from jepsen.environments import Security
from jepsen.environments.local import RELAYS
from jepsen.errors import InputError
from jepsen.nemesis.plan import PACKAGES
from jepsen.store import DEFAULT_STORE, RunFolder

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict

MinRateOption = Annotated[
    float,
    typer.Option(min=0, help="Verdict unknown below this many successful operations a second."),
]
NemesisOption = Annotated[
    str, typer.Option(metavar="FAULT,...", help=f"Any of {', '.join(PACKAGES)}; default: none.")
]
PlanOption = Annotated[
    str, typer.Option(metavar="FILE", help="Faults of this plan instead, as a run's plan.json.")
]
WorkloadArgument = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help=f"One of {', '.join(WORKLOADS)}.")
]

TestCountOption = Annotated[
    int, typer.Option(min=1, help="Runs, each with the next seed; stops unless a run is valid.")
]
TopicOption = Annotated[str, typer.Option(help="Name of the topic; default: a new one.")]


def run(
    workload: WorkloadArgument,
    env: options.EnvOption = "local",
    nemesis: NemesisOption = "",
    plan: PlanOption = "",
    time_limit: options.TimeLimitOption = 30.0,
    rate: options.RateOption = 50.0,
    concurrency: options.ConcurrencyOption = 6,
    interval: options.IntervalOption = 4.0,
    seed: options.SeedOption = None,
    test_count: TestCountOption = 1,
    controllers: options.ControllersOption = 3,
    brokers: options.BrokersOption = 3,
    keys: options.KeysOption = 3,
    ops_per_key: options.OpsPerKeyOption = 200,
    barrier_every: options.BarrierEveryOption = 0,
    replication: options.ReplicationOption = 3,
    acks: options.AcksOption = "all",
    client: options.ClientOption = "",
    topic: TopicOption = "",
    bootstrap_servers: options.BootstrapOption = "",
    control: options.ControlOption = "",
    command_config: options.CommandConfigOption = "",
    network: options.NetworkOption = RELAYS,
    security: options.SecurityOption = Security.PLAINTEXT,
    kafka_home: Annotated[
        str, typer.Option(metavar="DIR", help="`verifiable`: Apache Kafka's directory.")
    ] = "",
    min_rate: MinRateOption = RATE_MIN,
    override: options.OverrideOption = None,
    store: options.StoreOption = DEFAULT_STORE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Runs a test, judges it, and keeps it in the store.

    Prints `FOLDER valid`, `invalid` or `unknown`. In env sim the same options and seed are the same
    run. A run is unknown if a fault that was asked for never struck, if too little succeeded, or if
    Ctrl-C ended it early: then it is healed, kept and judged. Exit status 0 valid, 1 invalid, 2
    unknown, 130 interrupted without being invalid, 254 bad arguments.
    """
    options.check_words(env, acks)
    spec = RunSpec(
        workload,
        env,
        options.comma_separated(nemesis),
        time_limit,
        rate,
        concurrency,
        interval,
        options.new_seed(seed),
        keys=keys,
        ops_per_key=ops_per_key,
        barrier_every=barrier_every,
        replication=replication,
        acks=acks,
        client=client or options.default_client(env),
        topic=topic,
        controllers=controllers,
        brokers=brokers,
        overrides=options.overrides_of(override or ()),
        bootstrap_servers=bootstrap_servers,
        control=control,
        command_config=command_config,
        network=network,
        security=security,
        kafka_home=kafka_home,
        rate_min=min_rate,
    )
    raise typer.Exit(_several(_planned(spec, plan), test_count, Path(store), output))


def _planned(spec: RunSpec, plan: str) -> RunSpec:
    """The test, with the faults of the plan if one is named.

    Raises InputError if the test has random faults too.
    """
    if not plan:
        return spec
    if spec.nemesis:
        raise InputError("--plan: it has the faults, so leave --nemesis out")
    return spec.with_plan(options.plan_of(plan))


def _several(spec: RunSpec, count: int, store: Path, output: Output) -> int:
    """Runs with one seed after the other until one is not valid; the exit status."""
    for seed in range(spec.seed, spec.seed + count):
        of_seed = replace(spec, seed=seed, topic=spec.topic or options.new_topic(spec.env, seed))
        folder, verdicts = options.run_one(of_seed, store)
        _show(folder, verdicts, output)
        valid = overall(verdicts)
        if valid == "unknown" and (folder.results or {}).get("interrupted"):
            return INTERRUPTED
        if valid is not True:
            return exit_status(valid)
    return 0


def _show(folder: RunFolder, verdicts: dict[str, Verdict], output: Output) -> None:
    if output is Output.JSON:
        say_json({"folder": str(folder.path), **(folder.results or {})})
        return
    for name, verdict in verdicts.items():
        tell(f"{name}: {WORDS[verdict.valid]}  {verdict.why_unknown}".rstrip())
        for line in anomaly_lines(verdict):
            tell(f"  {line}")
    if struck := (folder.results or {}).get("faults"):
        tell(f"faults that struck: {format_faults(struck)}")
    tell(f"jepsen report {folder.path} makes a page of it")
    say(f"{folder.path} {WORDS[overall(verdicts)]}")
