"""`raftctl bench`: measures any Kafka cluster, and the quorum beside etcd in the same run.

Options are named as those of Apache Kafka's performance tools where they mean the same.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, say_progress, show, table
from raftctl.cli.files import client_settings
from raftctl.errors import ConfigError

app = typer.Typer(help="Measures throughput and latency.", no_args_is_help=True)

RECORDS_MAX = 1_000_000_000
RECORD_BYTES_MAX = 100 * 1024 * 1024
FETCH_BYTES_MAX = 1_000_000_000
TIMEOUT_MS_MAX = 3_600_000
RATES = "{records} records, {records_per_s} records/s ({megabytes_per_s} MB/s)"
LATENCIES = (
    "{avg_ms} ms avg latency, {max_ms} ms max latency, {p50_ms} ms 50th, {p95_ms} ms 95th, "
    "{p99_ms} ms 99th, {p99_9_ms} ms 99.9th"
)

TopicOption = Annotated[str, typer.Option(metavar="TOPIC", help="An existing topic.")]
RecordsOption = Annotated[
    int, typer.Option(min=1, max=RECORDS_MAX, metavar="N", help="Number of records.")
]
ThroughputOption = Annotated[
    float, typer.Option(metavar="N", help="Records a second; -1: as fast as possible.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of librdkafka's client."),
]


@app.command()
def produce(
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    num_records: RecordsOption,
    record_size: Annotated[
        int,
        typer.Option(min=1, max=RECORD_BYTES_MAX, metavar="N", help="Bytes of a value."),
    ] = 1024,
    throughput: ThroughputOption = -1,
    command_property: Annotated[
        list[str] | None,
        typer.Option(
            "--command-property",
            "--producer-props",
            metavar="KEY=VALUE",
            help="A setting of librdkafka's producer, e.g. `acks=1`, `batch.size=65536`.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Writes records of random letters: rate and latencies.

    A megabyte is 10^6 bytes of values. A latency is from the call to the acknowledgement.
    """
    _check_throughput(throughput)
    # Of no use to the other commands.
    from raftctl.bench.records import ProducePlan
    from raftctl.bench.records import produce as run

    settings = client_settings(command_property)
    plan = ProducePlan(bootstrap_server, topic, num_records, record_size, throughput, settings)
    _show(output, run(plan, say_progress), f"{RATES}, {LATENCIES}")


@app.command()
def consume(
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    num_records: RecordsOption,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Begin at the end, not at the start.")
    ] = False,
    fetch_size: Annotated[
        int,
        typer.Option(
            min=1, max=FETCH_BYTES_MAX, metavar="N", help="Bytes of a partition in one fetch."
        ),
    ] = 1024 * 1024,
    timeout: Annotated[
        int,
        typer.Option(
            min=1, max=TIMEOUT_MS_MAX, metavar="MS", help="Longest time without a record."
        ),
    ] = 10_000,
    command_property: PropertyOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reads records of all partitions, without a group: rate.

    A megabyte is 10^6 bytes of values.
    """
    from raftctl.bench.records import ConsumePlan
    from raftctl.bench.records import consume as run

    settings = client_settings(command_property)
    plan = ConsumePlan(
        bootstrap_server, topic, num_records, from_latest, fetch_size, timeout, settings
    )
    _show(output, run(plan, say_progress), RATES)


@app.command(name="end-to-end")
def end_to_end(
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    num_records: RecordsOption,
    record_size: Annotated[
        int,
        typer.Option(min=16, max=RECORD_BYTES_MAX, metavar="N", help="Bytes of a value."),
    ] = 100,
    producer_acks: Annotated[
        str, typer.Option(metavar="0|1|all", help="Acknowledgements that a write waits for.")
    ] = "all",
    throughput: Annotated[
        float,
        typer.Option(
            metavar="N", help="Records a second; -1: each record once the last has arrived."
        ),
    ] = -1,
    command_property: PropertyOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measures latency from the producer's call to the consumer."""
    _check_throughput(throughput)
    if producer_acks not in ("0", "1", "-1", "all"):
        raise ConfigError(f"--producer-acks {producer_acks}: must be 0, 1 or all")
    from raftctl.bench.records import EndToEndPlan
    from raftctl.bench.records import end_to_end as run

    plan = EndToEndPlan(
        bootstrap_server,
        topic,
        num_records,
        record_size,
        producer_acks,
        throughput,
        client_settings(command_property),
    )
    _show(output, run(plan, say_progress), f"{RATES}, {LATENCIES}")


