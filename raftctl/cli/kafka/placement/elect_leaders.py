"""`raftctl elect-leaders`: over the Kafka protocol (row C5), as kafka-leader-election.sh."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from raftctl.cli._output import BootstrapOption, Output, OutputOption, counted, show, table
from raftctl.cli.kafka.admin import (
    TIMEOUT_S,
    TimeoutOption,
    admin_client,
    parse_partition,
    wait_for,
)
from raftctl.errors import ConfigError, ErrorCode, KafkaError


class Election(enum.StrEnum):
    """Which replicas may be elected."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="TOPIC:NUMBER", help="A partition; may be repeated."),
]


def elect_leaders(
    bootstrap_server: BootstrapOption,
    partition: PartitionOption = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="All partitions instead of some.")
    ] = False,
    election_type: Annotated[
        Election,
        typer.Option(
            metavar="preferred|unclean",
            help="`unclean`: without a leader, also a replica that may lack records.",
        ),
    ] = Election.PREFERRED,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Elects leaders of partitions. Preferred replicas lead again; unclean: any active replica
    where nobody leads."""
    if bool(partition) == all_partitions:
        raise ConfigError("give --partition TOPIC:NUMBER once or more, or --all-topic-partitions")
    from confluent_kafka import ElectionType

    named = None if all_partitions else [parse_partition(one) for one in partition or ()]
    kind = ElectionType.PREFERRED if election_type == Election.PREFERRED else ElectionType.UNCLEAN
    client = admin_client(bootstrap_server)
    # With a timeout of its own the library raises SystemError, so the wait is bounded here.
    future = client.elect_leaders(kind, named)
    results = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "error": None if error is None else ErrorCode(error.code()).name,
            "message": None if error is None else error.str(),
        }
        for one, error in sorted(wait_for(future, timeout).items())
    ]
    rows = [list(one.values()) for one in results]
    columns = ("TOPIC", "PARTITION", "ERROR", "MESSAGE")
    show(output, results, table(columns, rows, "no partition needs an election"))
    harmless = (None, ErrorCode.ELECTION_NOT_NEEDED.name)
    failed = [one for one in results if one["error"] not in harmless]
    if failed:
        code = ErrorCode[str(failed[0]["error"])]
        raise KafkaError(code, f"no leader was elected for {counted(len(failed), 'partition')}")
