"""Old librdkafka: silently sends batches uncompressed if Produce is not advertised from version 0.

Up to 2.10 it takes gzip, snappy and lz4 for unsupported then, although writing goes on to work; so
the test looks at what the brokers stored.
"""

from __future__ import annotations

import struct
import sys
import venv
from typing import TYPE_CHECKING

import pytest

from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PROGRAM = HERE / "old_client.py"
COUNT = 500
CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_HEADER = struct.Struct(">qiibIh")


def environment_with(version: str) -> Path:
    """A Python that has this confluent-kafka."""

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        python = str(folder / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        run([*pip, f"confluent-kafka=={version}"], timeout_s=INSTALL_TIMEOUT_S)

    recipe = f"{version} {sys.version}"
    return installed(f"confluent-{version}", recipe, install) / "bin" / "python"


def stored_codecs(cluster: LocalCluster, topic: str) -> set[int]:
    """The codecs in the headers of all batches of partition 0, on every broker."""
    found = set()
    for segment in cluster.directory.glob(f"broker-*/data/{topic}-0/*.log"):
        data, position = segment.read_bytes(), 0
        while position < len(data):
            _, length, _, magic, _, attributes = BATCH_HEADER.unpack_from(data, position)
            assert magic == 2
            found.add(attributes & 7)
            position += 12 + length
    return found


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
@pytest.mark.parametrize("codec", CODES)
@pytest.mark.parametrize("version", ["2.0.2", "2.6.1"])
def test_it_compresses_with_every_codec(
    cluster: LocalCluster, new_topic: Callable[[str], str], version: str, codec: str
) -> None:
    python = environment_with(version)
    topic = new_topic(f"old-{version}-{codec}")
    command = [str(python), str(PROGRAM), cluster.layout.bootstrap, topic, codec, str(COUNT)]
    assert run(command) == version
    assert stored_codecs(cluster, topic) == {CODES[codec]}
