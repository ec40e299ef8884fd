"""`raftctl bench produce|consume|end-to-end`: clients that measure any Kafka cluster.

Options are named as those of Apache Kafka's performance tools where they mean the same.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, say_progress, show
from raftctl.cli.clients._quorum_bench import app
from raftctl.cli.files import client_settings
from raftctl.errors import ConfigError

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
    int, typer.Option(min=1, max=RECORDS_MAX, metavar="N", help="How many records.")
]
ThroughputOption = Annotated[
    float, typer.Option(metavar="N", help="Records a second; -1: as fast as can be.")
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
    from raftctl.bench.produce import ProducePlan
    from raftctl.bench.produce import produce as run

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
            min=1, max=TIMEOUT_MS_MAX, metavar="MS", help="The longest time without a record."
        ),
    ] = 10_000,
    command_property: PropertyOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reads records of all partitions, without a group: rate.

    A megabyte is 10^6 bytes of values.
    """
    from raftctl.bench.consume import ConsumePlan
    from raftctl.bench.consume import consume as run

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
        str, typer.Option(metavar="0|1|all", help="What a write waits for.")
    ] = "all",
    throughput: Annotated[
        float,
        typer.Option(
            metavar="N", help="Records a second; -1: the next one when the last has arrived."
        ),
    ] = -1,
    command_property: PropertyOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measures latency from the producer's call to the consumer."""
    _check_throughput(throughput)
    if producer_acks not in ("0", "1", "-1", "all"):
        raise ConfigError(f"--producer-acks {producer_acks}: must be 0, 1 or all")
    from raftctl.bench.end_to_end import EndToEndPlan
    from raftctl.bench.end_to_end import end_to_end as run

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
