"""What security costs: `python -m tests.bench.security.main --output FILE [--only PART ...]`.

A part has figures of its own with their goals; nothing is asserted here. Clusters of both systems
are measured by PLAINTEXT, SSL and SASL_SSL (`transport`). `quotas` is a client that sends all it
can beside another one, to Apache Kafka and to us. `authorizer` is one process without a network: a
decision of a StandardAuthorizer that has millions of rules.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.kafka.session import Report, end_with_clusters, jars
from tests.bench.kafka.turns import Options
from tests.bench.security import authorizer, quotas, transport

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTHORIZER, QUOTAS = "authorizer", "quotas"
PARTS = [*transport.PARTS, QUOTAS, AUTHORIZER]
KAFKA_VERSION = "4.3.1"


def main(words: Sequence[str] | None = None) -> None:
    """Measure the parts named, or all, and write the figures."""
    given = _parse(words)
    names = given.only or PARTS
    wanted = [name for name in transport.PARTS if name in names]
    found = jars(given.peer, KAFKA_VERSION) if {*wanted, QUOTAS} & {*names} else None
    settings = {"turns": given.turns, "megabytes": given.megabytes}
    warmth = {"warmup_megabytes": given.warmup_megabytes, "cold_megabytes": given.cold_megabytes}
    report = Report(given.output, KAFKA_VERSION, settings={"settings": settings | warmth})
    options = Options(
        **settings,
        **warmth,
        latency_rate=given.latency_rate,
        latency_seconds=given.latency_seconds,
        compare=transport.compare,
    )
    if wanted:
        with report.attempting("clusters"):
            transport.measure(wanted, found, options, report)
    if QUOTAS in names:
        report.attempt(QUOTAS, partial(quotas.run, given.quota_turns, found))
    if AUTHORIZER in names:
        report.attempt(AUTHORIZER, partial(authorizer.run, given.turns, given.rules))
    if report.failures:
        sys.exit("could not be measured: " + ", ".join(report.failures))


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.security", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART")
    parser.add_argument("--peer", choices=["kafka", "none"], default="kafka")
    parser.add_argument("--output", type=Path, default=Path("out/bench-security.json"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64, help="of one turn")
    parser.add_argument("--warmup-megabytes", type=int, default=64, help="before all turns")
    parser.add_argument("--cold-megabytes", type=int, default=192, help="of one turn of consume")
    parser.add_argument("--latency-rate", type=int, default=200, help="records a second")
    parser.add_argument("--latency-seconds", type=int, default=5, help="of one turn")
    parser.add_argument("--quota-turns", type=int, default=1, help="of a minute each")
    parser.add_argument("--rules", type=int, default=authorizer.RULES)
    return parser.parse_args(words)


if __name__ == "__main__":
    end_with_clusters()
    main()
