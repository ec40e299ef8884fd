"""Retention and compaction as clients see them, on real processes and disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.clusters import running_cluster, wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster

KEYS, ROUNDS = 50, 80
SMALL = {"segment.bytes": str(1 << 20)}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    often = {
        "log.cleaner.backoff.ms": "200",
        "log.retention.check.interval.ms": "200",
        # A machine that is busy with other tests must not fence the only broker.
        "broker.session.timeout.ms": "60000",
    }
    directory = tmp_path_factory.mktemp("nodes") / "cluster"
    with running_cluster(directory, 1, 1, overrides=often) as running:
        yield running


def topic(cluster: LocalCluster, name: str, codec: str, **config: str) -> None:
    """Makes a topic and writes every key many times, a kilobyte each."""
    bootstrap = cluster.layout.bootstrap
    keys = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, 1, 1, config={**SMALL, **keys})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce(name, b"%d" % number + b"." * 1_000, b"key-%d" % key, partition=0)
    assert producer.flush(60) == 0


def read(cluster: LocalCluster, name: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of all that is left."""
    (found,) = CLIENTS[0].read(cluster.layout.bootstrap, name)
    return [
        (offset, record.key, record.value)
        for offset, record in zip(found.offsets, found.records, strict=True)
    ]


@pytest.mark.req("L6")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    cluster: LocalCluster, codec: str
) -> None:
    name = f"compacted-{codec}"
    stored = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    # Uncompressed on disk, so that there are segments to compact whatever the producer does.
    topic(cluster, name, codec, compression_type="uncompressed", **stored)
    written = KEYS * ROUNDS
    wait_until(lambda: len(read(cluster, name)) < written / 2, "compaction", timeout_s=60)
    found = read(cluster, name)
    assert [one[0] for one in found] == sorted({one[0] for one in found})
    last = {key: value for _, key, value in found}
    expected = b"%d" % (ROUNDS - 1) + b"." * 1_000
    assert last == {b"key-%d" % key: expected for key in range(KEYS)}
    assert found[-1][0] == written - 1


@pytest.mark.req("L5")
def test_a_topic_keeps_no_more_than_its_size(cluster: LocalCluster) -> None:
    topic(cluster, "bounded", "none", retention_bytes=str(1 << 20))
    consumer = Consumer({"bootstrap.servers": cluster.layout.bootstrap, "group.id": "none"})
    partition = TopicPartition("bounded", 0)
    written = KEYS * ROUNDS

    def left() -> int:
        low, high = consumer.get_watermark_offsets(partition, timeout=30)
        assert high == written
        return int(high - low)

    # A kilobyte each: at least the size is kept, and less than a segment more beside the active.
    wait_until(lambda: left() < written * 3 / 4, "retention", timeout_s=60)
    assert left() >= 1_000
    consumer.close()


@pytest.mark.req("L10")
def test_the_files_verify_when_the_cluster_is_down(cluster: LocalCluster) -> None:
    cluster.stop_all()
    (broker,) = cluster.layout.brokers
    checked = raftctl("log", "verify", str(cluster.log_path(broker).parent / "data"))
    assert checked.status == 0, checked
