"""`raftctl topics`: over the Kafka protocol, so against any Kafka-compatible cluster (row A3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from raftctl.cli.files import parse_overrides
from raftctl.cli.output import BootstrapOption, Output, OutputOption, show, table
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

app = typer.Typer(
    help="Creates, lists, describes, alters and deletes topics.", no_args_is_help=True
)

TimeoutOption = Annotated[float, typer.Option(help="Seconds to wait for the cluster.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC")]
TIMEOUT_S = 15.0
T = TypeVar("T")


@app.command()
def create(
    topic: TopicArgument,
    bootstrap_server: BootstrapOption,
    partitions: Annotated[int, typer.Option(help="-1: the cluster's default.")] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the cluster's default.")] = -1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A config of the topic.")
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Creates a topic."""
    client = admin_client(bootstrap_server)
    configs = parse_overrides(config or ())
    create_topic(client, topic, partitions, replication_factor, configs, timeout)
    show(output, {"created": topic}, f"created {topic}")


@app.command(name="list")
def list_topics(
    bootstrap_server: BootstrapOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lists all topics."""
    topics = [
        {"topic": name, "partitions": len(metadata.partitions)}
        for name, metadata in sorted(
            topics_metadata(admin_client(bootstrap_server), timeout).items()
        )
    ]
    show(output, topics, table(("TOPIC", "PARTITIONS"), [list(topic.values()) for topic in topics]))


@app.command()
def describe(
    topic: TopicArgument,
    bootstrap_server: BootstrapOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows the partitions of a topic: leader, replicas, in-sync replicas."""
    metadata = topics_metadata(admin_client(bootstrap_server), timeout).get(topic)
    if metadata is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {topic}")
    partitions = [
        {
            "partition": partition.id,
            "leader": None if partition.leader < 0 else partition.leader,
            "replicas": partition.replicas,
            "isr": sorted(partition.isrs),
        }
        for _, partition in sorted(metadata.partitions.items())
    ]
    rows = [
        [one["partition"], one["leader"], _ids(one["replicas"]), _ids(one["isr"])]
        for one in partitions
    ]
    text = table(("PARTITION", "LEADER", "REPLICAS", "IN-SYNC"), rows)
    show(output, {"topic": topic, "partitions": partitions}, text)


@app.command()
def alter(
    topic: TopicArgument,
    bootstrap_server: BootstrapOption,
    partitions: Annotated[int, typer.Option(help="The new count, above the present one.")],
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Adds partitions to a topic. Keys may move to the new ones; records stay where they are."""
    from confluent_kafka.cimpl import NewPartitions

    client = admin_client(bootstrap_server)
    futures = client.create_partitions(
        [NewPartitions(topic, partitions)], operation_timeout=timeout, request_timeout=timeout
    )
    wait_for(futures[topic], timeout)
    text = f"{topic} has {partitions} partitions"
    show(output, {"topic": topic, "partitions": partitions}, text)


@app.command()
def delete(
    topic: TopicArgument,
    bootstrap_server: BootstrapOption,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Deletes a topic and all its records."""
    client = admin_client(bootstrap_server)  # Must outlive its futures.
    futures = client.delete_topics([topic], operation_timeout=timeout)
    wait_for(futures[topic], timeout)
    show(output, {"deleted": topic}, f"deleted {topic}")


def admin_client(bootstrap_servers: str, **more: Any) -> AdminClient:
    """A client for administration; ConfigError if the addresses make no sense."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0, **more}
    try:
        # The logger swallows what the library would write to stderr: errors are raised anyway.
        return AdminClient(settings)
    except KafkaException as error:
        raise ConfigError(
            f"--bootstrap-server {bootstrap_servers}: {error.args[0].str()}"
        ) from None


def create_topic(
    client: AdminClient,
    topic: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_s: float,
) -> None:
    """Creates the topic; KafkaError says why not."""
    from confluent_kafka.cimpl import NewTopic

    new = NewTopic(topic, partitions, replication_factor, config=dict(configs))
    futures = client.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)
    wait_for(futures[topic], timeout_s)


def topics_metadata(client: AdminClient, timeout_s: float) -> dict[str, Any]:
    """All topics by name; KafkaError if nobody answers."""
    from confluent_kafka import KafkaException

    try:
        topics: dict[str, Any] = client.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise_error(error)
    return topics


def wait_for(future: Future[T], timeout_s: float) -> T:
    """The result; KafkaError says what went wrong."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout_s + 1)
    except TimeoutError:
        message = f"no answer within {timeout_s:g} s"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
    except KafkaException as error:
        raise_error(error)


def raise_error(error: Any) -> NoReturn:
    """Turns librdkafka's error into ours."""
    raise client_error(error.args[0].code(), error.args[0].str()) from None


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
