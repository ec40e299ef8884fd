"""`raftctl partitions`: over the Kafka protocol (rows C3, C5), with the filters of kafka-topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster, PartitionKey, parse_partition
from raftctl.cli.kafka.topics import INTERNAL_TOPICS, ExcludeInternalOption, alter
from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


app = CommandGroup("Lists partitions and finds unhealthy ones; adds some.")

MIN_ISR = "min.insync.replicas"
TOPICS_A_REQUEST = 500


@app.command(name="list")
def list_partitions(
    cluster: Cluster,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic; may be repeated.")
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
    left_out = INTERNAL_TOPICS if exclude_internal else ()
    found = _partitions(cluster, topic or [], left_out)
    minima: Mapping[str, int] = {}
    if under_min_isr or at_min_isr:
        minima = _min_isr(cluster, sorted({one["topic"] for one in found}))
    wanted: list[Callable[[dict[str, Any]], bool]] = []
    if under_replicated:
        wanted.append(lambda one: len(one["isr"]) < len(one["replicas"]))
    if unavailable:
        wanted.append(lambda one: one["leader"] is None)
    if under_min_isr:
        wanted.append(lambda one: len(one["isr"]) < minima[one["topic"]])
    if at_min_isr:
        wanted.append(lambda one: len(one["isr"]) == minima[one["topic"]])
    if not_preferred:
        wanted.append(lambda one: one["leader"] != one["replicas"][0])
    chosen = [one for one in found if not wanted or any(is_so(one) for is_so in wanted)]
    columns = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC")
    cluster.show_rows(columns, chosen, "no such partition")


@app.command()
def describe(
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


app.command(name="add")(alter)


def _partitions(
    cluster: Cluster, names: list[str], left_out: Collection[str]
) -> list[dict[str, Any]]:
    topics = cluster.topics()
    missing = [name for name in names if name not in topics]
    if missing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {', '.join(missing)}")
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
