"""`python -m tests.bench groups`: measures, writes JSON, prints a line a figure.

Without Java or Maven it says what is missing and measures ours alone. On a machine that does other
work meanwhile, ratios are indicative and processor time says more than speed.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftctl.localcluster.cluster import ClusterSpec
from tests.bench.groups import coordinators, loads
from tests.bench.groups.loads import Options
from tests.bench.kafka.clusters import SPEC, makers
from tests.bench.kafka.session import Report, end_with_clusters, jars, running
from tests.bench.kafka.warmth import Warmth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.kafka.clusters import Cluster

PARTS: dict[str, Callable[[Sequence[Cluster], Options], dict[str, Any]]] = {
    "rebalance_classic": partial(loads.rebalances, protocol="classic"),
    "rebalance_consumer": partial(loads.rebalances, protocol="consumer"),
    "commits": partial(loads.commits, coordinators="one"),
    "commits_all": partial(loads.commits, coordinators="all"),
    "commits_by_groups": loads.commits_by_groups,
    "transactions_1": partial(loads.transactions, producers=1),
    "transactions_8": partial(loads.transactions, producers=8),
    "failover": coordinators.failover,
    "loading": coordinators.loading,
}


def main(words: Sequence[str]) -> None:
    """Measures the parts named, or all."""
    end_with_clusters()
    arguments = _parse(words)
    options = Options(
        arguments.turns,
        arguments.seconds,
        arguments.warmup_seconds,
        arguments.members,
        arguments.partitions,
        arguments.rebalance_delay_ms,
        arguments.outstanding,
        arguments.offsets,
        Warmth(arguments.warm_megabytes, arguments.warm_seconds),
    )
    overrides = {"group.initial.rebalance.delay.ms": str(options.delay_ms)}
    spec = ClusterSpec(SPEC.controllers, SPEC.brokers, overrides=overrides)
    found = makers(jars(arguments.peer, arguments.kafka_version), spec)
    told = Report(arguments.output, arguments.kafka_version, options.warmth)
    with running(found, partial(loads.warm_up, options=options)) as clusters:
        for name, part in PARTS.items():
            if name in (arguments.only or PARTS):
                told.attempt(name, partial(part, clusters, options))
    if told.failures:
        sys.exit("could not be measured: " + ", ".join(told.failures))


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench groups", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART")
    parser.add_argument("--peer", choices=["kafka", "none"], default="kafka")
    parser.add_argument("--kafka-version", default="4.3.1")
    parser.add_argument("--output", type=Path, default=Path("out/bench-groups.json"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of one turn of a load")
    parser.add_argument("--warmup-seconds", type=float, default=30, help="of each load")
    parser.add_argument("--warm-megabytes", type=int, default=0, help="at least, of records")
    parser.add_argument("--warm-seconds", type=float, default=0, help="at least, of each load")
    parser.add_argument("--members", type=int, default=20, help="of the group")
    parser.add_argument("--partitions", type=int, default=60, help="that the members share")
    parser.add_argument("--rebalance-delay-ms", type=int, default=1000)
    parser.add_argument("--outstanding", type=int, default=64, help="commits under way")
    parser.add_argument("--offsets", type=int, default=1_000_000, help="to be loaded")
    return parser.parse_args(words)
