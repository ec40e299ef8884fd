"""Clients of librdkafka, made and asked alike: settings, errors, the partitions of a topic.

They work against any cluster that speaks Kafka's protocol.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from raftctl.cli.kafka.client_security import UNANSWERED, librdkafka_security
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

METADATA_TIMEOUT_S = 15.0
LOGIN_S = 2.0
"""After which it is looked whether a login was refused."""


def new_client(
    kind: Callable[[dict[str, Any]], Any],
    bootstrap_servers: str,
    defaults: Mapping[str, Any],
    properties: Mapping[str, str],
    command_config: str | None,
) -> Any:
    """A Producer or Consumer; the user's properties win. ConfigError if one makes no sense."""
    settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0, **defaults}
    try:
        with librdkafka_security(command_config) as security:
            return kind({**settings, **security, **properties})
    except KafkaException as error:
        raise ConfigError(
            f"--command-property: {error.args[0].str()}; see librdkafka's CONFIGURATION.md"
        ) from None


@contextlib.contextmanager
def kafka_errors() -> Iterator[None]:
    """Inside, an error of librdkafka becomes a KafkaError."""
    try:
        yield
    except KafkaException as error:
        raised = client_error(error.args[0].code(), error.args[0].str())
        if raised.code == ErrorCode.BROKER_NOT_AVAILABLE:
            raise KafkaError(raised.code, f"{raised.message}; {UNANSWERED}") from None
        raise raised from None


def partitions_of(client: Any, topic: str) -> list[int]:
    """The topic's partitions in order. KafkaError if there is no such topic, or nobody answers."""
    with kafka_errors():
        found = topics_of(client, topic)[topic]
    if found.error is not None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no topic {topic}; raftctl topics create makes one ({found.error.str()})",
        )
    return sorted(found.partitions)


def topics_of(client: Any, *topic: str) -> dict[str, Any]:
    """All topics by name, or the one that is named.

    KafkaException if nobody answers; KafkaError if a broker has refused the login.
    """
    try:
        return dict(client.list_topics(*topic, timeout=LOGIN_S).topics)
    except KafkaException:
        # Raises if a login was refused. Else brokers may only be slow.
        client.poll(0)
    return dict(client.list_topics(*topic, timeout=METADATA_TIMEOUT_S - LOGIN_S).topics)


def assign_to_end(consumer: Consumer, topic: str, partitions: list[int]) -> None:
    """From here on the consumer gets what is written after this moment."""
    with kafka_errors():
        ends = [
            TopicPartition(topic, partition, _end(consumer, TopicPartition(topic, partition)))
            for partition in partitions
        ]
        consumer.assign(ends)


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    _, end = consumer.get_watermark_offsets(partition, timeout=METADATA_TIMEOUT_S)
    return int(end)
