"""Clients copy a topic exactly once while they, and every broker in turn, are killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.integration.clusters import ROOT, wait_healthy, wait_until
from tests.integration.kafka_clients import assigned_consumer
from tests.peers.programs import KAFKAJS, JavaTools, franz_go_program, kafkajs_modules
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PARTITIONS = 3
ROUND = 100
AT_ONCE = 10
TIMEOUT_S = 120
IN_PYTHON = ("confluent", "confluent-consumer-protocol", "aiokafka", "kafka-python")


def copiers() -> dict[str, tuple[list[str], list[str]]]:
    """The command of each, and what follows the bootstrap servers, the source and the target."""
    java = JavaTools("4.1.0").copier()
    python = [sys.executable, "-m", "tests.peers.copiers"]
    return {
        **{name: ([*python, name], []) for name in IN_PYTHON},
        "kafkajs": (["node", str(KAFKAJS / "copy.js")], []),
        "franz-go": ([str(franz_go_program()), "copy"], ["-1"]),
        "java": (java, ["classic"]),
        "java-consumer-protocol": (java, ["consumer"]),
    }


class Copier:
    """A client's program; it is started again when it ends, as a service would be."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        """Starts it unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        environment = {**os.environ, "NODE_PATH": str(kafkajs_modules())}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def copying(bootstrap: str, source: str, folder: Path) -> Iterator[dict[str, Copier]]:
    """The copiers by the topic that each writes to; afterwards none of them is left."""
    made = {
        f"{source}-{name}": Copier([*first, bootstrap, source, f"{source}-{name}", *last], log)
        for name, (first, last) in copiers().items()
        for log in [folder / f"{name}.log"]
    }
    try:
        yield made
    finally:
        for one in made.values():
            one.kill()


class Copies:
    """What readers of committed records find in the topics."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.values = {topic: Counter[bytes]() for topic in topics}
        self._consumer = assigned_consumer(bootstrap, **{"isolation.level": "read_committed"})
        self._consumer.assign(
            [TopicPartition(topic, n, 0) for topic in topics for n in range(PARTITIONS)]
        )

    def read(self) -> None:
        """Takes what came since."""
        for message in self._consumer.consume(1000, 0.1):
            topic = message.topic()
            if message.error() is None and topic is not None:
                self.values[topic][message.value() or b""] += 1

    def least(self) -> int:
        """How many different records the slowest has copied."""
        return min(map(len, self.values.values()))

    def close(self) -> None:
        """Frees the consumer."""
        self._consumer.close()


@pytest.mark.req("N1", "G2", "G4", "T2", "T3", "T4")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 5 * TIMEOUT_S)
def test_clients_copy_exactly_once_while_they_and_the_brokers_are_killed(
    cluster: LocalCluster, bootstrap: str, new_topic: Callable[[str, int], str], tmp_path: Path
) -> None:
    source = new_topic("copied", PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    numbers = itertools.count()

    def produce() -> None:
        for number in itertools.islice(numbers, ROUND):
            producer.produce(source, b"%d" % number, partition=number % PARTITIONS)
            # Small batches: clients cannot take less than one into a transaction.
            if number % AT_ONCE == 0:
                producer.flush(TIMEOUT_S)
        assert producer.flush(TIMEOUT_S) == 0

    with copying(bootstrap, source, tmp_path) as running:
        copies = Copies(bootstrap, [new_topic(target, PARTITIONS) for target in running])

        def wait_for(count: int) -> None:
            def are_there() -> bool:
                for one in running.values():
                    one.keep_running()
                copies.read()
                return copies.least() >= count

            def told() -> str:
                return f"{count} of { ({one: len(of) for one, of in copies.values.items()}) }"

            wait_until(are_there, told, TIMEOUT_S)

        produce()
        wait_for(AT_ONCE)
        for one in running.values():
            one.kill()
        # Between them the brokers coordinate every group and transaction and lead every partition.
        for round_number, broker in enumerate(cluster.layout.brokers, start=1):
            produce()
            wait_for((round_number - 1) * ROUND + AT_ONCE)
            cluster.kill(broker)
            wait_for((round_number + 1) * ROUND)
            cluster.start(broker)
            wait_healthy(cluster)
        # Whoever has copied these as well has nothing else under way.
        produce()
        wait_for((len(cluster.layout.brokers) + 2) * ROUND)
    copies.close()
    once = {b"%d" % number: 1 for number in range(next(numbers))}
    for topic, values in copies.values.items():
        assert values == once, topic
