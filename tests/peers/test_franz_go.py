"""franz-go writes with every codec, copies in transactions, reads in groups and administers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.kafka_clients import CLIENTS, Record
from tests.peers.programs import franz_go_program
from tests.peers.tools import INSTALL_TIMEOUT_S, run

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 500


def franz_go(*arguments: str) -> list[Any]:
    """Runs the program and returns the documents it printed."""
    return [json.loads(line) for line in run([franz_go_program(), *arguments]).splitlines()]


@pytest.mark.req("N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_franz_go_writes_and_reads(
    bootstrap: str, new_topic: Callable[[str], str], codec: str
) -> None:
    topic = new_topic(f"franz-{codec}")
    assert franz_go("assigned", bootstrap, topic, str(COUNT), codec) == [
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


@pytest.mark.req("N1", "G2", "G3", "G4", "T2", "T4")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 60)
def test_franz_go_copies_in_transactions_and_reads_in_groups(
    bootstrap: str, new_topic: Callable[[str, int], str]
) -> None:
    source, target = new_topic("franz-source", 2), new_topic("franz-target", 2)
    records = [Record(b"%03d" % number, partition=number % 2) for number in range(COUNT)]
    CLIENTS[0].write(bootstrap, source, records)
    franz_go("copy", bootstrap, source, target, str(COUNT))
    for protocol in ("classic", "consumer"):
        (values,) = franz_go("group", bootstrap, target, protocol, str(COUNT))
        assert sorted(values) == [f"{number:03}" for number in range(COUNT)]
    (told,) = franz_go("administer", bootstrap, source, target)
    assert told == {
        "transaction": "CompleteCommit",
        "committed": [COUNT // 2] * 2,
        "listed": True,
        "state": "Empty",
        "reset": [3, COUNT // 2],
        "is_left": False,
        "starts": [5, 0],
        "retention": "777000",
        "is_there": False,
    }
