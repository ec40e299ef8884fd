"""The administrators of a Kafka cluster, and the options of every command that uses one.

librdkafka's is used where it has the request, kafka-python's for the rest. Both block, and both
raise their own errors, which become KafkaError with Kafka's error code here.
"""

from __future__ import annotations

import contextlib
import re
import types
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future

    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

_MESSAGE = re.compile(r"error_message=(['\"])(.+?)\1[,)]")
"""Where the broker's own words stand in the exception, between request and response."""
_RESPONSE = "failed with response"
_NUMBER_AND_NAME = re.compile(r"^(\[Error [0-9]+\] )?\w+: ")
T = TypeVar("T")
TIMEOUT_S = 15.0
TimeoutOption = Annotated[
    float, typer.Option(help="Seconds to wait for the cluster.", min=0.001, max=86_400)
]


# --- librdkafka --------------------------------------------------------------------------------


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
    request_topic(client, new, timeout_s)


def request_topic(
    client: AdminClient, new: NewTopic, timeout_s: float, *, validate_only: bool = False
) -> None:
    """Request a topic and wait for the answer; KafkaError if it is refused."""
    futures = client.create_topics(
        [new],
        operation_timeout=timeout_s,
        request_timeout=timeout_s,
        validate_only=validate_only,
    )
    wait_for(futures[new.topic], timeout_s)


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
    raised = client_error(error.args[0].code(), error.args[0].str())
    if raised.code == ErrorCode.BROKER_NOT_AVAILABLE:
        message = f"{raised.message}; do brokers listen at the addresses of --bootstrap-server?"
        raise KafkaError(raised.code, message) from None
    raise raised from None


def parse_partition(text: str) -> TopicPartition:
    """A partition written TOPIC:NUMBER; ConfigError if it is something else."""
    from confluent_kafka import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise ConfigError(f"{text!r} is no partition: write TOPIC:NUMBER")
    return TopicPartition(topic, int(number))


# --- kafka-python --------------------------------------------------------------------------------


@contextlib.contextmanager
def open_admin(bootstrap: str, timeout_s: float) -> Iterator[KafkaAdminClient]:
    """A client for the time of the block. Whatever it raises becomes a KafkaError."""
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","),
            request_timeout_ms=int(timeout_s * 1000),
            bootstrap_timeout_ms=int(timeout_s * 1000),
        )
    except (ClientError, ValueError) as error:
        message = f"--bootstrap-server {bootstrap}: no broker answers there: {error}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message) from None
    try:
        yield client
    except ClientError as error:
        known = getattr(error, "errno", None) in ErrorCode._value2member_map_
        code = ErrorCode(error.errno) if known else ErrorCode.BROKER_NOT_AVAILABLE
        raise KafkaError(code, _words(error, code)) from None
    finally:
        client.close()


def _words(error: ClientError, code: ErrorCode) -> str:
    """What there is to read in an exception, which may hold a whole request and its answer."""
    found = _MESSAGE.search(str(error))
    if found:
        return found[2]
    if _RESPONSE in str(error):
        return code.text
    return _NUMBER_AND_NAME.sub("", str(error))


def send(client: KafkaAdminClient, request: Any, broker_id: int | None = None) -> dict[str, Any]:
    """Sends what the client has a message for but no method, to this broker or else to any.

    KafkaError(BROKER_NOT_AVAILABLE) if the cluster has no such broker now.
    """
    if broker_id is not None:
        check_broker(client, broker_id)
    manager = client._manager
    answer: dict[str, Any] = manager.run(manager.send, request, broker_id).to_dict()
    return answer


def check_broker(client: KafkaAdminClient, broker_id: int) -> None:
    """KafkaError(BROKER_NOT_AVAILABLE) if the cluster has no such broker now."""
    cluster = client._manager.cluster
    if cluster.broker_metadata(broker_id) is None:
        known = ", ".join(map(str, sorted(one.node_id for one in cluster.brokers())))
        message = f"there is no broker {broker_id} now; there are {known}"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, message)


def check(answer: dict[str, Any]) -> None:
    """KafkaError if the answer, or a part of one, holds an error."""
    if answer["error_code"] != ErrorCode.NONE:
        code = ErrorCode(answer["error_code"])
        raise KafkaError(code, answer["error_message"] or code.text)


def message_class(name: str) -> Any:
    """The class of a request or response that `raftctl.cli.kafka.messages` describes."""
    from kafka.protocol.api_message import ApiMessage

    return types.new_class(name, (ApiMessage,), {"load_json": "raftctl.cli.kafka.messages"})
