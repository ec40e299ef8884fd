"""The options that commands which run tests have in common, and the test they make together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli._output import tell
from jepsen.core.spec import CLIENTS, RunSpec, check_spec
from jepsen.environments import Security
from jepsen.environments.local import NETWORKS, RELAYS
from jepsen.errors import InputError
from jepsen.nemesis.plan import plan_from_json
from jepsen.runner import ENVIRONMENTS, run_and_judge
from jepsen.store import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jepsen.checkers.verdict import Verdict
    from jepsen.nemesis.plan import Plan
    from jepsen.simulator.runner.fork_server import ForkServers

SEED_MAX = 1_000_000
ACKS = ("all", "1", "0")

EnvOption = Annotated[
    str, typer.Option(metavar="|".join(ENVIRONMENTS), help="Where the cluster runs.")
]
TimeLimitOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds of operations and faults; final reads come after.")
]
RateOption = Annotated[
    float, typer.Option(min=0.01, help="Operations a second, all clients together.")
]
ConcurrencyOption = Annotated[int, typer.Option(min=1, max=1000, help="Number of clients.")]
IntervalOption = Annotated[
    float, typer.Option(min=0.01, help="Average seconds between faults, and of each fault.")
]
SeedOption = Annotated[
    int | None, typer.Option(min=0, help="Seed of all random choices; default: a new one.")
]
ControllersOption = Annotated[int, typer.Option(min=1, max=9, help="Controllers of a new cluster.")]
BrokersOption = Annotated[int, typer.Option(min=1, max=100, help="Brokers of a new cluster.")]
KeysOption = Annotated[int, typer.Option(min=1, max=1000, help="Partitions of the topic.")]
OpsPerKeyOption = Annotated[
    int, typer.Option(min=1, help="`register`: operations on a key before a new key is used.")
]
BarrierEveryOption = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="K",
        help="`register`: wait until all operations on a key have ended after every K; 0: never.",
    ),
]
ReplicationOption = Annotated[int, typer.Option(min=1, max=100, help="Replicas of each partition.")]
AcksOption = Annotated[
    str, typer.Option(metavar="|".join(ACKS), help="Acknowledgements that producers wait for.")
]
ClientOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(CLIENTS), help="Kafka client library; env sim has aiokafka only."
    ),
]
BootstrapOption = Annotated[
    str, typer.Option(metavar="HOST:PORT,...", help="Addresses of the external cluster.")
]
ControlOption = Annotated[
    str,
    typer.Option(
        metavar="COMMAND",
        help="Program that kills and starts nodes of the external cluster (test-any-kafka.md).",
    ),
]
CommandConfigOption = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="How clients log in to the external cluster: .properties, as of Kafka's tools.",
    ),
]
NetworkOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(NETWORKS),
        help="Network of a local cluster: relays hold data back, namespaces (as root) drop it.",
    ),
]
SecurityOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(Security),
        help="What clients of a new cluster speak; SASL: they log in, and rules hold.",
    ),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        "-o",
        metavar="KEY=VALUE",
        help="Configuration key of the nodes; repeat it.",
    ),
]
StoreOption = Annotated[str, typer.Option(metavar="DIR", help="Directory of the runs.")]


def check_words(env: str, acks: str) -> None:
    """InputError for what is none of the words that an option takes."""
    if acks not in ACKS:
        raise InputError(f"--acks {acks}: choose one of {', '.join(ACKS)}")
    if env not in ENVIRONMENTS:
        raise InputError(f"--env {env}: choose one of {', '.join(ENVIRONMENTS)}")


def default_client(env: str) -> str:
    """The library that a test uses if none is named."""
    return "aiokafka" if env == "sim" else "librdkafka"


def new_seed(given: int | None) -> int:
    """The seed that was asked for, else one by chance."""
    return random.randrange(SEED_MAX) if given is None else given


def new_topic(env: str, seed: int) -> str:
    """Of one run. Clusters of others keep what runs leave there, so each has another name."""
    return f"jepsen-{seed}" + (f"-{secrets.token_hex(3)}" if env == "external" else "")


def comma_separated(text: str) -> tuple[str, ...]:
    """The words between commas."""
    return tuple(word for word in text.split(",") if word)


def overrides_of(given: Sequence[str]) -> dict[str, str]:
    """The configuration keys with their values; InputError."""
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise InputError(f"-o {one}: write KEY=VALUE")
        found[key.strip()] = value
    return found


def plan_of(text: str) -> Plan:
    """A plan from the name of a file, or from JSON, which begins with a bracket. InputError."""
    if not text.startswith("["):
        text = Path(text).read_text(encoding="utf-8")
    try:
        return plan_from_json(json.loads(text))
    except ValueError as error:
        raise InputError(f"--plan: not valid JSON: {error}") from None


def run_one(
    spec: RunSpec, store: Path, seeds: ForkServers | None = None
) -> tuple[RunFolder, dict[str, Verdict]]:
    """Run and judge a test in a new folder of the store. InputError, and then there is none.

    `seeds`: fork servers of the simulator for a test of `--env sim`.
    """
    check_spec(spec)
    if spec.env == "external":
        # Needs a client of Kafka, which other tests do without.
        from jepsen.environments.external import check_cluster, entrance_of

        entrance = entrance_of(spec.bootstrap_servers, spec.command_config)
        check = check_cluster(entrance, spec.topic, keys=spec.keys, replication=spec.replication)
        asyncio.run(check)
    folder = RunFolder.create(store, spec, rerun_command(spec))
    with _progress() as report:
        return folder, run_and_judge(folder, report, seeds)


def rerun_command(spec: RunSpec) -> str:
    """The command line that runs the same again."""
    external = spec.env == "external"
    options = {
        "--env": spec.env,
        "--nemesis": ",".join(spec.nemesis) if spec.plan is None else "",
        "--plan": (
            "" if spec.plan is None else json.dumps([fault.to_json() for fault in spec.plan])
        ),
        **_common(spec),
        "--keys": str(spec.keys),
        "--ops-per-key": str(spec.ops_per_key),
        "--barrier-every": str(spec.barrier_every) if spec.barrier_every else "",
        "--acks": spec.acks,
        # A topic of another cluster has the records of this run, so the next one gets its own.
        "--topic": "" if spec.topic == f"jepsen-{spec.seed}" or external else spec.topic,
        "--kafka-home": spec.kafka_home,
        "--min-rate": f"{spec.rate_min:g}",
    }
    return _command_line(["test", spec.workload], options.items(), spec)


def matrix_command(
    template: RunSpec, workloads: Sequence[str], nemeses: Sequence[Sequence[str]]
) -> str:
    """The command line that runs the same matrix; of all workloads or faults if none is given."""
    options = [
        ("--env", template.env),
        ("--workload", ",".join(workloads)),
        *(("--nemesis", ",".join(names)) for names in nemeses),
        *_common(template).items(),
    ]
    return _command_line(["test-all"], options, template)


def _common(spec: RunSpec) -> dict[str, str]:
    return {
        "--time-limit": f"{spec.time_limit_s:g}",
        "--rate": f"{spec.rate:g}",
        "--concurrency": str(spec.concurrency),
        "--interval": f"{spec.interval_s:g}",
        "--seed": str(spec.seed),
        "--controllers": str(spec.controllers),
        "--brokers": str(spec.brokers),
        "--replication": str(spec.replication),
        "--client": spec.client,
        "--bootstrap-servers": spec.bootstrap_servers,
        "--control": spec.control,
        "--command-config": spec.command_config,
        "--security": "" if spec.security == Security.PLAINTEXT else spec.security,
        "--network": "" if spec.network == RELAYS else spec.network,
    }


def _command_line(begin: Sequence[str], options: Iterable[tuple[str, str]], spec: RunSpec) -> str:
    words = ["jepsen", *begin]
    for option, value in options:
        words += [option, value] if value else []
    for key, value in spec.overrides.items():
        words += ["-o", f"{key}={value}"]
    return shlex.join(words)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line that is written over on a terminal, else lines one after the other."""
    if not sys.stderr.isatty():
        yield tell
        return

    def over(line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line[:150]}")
        sys.stderr.flush()

    yield over
    sys.stderr.write("\n")
