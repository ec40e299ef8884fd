"""kafkajs: administers and writes; its consumers need a group, which there is not yet."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.kafka_clients import CLIENTS, Record
from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, need, run

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PACKAGE = HERE / "kafkajs" / "package.json"
PROGRAM = HERE / "kafkajs" / "peer.js"
COUNT = 500


def install(folder: Path) -> None:
    shutil.copy(PACKAGE, folder)
    run(["npm", "install", "--no-audit", "--no-fund"], folder=folder, timeout_s=INSTALL_TIMEOUT_S)


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafkajs_writes_what_others_read(cluster: LocalCluster, codec: str) -> None:
    need("node", "npm")
    modules = installed("kafkajs", PACKAGE.read_text(), install) / "node_modules"
    bootstrap, topic = cluster.layout.bootstrap, f"kafkajs-{codec}"
    printed = run(
        ["node", PROGRAM, bootstrap, topic, str(COUNT), codec],
        environment={"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )
    told = json.loads(printed)
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
