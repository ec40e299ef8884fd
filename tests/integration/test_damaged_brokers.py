"""Real brokers start again on damaged files, and copy from the leaders what they had to cut."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.kafka.admin import admin_client
from tests.integration.clusters import running_cluster, wait_healthy, wait_until
from tests.integration.kafka_clients import Confluent, Record
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

TOPIC = "damaged"
RECORDS = 400
VALUE_BYTES = 300
SECTOR_BYTES = 512


def segment_of(cluster: LocalCluster, broker: str) -> Path:
    return cluster.directory / broker / "data" / f"{TOPIC}-0" / f"{0:020d}.log"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.req("L4", "R5")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("damage", ["sector", "checkpoints"])
def test_damage_costs_a_broker_what_is_damaged_and_no_more(tmp_path: Path, damage: str) -> None:
    overrides = {"log.flush.offset.checkpoint.interval.ms": "300"}
    with running_cluster(tmp_path / "c", 1, 3, overrides) as cluster:
        bootstrap = cluster.layout.bootstrap
        create_topic(admin_client(bootstrap), TOPIC, 1, 3, {"flush.messages": "1"}, 30)
        records = [Record(b"%d" % number * VALUE_BYTES) for number in range(RECORDS)]
        Confluent().write(bootstrap, TOPIC, records)
        victim = cluster.layout.brokers[0]
        data = cluster.directory / victim.name / "data"
        point = data / "recovery-point-offset-checkpoint"
        # The first round of checkpoints makes the file.
        wait_until(
            lambda: point.exists() and f"{TOPIC} 0 {RECORDS}" in point.read_text(),
            "a recovery point",
        )
        cluster.kill(victim)
        segment = segment_of(cluster, victim.name)
        if damage == "sector":
            content = bytearray(segment.read_bytes())
            middle = len(content) // 2
            content[middle : middle + SECTOR_BYTES] = bytes(SECTOR_BYTES)
            segment.write_bytes(content)
        else:
            point.write_bytes(b"")
            (data / "replication-offset-checkpoint").write_bytes(b"0\nnonsense\n")
        cluster.start(victim)
        wait_healthy(cluster)
        wait_until(
            lambda: digest(segment) == digest(segment_of(cluster, cluster.layout.brokers[1].name)),
            "the same bytes as another replica has",
        )
        log = cluster.log_path(victim).read_text()
        assert ("log_damaged" if damage == "sector" else "checkpoint_damaged") in log
        assert segment.with_name(segment.name + ".damaged").exists() is (damage == "sector")
        (partition,) = Confluent().read(bootstrap, TOPIC)
        assert [one.value for one in partition.records] == [one.value for one in records]
