"""franz-go writes and reads with every codec."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.integration.kafka_clients import CLIENTS, Record
from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, need, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCES = [HERE / "franzgo" / name for name in ("go.mod", "go.sum", "main.go")]
COUNT = 500


def build(folder: Path) -> None:
    for source in SOURCES:
        shutil.copy(source, folder)
    build_it = ["go", "build", "-o", "peer", "."]
    run(build_it, folder=folder, timeout_s=INSTALL_TIMEOUT_S)


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_franz_go_writes_and_reads(
    bootstrap: str, new_topic: Callable[[str], str], codec: str
) -> None:
    need("go")
    recipe = "".join(source.read_text() for source in SOURCES)
    peer = installed("franz-go", recipe, build) / "peer"
    topic = new_topic(f"franz-{codec}")
    printed = run([peer, bootstrap, topic, str(COUNT), codec])
    assert [json.loads(line) for line in printed.splitlines()] == [
        {
            "offset": number,
            "key": f"key {number}",
            "value": f"value {number}" if number else "",
            "header": str(number),
            "time_ms": 1_700_000_000_000 + number,
            "is_null": number == 0,
        }
        for number in range(COUNT)
    ]
    expected = [
        Record(
            None if number == 0 else b"value %d" % number,
            b"key %d" % number,
            (("number", b"%d" % number),),
            1_700_000_000_000 + number,
        )
        for number in range(COUNT)
    ]
    for client in CLIENTS:
        if client.can(codec):
            assert client.read(bootstrap, topic)[0].records == expected, client.name
