"""`python -m tests.bench kafka`: measures, writes JSON, prints a line a figure.

Without Java or Maven it says what is missing and measures ours alone. On a machine that does other
work meanwhile, ratios are indicative and processor time says more than speed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.kafka import connections, lifecycle, paced, throughput
from tests.bench.kafka.clusters import SPEC, Cluster, makers
from tests.bench.kafka.session import Report, end_with_clusters, jars, running
from tests.bench.kafka.turns import Options
from tests.bench.kafka.warmth import Warmth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.bench.kafka.clusters import Maker

STARTUP = "startup"
Part = Callable[[Sequence[Cluster], Options], dict[str, Any]]
PARTS: dict[str, Part] = {
    "produce_acks_all": throughput.produce_acks_all,
    "produce_acks_1": throughput.produce_acks_1,
    "produce_small": throughput.produce_small,
    "consume_cached": throughput.consume_cached,
    "consume_cold": throughput.consume_cold,
    "consume_cached_4": partial(throughput.consume_cached, consumers=4),
    "consume_cold_4": partial(throughput.consume_cold, consumers=4),
    "latency": throughput.latency,
    "paced": paced.paced,
    "connections": connections.connections,
    "failover": lifecycle.failover,
    "record_sizes": throughput.record_sizes,
}
"""What is measured of two clusters that run; `STARTUP` starts its own."""
GROWTH: dict[str, Part] = {
    f"partitions_{count}": partial(lifecycle.partitions, count=count)
    for count in lifecycle.PARTITIONS
}
"""The same, with the timeouts that Apache Kafka has by default."""
CONNECTIONS = [1000, 10_000]
RATES = [100, 500, 1000, 2000, 4000]
FULL = {"turns": 5, "megabytes": 256, "cold_megabytes": 4096, "partitions_max": 10_000}


def main(words: Sequence[str]) -> None:
    """Measures the parts named, or all."""
    end_with_clusters()
    connections.allow_many()
    arguments = _parse(words)
    options = Options(
        arguments.turns,
        arguments.megabytes,
        arguments.warmup_megabytes,
        arguments.cold_megabytes,
        warmth=Warmth(arguments.warm_megabytes, arguments.warm_seconds),
        rates=arguments.rates,
        paced_seconds=arguments.paced_seconds,
        cached_megabytes=arguments.cached_megabytes,
        connections=arguments.connections,
    )
    names = arguments.only or [STARTUP, *PARTS, *_growth(arguments.partitions_max)]
    found = jars(arguments.peer, arguments.kafka_version)
    told = Report(arguments.output, arguments.kafka_version, options.warmth)
    if STARTUP in names:
        told.attempt(STARTUP, lambda: lifecycle.startup(makers(found), options))
    growth = replace(options, turns=arguments.growth_turns)
    for parts, spec, those in ((PARTS, SPEC, options), (GROWTH, lifecycle.GROWTH_SPEC, growth)):
        wanted = {name: part for name, part in parts.items() if name in names}
        if wanted:
            _measure(makers(found, spec), wanted, those, told)
    if told.failures:
        sys.exit("could not be measured: " + ", ".join(told.failures))


def _measure(
    found: Sequence[Maker], parts: Mapping[str, Part], options: Options, told: Report
) -> None:
    warm_up = partial(throughput.warm_up, megabytes=options.warmup_megabytes, warmth=options.warmth)
    with running(found, warm_up) as clusters:
        for name, part in parts.items():
            told.attempt(name, partial(part, clusters, options))


def _growth(partitions_max: int) -> list[str]:
    """The parts that are measured unless others are named."""
    return [f"partitions_{one}" for one in lifecycle.PARTITIONS if one <= partitions_max]


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench kafka", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[STARTUP, *PARTS, *GROWTH], metavar="PART")
    parser.add_argument("--peer", choices=["kafka", "none"], default="kafka")
    parser.add_argument("--kafka-version", default="4.3.1")
    parser.add_argument("--output", type=Path, default=Path("out/bench-kafka.json"))
    parser.add_argument("--full", action="store_true", help=f"as with {FULL}")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64, help="of one turn")
    parser.add_argument("--warmup-megabytes", type=int, default=128, help="before all turns")
    parser.add_argument("--warm-megabytes", type=int, default=0, help="at least, the same way")
    parser.add_argument("--warm-seconds", type=float, default=0, help="at least, of each load")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="of `paced`")
    parser.add_argument("--paced-seconds", type=float, default=6, help="of one turn of `paced`")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--cached-megabytes", type=int, default=0, help="read from the page cache")
    parser.add_argument("--cold-megabytes", type=int, default=256, help="read from the disk")
    parser.add_argument("--growth-turns", type=int, default=1, help="for numbers of partitions")
    parser.add_argument("--partitions-max", type=int, default=1000, help="per broker")
    # A value given on the command line wins over what --full stands for.
    if "--full" in words:
        parser.set_defaults(**FULL)
    return parser.parse_args(words)
