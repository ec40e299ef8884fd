"""The demo's clients against librdkafka's own mock cluster: nothing of ours on the other side."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from raftctl.cli.local.demo._clients import LineWriter, read_with_aiokafka, read_with_confluent
from raftctl.cli.local.demo._ledger import Ledger, Verdict, compare
from raftctl.cli.local.demo._source import standard_library

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "demo"
PARTITIONS = 4
"""What the mock cluster gives a topic."""


@pytest.fixture
def bootstrap() -> Iterator[str]:
    host = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = host.list_topics(TOPIC, timeout=10).brokers.values()
    deadline_s = time.monotonic() + 10
    while len(host.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) < PARTITIONS:
        assert time.monotonic() < deadline_s
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    host.flush(1)


def nothing(*_: object) -> None:
    """Progress that nobody sees."""


@pytest.mark.req("A3")
def test_what_is_written_is_read_back_by_both_readers(bootstrap: str) -> None:
    ledger = Ledger()
    writer = LineWriter(bootstrap, TOPIC, ledger)
    records = standard_library(5_000).records()
    writer.write((next(records) for _ in range(1_000)), nothing)
    served_until_s = time.monotonic() + 0.05
    writer.serve_until(served_until_s, nothing)
    assert time.monotonic() >= served_until_s
    writer.write(records, nothing)
    writer.finish(nothing)
    assert ledger.acknowledged == len(ledger) == 5_000
    assert writer.longest_interruption_s > 0

    confluent = read_with_confluent(bootstrap, TOPIC, PARTITIONS, nothing)
    assert compare(ledger, confluent) == Verdict()
    aiokafka = asyncio.run(read_with_aiokafka(bootstrap, TOPIC, PARTITIONS, nothing))
    assert compare(ledger, aiokafka) == Verdict()
    assert aiokafka.count == confluent.count == 5_000


def test_a_record_of_somebody_else_is_noticed(bootstrap: str) -> None:
    ledger = Ledger()
    writer = LineWriter(bootstrap, TOPIC, ledger)
    writer.write(standard_library(100).records(), nothing)
    writer.finish(nothing)
    stranger = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    stranger.produce(TOPIC, b"copy", b"key")
    assert stranger.flush(10) == 0
    found = read_with_confluent(bootstrap, TOPIC, PARTITIONS, nothing)
    assert compare(ledger, found) == Verdict(duplicated=1)


def test_an_abandoned_writer_ends_at_once() -> None:
    ledger = Ledger()
    writer = LineWriter("127.0.0.1:1", TOPIC, ledger)
    writer.write([(b"key", b"line\n")], nothing)
    begun_s = time.monotonic()
    writer.abandon()
    writer.finish(nothing)
    assert time.monotonic() - begun_s < 5
    assert (ledger.acknowledged, ledger.failed) == (0, 1)