def _check_throughput(records_per_s: float) -> None:
    if records_per_s <= 0 and records_per_s != -1:
        raise ConfigError(
            f"--throughput {records_per_s:g}: must be above 0 records a second, or -1 for no limit"
        )


def _show(output: Output, report: dict[str, Any], form: str) -> None:
    show(output, report, form.format(**report))


OUTSTANDING_MAX = 4096
VALUE_BYTES_MAX = 64 * 1024
PAIRS = (
    ("puts a second", "puts", "puts_ratio"),
    ("processor time of the voters for each put", "put_cpu", ""),
    ("fsyncs of the voters for each put", "put_fsyncs", ""),
    ("one put at a time, median", "put_latency", "put_latency_ratio"),
    ("kill -9 of the leader to the next commit", "quorum_failover", "quorum_failover_ratio"),
)


class Peer(enum.StrEnum):
    """What the quorum is compared with."""

    ETCD = "etcd"
    NONE = "none"


@app.command()
def quorum(
    peer: Annotated[
        Peer, typer.Option(metavar="etcd|none", help="Quorum to compare with, in turns.")
    ] = Peer.ETCD,
    outstanding: Annotated[
        int,
        typer.Option(min=1, max=OUTSTANDING_MAX, metavar="N", help="Puts under way at any time."),
    ] = 256,
    value_bytes: Annotated[
        int, typer.Option(min=1, max=VALUE_BYTES_MAX, metavar="N", help="Size of a value.")
    ] = 256,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Seconds measured in each turn.")
    ] = 4.0,
    turns: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Turns of each quorum.")
    ] = 3,
    failovers: Annotated[
        int,
        typer.Option(min=0, max=1000, metavar="N", help="Number of leaders to kill, one by one."),
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measures a quorum of three voters on this machine. Figures: puts a second, the time of one
    put, failover.

    Every commit is synced to disk by a majority; a process apart puts values and awaits one reply
    for each. Without etcd or Go it says what is missing and measures raftctl alone. JSON has all
    turns.
    """
    # Of no use to the other commands.
    from raftctl.bench.figures import report
    from raftctl.bench.quorum import Plan, measure
    from raftctl.cli.offline.storage import format_storage, random_uuid_text

    measured = measure(
        Plan(outstanding, value_bytes, seconds, turns, failovers, peer.value),
        cluster_id=random_uuid_text(),
        format_storage=format_storage,
        say=say_progress,
    )
    document = {**report(measured.figures), "limits": measured.limits}
    show(output, document, "\n".join([_comparison(measured.figures).rstrip(), *measured.limits]))


def _comparison(figures: dict[str, dict[str, Any]]) -> str:
    """Medians of ours and the peer's side by side; for failover also the slowest."""
    rows = []
    for label, name, ratio in PAIRS:
        if f"{name}_raftctl" not in figures:
            continue
        ours, theirs = figures[f"{name}_raftctl"], figures.get(f"{name}_etcd", {})
        of = figures.get(ratio, {}).get("median")
        rows.append((label, ours["unit"], ours["median"], theirs.get("median"), of))
        if name == "quorum_failover":
            rows.append(("the same, slowest", ours["unit"], ours["max"], theirs.get("max"), None))
    return table(("FIGURE", "UNIT", "RAFTCTL", "ETCD", "RATIO"), rows)
