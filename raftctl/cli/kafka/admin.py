"""The administrators of a Kafka cluster, and the options of every command that uses one.

librdkafka's is used where it has the request, kafka-python's for the rest. Both block, and both
raise their own errors, which become KafkaError with Kafka's error code here.
"""

from __future__ import annotations

import contextlib
import re
import time
import types
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeVar

import typer

from raftctl.cli._options import BootstrapOption, CommandConfigOption, Printer
from raftctl.cli.kafka.client_security import (
    UNANSWERED,
    kafka_python_security,
    librdkafka_security,
)
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error
from raftctl.offset_resets import Ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

_MESSAGE = re.compile(r"error_message=(['\"])(.+?)\1[,)]")
"""Where the broker's own words stand in the exception, between request and response."""
_RESPONSE = "failed with response"
_NUMBER_AND_NAME = re.compile(r"^(\[Error [0-9]+\] )?\w+: ")
_LOAD_PAUSE_S = 0.1
"""Between two looks whether a coordinator has loaded its partition."""
_LOGIN_PAUSE_S = 0.05
"""Between two looks whether a login is refused."""
T = TypeVar("T")


class PartitionKey(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, kw_only=True)
class Cluster(Printer):
    """The Kafka cluster that a command asks, and for how long it waits for an answer."""

    bootstrap_server: BootstrapOption
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Longest wait for an answer.", min=0.001, max=86_400),
    ] = 15.0
    command_config: CommandConfigOption = None

    @cached_property
    def client(self) -> AdminClient:
        """librdkafka's, see `admin_client`; KafkaError if no broker lets it in."""
        client = admin_client(self.bootstrap_server, self.command_config)
        if self.command_config is not None:
            check_login(client, self.timeout)
        return client

    def open(self) -> contextlib.AbstractContextManager[KafkaAdminClient]:
        """kafka-python's, see `open_admin`."""
        return open_admin(self.bootstrap_server, self.timeout, self.command_config)

    def once_loaded(self, call: Callable[[], T]) -> T:
        """Return the result of a call of kafka-python's, made again while a coordinator loads.

        Apache Kafka's tools repeat it too: COORDINATOR_LOAD_IN_PROGRESS passes by itself.
        """
        from kafka.errors import CoordinatorLoadInProgressError

        until = time.monotonic() + self.timeout
        while True:
            try:
                return call()
            except CoordinatorLoadInProgressError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LOAD_PAUSE_S)

    @property
    def timeouts(self) -> dict[str, Any]:
        """Of a request that the controller carries out."""
        return {"operation_timeout": self.timeout, "request_timeout": self.timeout}

    def wait(self, future: Future[T]) -> T:
        """The result of a request of librdkafka's; KafkaError says what went wrong."""
        return wait_for(future, self.timeout)

    def topics(self) -> dict[str, Any]:
        """All topics by name; KafkaError if nobody answers."""
        from confluent_kafka import KafkaException

        try:
            topics: dict[str, Any] = self.client.list_topics(timeout=self.timeout).topics
        except KafkaException as error:
            raise_error(error)
        return topics

    def offsets(self, keys: Iterable[PartitionKey], spec: Any) -> dict[PartitionKey, Future[Any]]:
        """Asks for an offset of each partition, the one that an `OffsetSpec` means."""
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(*key): spec for key in keys}
        futures = self.client.list_offsets(asked, request_timeout=self.timeout) if asked else {}
        return {PartitionKey(one.topic, one.partition): futures[one] for one in futures}

    def known_offsets(self, keys: Iterable[PartitionKey], spec: Any) -> dict[PartitionKey, int]:
        """The offset of each partition but of those that are deleted or have no leader now."""
        found = {}
        for key, future in self.offsets(keys, spec).items():
            with contextlib.suppress(KafkaError):
                found[key] = int(self.wait(future).offset)
        return found

    def ends(self, keys: Sequence[PartitionKey]) -> dict[PartitionKey, Ends]:
        """Where partitions begin and end, of those that have a leader."""
        from confluent_kafka.admin._listoffsets import OffsetSpec

        kinds: Any = OffsetSpec
        starts = self.known_offsets(keys, kinds.earliest())
        ends = self.known_offsets(keys, kinds.latest())
        return {key: Ends(starts[key], ends[key]) for key in keys if key in starts and key in ends}


