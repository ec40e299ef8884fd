"""kafkajs writes, reads in groups, copies in transactions and administers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.kafka_clients import CLIENTS, Record
from tests.peers.programs import KAFKAJS, kafkajs_modules
from tests.peers.tools import INSTALL_TIMEOUT_S, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.localcluster.cluster import LocalCluster

COUNT = 500


def kafkajs(program: str, *arguments: str) -> Any:
    """Runs one of the programs and returns what it tells."""
    environment = {
        "NODE_PATH": str(kafkajs_modules()),
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
    }
    return json.loads(run(["node", KAFKAJS / program, *arguments], environment=environment))


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafkajs_writes_what_others_read(cluster: LocalCluster, codec: str) -> None:
    bootstrap, topic = cluster.layout.bootstrap, f"kafkajs-{codec}"
    told = kafkajs("peer.js", bootstrap, topic, str(COUNT), codec)
    assert told["created"] is True
    assert len(told["metadata"]["topics"][0]["partitions"]) == 2
    assert told["cluster"]["clusterId"] == cluster.layout.cluster_id
    assert {answer["baseOffset"] for answer in told["answers"]} == {"0"}
    assert sorted(one["offset"] for one in told["offsets"]) == [str(COUNT // 2)] * 2
    expected = [
        Record(
            None if number == 0 else b"value %d" % number,
            b"key %d" % number,
            (("number", b"%d" % number),),
            1_700_000_000_000 + number,
            number % 2,
        )
        for number in range(COUNT)
    ]
    for client in CLIENTS:
        found = client.read(bootstrap, topic, 2)
        assert [one.records for one in found] == [expected[0::2], expected[1::2]], client.name


@pytest.mark.req("N1", "G2", "G3", "T2", "T4")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
def test_kafkajs_copies_in_transactions_and_reads_in_a_group(
    bootstrap: str, new_topic: Callable[[str, int], str]
) -> None:
    source, target = new_topic("kafkajs-source", 2), new_topic("kafkajs-target", 2)
    records = [Record(b"%03d" % number, partition=number % 2) for number in range(COUNT)]
    CLIENTS[0].write(bootstrap, source, records)
    assert kafkajs("group.js", bootstrap, source, target, str(COUNT)) == {
        "values": [f"{number:03}" for number in range(COUNT)],
        "committed": [str(COUNT // 2)] * 2,
        "listed": True,
        "state": "Empty",
        # Its own mark for the beginning, which its consumers look up when they read it.
        "reset": ["-2", "-2"],
        "deleted": [0],
        "lows": ["5", "0", "0", "0"],
        "retention": "777000",
        "left": False,
    }
