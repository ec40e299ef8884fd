"""`raftctl topics`: over the Kafka protocol, so against any Kafka-compatible cluster (row A3)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.cli._arguments import not_empty, with_near_miss
from raftctl.cli._options import CommandGroup, ValidateOption
from raftctl.cli._output import counted, table
from raftctl.cli.files import parse_overrides
from raftctl.cli.kafka.admin import Cluster, T
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future


app = CommandGroup("Creates, lists, describes, alters and deletes topics.")

TopicArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="The topic; also as Kafka's --topic TOPIC.",
        callback=not_empty("TOPIC"),
    ),
]
ExcludeInternalOption = Annotated[
    bool,
    typer.Option("--exclude-internal", help="Leaves out the internal topics of brokers."),
]
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000
"""What librdkafka takes."""
INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state"))
"""Those that Apache Kafka's tools take for internal."""
_BROKER_ID = re.compile(r"[0-9]{1,9}")


@app.command()
def create(
    topic: TopicArgument,
    cluster: Cluster,
    partitions: Annotated[
        int, typer.Option(help="-1: the cluster's default.", min=-1, max=PARTITIONS_MAX)
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option(help="-1: the cluster's default.", min=-1, max=REPLICAS_MAX)
    ] = -1,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            metavar="ID:ID,...",
            help="Brokers of each partition instead of counts, the preferred leader first: "
            "1:2,2:3 is two partitions of two replicas.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A config of the topic.")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeeds if the topic exists already.")
    ] = False,
    validate_only: ValidateOption = False,
) -> None:
    """Creates a topic."""
    if replica_assignment is not None and (partitions, replication_factor) != (-1, -1):
        raise ConfigError(
            "--replica-assignment sets the counts: leave out --partitions and --replication-factor"
        )
    from confluent_kafka.cimpl import NewTopic

    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    configs = parse_overrides(config or (), "--config")
    placed = {} if assignment is None else {"replica_assignment": assignment}
    count = partitions if assignment is None else len(assignment)
    new = NewTopic(topic, count, replication_factor, config=configs, **placed)
    try:
        asked = cluster.client.create_topics([new], validate_only=validate_only, **cluster.timeouts)
        cluster.wait(asked[topic])
    except KafkaError as error:
        if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise with_near_miss(error) from None
        cluster.show({"created": None}, f"{topic} is there already")
        return
    done = "could create" if validate_only else "created"
    cluster.show({"created": None if validate_only else topic}, f"{done} {topic}")


def parse_assignment(text: str) -> list[list[int]]:
    """The brokers of each partition, written as Apache Kafka's tool takes them."""
    groups = [part.strip().split(":") for part in text.split(",")]
    if any(not _BROKER_ID.fullmatch(one) for group in groups for one in group):
        message = f"--replica-assignment {text!r}: write ids as 1:2,2:3, a group for each partition"
        raise ConfigError(message)
    return [[int(one) for one in group] for group in groups]


@app.command(name="list")
def list_topics(
    cluster: Cluster,
    exclude_internal: ExcludeInternalOption = False,
) -> None:
    """Lists all topics."""
    topics = [
        {"topic": name, "partitions": len(metadata.partitions)}
        for name, metadata in sorted(cluster.topics().items())
        if not (exclude_internal and name in INTERNAL_TOPICS)
    ]
    cluster.show_rows(("TOPIC", "PARTITIONS"), topics, "there are no topics")


@app.command()
def describe(
    topic: TopicArgument,
    cluster: Cluster,
) -> None:
    """Shows a topic's id and partitions. Of each: leader, replicas, in-sync replicas."""
    from confluent_kafka import TopicCollection

    futures = cluster.client.describe_topics(
        TopicCollection([topic]), request_timeout=cluster.timeout
    )
    found = _wait_for_topic(cluster, futures, topic)
    partitions = [
        {
            "partition": partition.id,
            "leader": None if partition.leader is None else partition.leader.id,
            "replicas": [one.id for one in partition.replicas],
            "isr": sorted(one.id for one in partition.isr),
        }
        for partition in found.partitions
    ]
    rows = [list(one.values()) for one in partitions]
    text = table(("PARTITION", "LEADER", "REPLICAS", "IN-SYNC"), rows)
    # The library writes it in the other alphabet of base64 than everybody else.
    topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_"))
    document = {"topic": topic, "topic_id": topic_id, "partitions": partitions}
    cluster.show(document, f"{topic}, id {topic_id}\n{text}")


@app.command()
def alter(
    topic: TopicArgument,
    cluster: Cluster,
    partitions: Annotated[
        int,
        typer.Option(
            help="New number of partitions, above the present one.", min=1, max=PARTITIONS_MAX
        ),
    ],
) -> None:
    """Adds partitions to a topic. Keys may move to the new ones; records stay where they are."""
    from confluent_kafka.cimpl import NewPartitions

    new = NewPartitions(topic, partitions)
    futures = cluster.client.create_partitions([new], **cluster.timeouts)
    cluster.wait(futures[topic])
    text = f"{topic} has {counted(partitions, 'partition')}"
    cluster.show({"topic": topic, "partitions": partitions}, text)


@app.command()
def delete(
    topic: TopicArgument,
    cluster: Cluster,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeeds if there is no such topic.")
    ] = False,
) -> None:
    """Deletes a topic and all its records."""
    futures = cluster.client.delete_topics([topic], **cluster.timeouts)
    try:
        _wait_for_topic(cluster, futures, topic)
    except KafkaError as error:
        if not if_exists or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        cluster.show({"deleted": None}, f"there is no topic {topic}")
        return
    cluster.show({"deleted": topic}, f"deleted {topic}")


def _wait_for_topic(cluster: Cluster, futures: Mapping[str, Future[T]], topic: str) -> T:
    try:
        return cluster.wait(futures[topic])
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise KafkaError(error.code, f"no topic {topic}") from None