# --- librdkafka --------------------------------------------------------------------------------


def admin_client(bootstrap_servers: str, command_config: str | None = None) -> AdminClient:
    """A client for administration; ConfigError if the addresses or the file make no sense."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        with librdkafka_security(command_config) as security:
            # The logger swallows what the library would write to stderr: errors are raised anyway.
            security |= {"bootstrap.servers": bootstrap_servers, "log_level": 0}
            return AdminClient(security)
    except KafkaException as error:
        raise ConfigError(
            f"--bootstrap-server {bootstrap_servers}: {error.args[0].str()}"
        ) from None


def check_login(client: AdminClient, timeout_s: float) -> None:
    """Raise KafkaError if no broker lets the client in, at once if a login is refused.

    Requests would fail only when their time is over, and not say why.
    """
    future = client.describe_cluster(request_timeout=timeout_s)
    until = time.monotonic() + timeout_s
    while not future.done() and time.monotonic() < until:
        client.poll(_LOGIN_PAUSE_S)
    client.poll(0)
    wait_for(future, timeout_s)


def wait_for(future: Future[T], timeout_s: float) -> T:
    """The result; KafkaError says what went wrong."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout_s + 1)
    except TimeoutError:
        message = f"no answer within --timeout {timeout_s:g} s"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
    except KafkaException as error:
        raise_error(error)


def raise_error(error: Any) -> NoReturn:
    """Turns librdkafka's error into ours."""
    raised = client_error(error.args[0].code(), error.args[0].str())
    if raised.code == ErrorCode.BROKER_NOT_AVAILABLE:
        raise KafkaError(raised.code, f"{raised.message}; {UNANSWERED}") from None
    raise raised from None


def no_topic(*names: str) -> KafkaError:
    """The error for topics that the cluster does not have."""
    why = f"no topic {', '.join(names)}; raftctl topics list shows all"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)


def parse_partition(text: str) -> TopicPartition:
    """A partition written TOPIC:NUMBER; ConfigError if it is something else."""
    from confluent_kafka import TopicPartition

    topic, _, number = text.rpartition(":")
    if not topic or not number.isdecimal():
        raise ConfigError(f"{text!r} is no partition: write TOPIC:NUMBER")
    return TopicPartition(topic, int(number))


# --- kafka-python --------------------------------------------------------------------------------


@contextlib.contextmanager
def open_admin(
    bootstrap: str, timeout_s: float, command_config: str | None = None
) -> Iterator[KafkaAdminClient]:
    """A client for the time of the block. Whatever it raises becomes a KafkaError.

    With `command_config` KafkaError also if no broker lets it in.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError as ClientError

    security = kafka_python_security(command_config)
    if command_config is not None:
        # This one would log in until its time is over, and not say why that fails.
        check_login(admin_client(bootstrap, command_config), timeout_s)
    try:
        client = KafkaAdminClient(
            **security,
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


def send(
    client: KafkaAdminClient, request: Any, broker_id: int | None = None, *, has_bytes: bool = False
) -> dict[str, Any]:
    """Sends what the client has a message for but no method, to this broker or else to any.

    `has_bytes`: the answer's bytes stay such, else they become text. KafkaError(
    BROKER_NOT_AVAILABLE) if the cluster has no such broker now.
    """
    if broker_id is not None:
        check_broker(client, broker_id)
    manager = client._manager
    answer: dict[str, Any] = manager.run(manager.send, request, broker_id).to_dict(
        json=not has_bytes
    )
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


def message_class(name: str, package: str = "raftctl.cli.kafka") -> Any:
    """The class of a message that kafka-python has none for, from the package's JSON file.

    The file has Kafka's own notation; kafka-python finds it by the name of the package.
    """
    from kafka.protocol.api_message import ApiMessage

    return types.new_class(name, (ApiMessage,), {"load_json": package})
