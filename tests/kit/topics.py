"""Topics made through librdkafka, by tests whose clusters are processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.cimpl import NewTopic

from raftctl.cli.kafka.admin import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import AdminClient


def create_topic(
    client: AdminClient,
    topic: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_s: float,
) -> None:
    """Creates the topic; KafkaError says why not."""
    new = NewTopic(topic, partitions, replication_factor, config=dict(configs))
    futures = client.create_topics([new], operation_timeout=timeout_s, request_timeout=timeout_s)
    wait_for(futures[topic], timeout_s)
