"""`raftctl topics` and `partitions`: over the Kafka protocol, so of any cluster (rows A3, C3, C5).

The filters of partitions are those of `kafka-topics`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import not_empty, with_near_miss
from raftctl.cli._options import CommandGroup, ValidateOption
from raftctl.cli._output import counted, table
from raftctl.cli.files import parse_overrides
from raftctl.cli.kafka.admin import Cluster, PartitionKey, T, no_topic, parse_partition
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.ids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future


app = CommandGroup("Creates, lists, describes, alters and deletes topics.")
partitions = CommandGroup("Lists partitions and finds unhealthy ones; adds some.")

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
_BROKER_ID = re.compile(r"[0-9]{1,9}")
MIN_ISR = "min.insync.replicas"
TOPICS_A_REQUEST = 500


@app.command()
def create(
    topic: TopicArgument,
    cluster: Cluster,
    partitions: Annotated[
        int,
        typer.Option(metavar="N", help="-1: the cluster's default.", min=-1, max=PARTITIONS_MAX),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(metavar="N", help="-1: the cluster's default.", min=-1, max=REPLICAS_MAX),
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
    from raftctl.metadata.topic_names import INTERNAL_TOPICS

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
@partitions.command(name="add")
def alter(
    topic: TopicArgument,
    cluster: Cluster,
    partitions: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="New number of partitions, above the present one.",
            min=1,
            max=PARTITIONS_MAX,
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
        raise no_topic(topic) from None


# --- partitions -----------------------------------------------------------------------------------


@partitions.command(name="list")
def list_partitions(
    cluster: Cluster,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Only this topic; may be repeated.")
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions",
            "--under-replicated",
            help="Only those with a replica that is not in sync.",
        ),
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option(
            "--unavailable-partitions",
            "--unavailable",
            "--offline",
            help="Only those without a leader.",
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            "--under-min-isr",
            help="Only those with fewer in-sync replicas than min.insync.replicas.",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            "--at-min-isr",
            help="Only those with exactly min.insync.replicas in sync.",
        ),
    ] = False,
    not_preferred: Annotated[
        bool,
        typer.Option("--not-preferred", help="Only those not led by their preferred leader."),
    ] = False,
    exclude_internal: ExcludeInternalOption = False,
) -> None:
    """Lists partitions with leader, replicas and in-sync replicas.

    With several filters, a partition is shown if it matches any of them.
    """
    from raftctl.metadata.topic_names import INTERNAL_TOPICS

    left_out = INTERNAL_TOPICS if exclude_internal else ()
    found = _partitions(cluster, topic or [], left_out)
    minima: Mapping[str, int] = {}
    if under_min_isr or at_min_isr:
        minima = _min_isr(cluster, sorted({one["topic"] for one in found}))
    filters: tuple[tuple[bool, Callable[[dict[str, Any]], bool]], ...] = (
        (under_replicated, lambda one: len(one["isr"]) < len(one["replicas"])),
        (unavailable, lambda one: one["leader"] is None),
        (under_min_isr, lambda one: len(one["isr"]) < minima[one["topic"]]),
        (at_min_isr, lambda one: len(one["isr"]) == minima[one["topic"]]),
        (not_preferred, lambda one: one["leader"] != one["replicas"][0]),
    )
    wanted = [is_so for is_given, is_so in filters if is_given]
    chosen = [one for one in found if not wanted or any(is_so(one) for is_so in wanted)]
    columns = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC")
    cluster.show_rows(columns, chosen, "no such partition")


@partitions.command(name="describe")
def describe_partition(
    partition: Annotated[str, typer.Argument(metavar="TOPIC:NUMBER")],
    cluster: Cluster,
) -> None:
    """Shows one partition, also where its log begins and ends.

    Offsets are `-` while it has no leader.
    """
    named = parse_partition(partition)
    with cluster.open() as client:
        (topic,) = client.describe_topic_partitions([named.topic])["topics"]
    for one in topic["partitions"]:
        if topic["error_code"] == ErrorCode.NONE and one["partition_index"] == named.partition:
            break
    else:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no partition {partition}: raftctl partitions list shows those there are",
        )
    key = PartitionKey(named.topic, named.partition)
    has_leader = one["leader_id"] >= 0
    start, end = cluster.ends([key] if has_leader else []).get(key, (None, None))
    document = {
        "topic": named.topic,
        "topic_id": uuid_text(topic["topic_id"]),
        "partition": named.partition,
        "leader": one["leader_id"] if has_leader else None,
        "leader_epoch": one["leader_epoch"],
        "replicas": one["replica_nodes"],
        "isr": sorted(one["isr_nodes"]),
        "eligible_leader_replicas": sorted(one["eligible_leader_replicas"] or ()),
        "last_known_elr": sorted(one["last_known_elr"] or ()),
        "offline_replicas": sorted(one["offline_replicas"]),
        "log_start_offset": start,
        "log_end_offset": end,
    }
    rows = [(name.replace("_", "-"), _shown(value)) for name, value in document.items()]
    width = max(len(name) for name, _ in rows) + 2
    cluster.show(document, "".join(f"{name:<{width}}{value}\n" for name, value in rows))


def _partitions(
    cluster: Cluster, names: list[str], left_out: Collection[str]
) -> list[dict[str, Any]]:
    topics = cluster.topics()
    missing = [name for name in names if name not in topics]
    if missing:
        raise no_topic(*missing)
    return [
        {
            "topic": name,
            "partition": number,
            "leader": None if one.leader < 0 else one.leader,
            "replicas": one.replicas,
            "isr": sorted(one.isrs),
        }
        for name in sorted(names or topics)
        if name not in left_out
        for number, one in sorted(topics[name].partitions.items())
    ]


def _min_isr(cluster: Cluster, topics: list[str]) -> dict[str, int]:
    """What is in force for each topic, asked in slices."""
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    found = {}
    for first in range(0, len(topics), TOPICS_A_REQUEST):
        some = topics[first : first + TOPICS_A_REQUEST]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in some]
        futures = cluster.client.describe_configs(resources, request_timeout=cluster.timeout)
        for resource, future in futures.items():
            found[resource.name] = int(cluster.wait(future)[MIN_ISR].value)
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
