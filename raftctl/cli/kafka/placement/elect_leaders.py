"""`raftctl elect-leaders`: over the Kafka protocol (row C5), as kafka-leader-election.sh."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from raftctl.cli._output import counted
from raftctl.cli.kafka.admin import Cluster, parse_partition
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
    cluster: Cluster,
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
) -> None:
    """Elects leaders of partitions. Preferred replicas lead again; unclean: any active replica
    where nobody leads."""
    if bool(partition) == all_partitions:
        raise ConfigError("give --partition TOPIC:NUMBER once or more, or --all-topic-partitions")
    from confluent_kafka import ElectionType

    named = None if all_partitions else [parse_partition(one) for one in partition or ()]
    kind = ElectionType.PREFERRED if election_type == Election.PREFERRED else ElectionType.UNCLEAN
    # With a timeout of its own the library raises SystemError, so the wait is bounded here.
    future = cluster.client.elect_leaders(kind, named)
    results = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "error": None if error is None else ErrorCode(error.code()).name,
            "message": None if error is None else error.str(),
        }
        for one, error in sorted(cluster.wait(future).items())
    ]
    columns = ("TOPIC", "PARTITION", "ERROR", "MESSAGE")
    cluster.show_rows(columns, results, "no partition needs an election")
    harmless = (None, ErrorCode.ELECTION_NOT_NEEDED.name)
    failed = [one for one in results if one["error"] not in harmless]
    if failed:
        code = ErrorCode[str(failed[0]["error"])]
        raise KafkaError(code, f"no leader was elected for {counted(len(failed), 'partition')}")
