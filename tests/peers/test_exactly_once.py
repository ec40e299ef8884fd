"""Clients copy a topic exactly once while they, and every broker in turn, are killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from broker.transactions import TransactionState
from broker.transactions._state import RECORD_KEY, RECORD_VALUE
from tests.integration.clusters import wait_healthy, wait_until
from tests.integration.commands import ROOT
from tests.peers.programs import KAFKAJS, JavaTools, franz_go_program, kafkajs_modules
from tests.peers.readers import Progress, records
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PARTITIONS = 3
ROUND = 99
AT_ONCE = 9
TIMEOUT_S = 120
IN_PYTHON = ("confluent", "confluent-consumer-protocol", "aiokafka", "kafka-python")
ENDED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


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

    def __init__(self, target: str, command: Sequence[str], log: Path) -> None:
        self.target = target
        self.killed, self.started = 0, 0
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        """Starts it unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.started += 1
        environment = {**os.environ, "NODE_PATH": str(kafkajs_modules())}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        self.killed += 1
        self.end()

    def end(self) -> None:
        """Does not leave it behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def copying(bootstrap: str, source: str, folder: Path) -> Iterator[list[Copier]]:
    """The copiers, each with a topic of its own to write to; afterwards none of them is left."""
    made = [
        Copier(target, [*first, bootstrap, source, target, *last], folder / f"{name}.log")
        for name, (first, last) in copiers().items()
        for target in [f"{source}-{name}"]
    ]
    try:
        yield made
    finally:
        for one in made:
            one.end()


def ended_transactions(bootstrap: str) -> dict[str, Counter[TransactionState]]:
    """How often the transactions of each transactional id came to each of their ends."""
    counts = defaultdict[str, Counter[TransactionState]](Counter)
    for one in records(bootstrap, ["__transaction_state"], 50):
        key = RECORD_KEY.decode(one.key() or b"")
        value = RECORD_VALUE.decode(one.value() or b"")
        state = TransactionState(value["transaction_status"])
        if state in ENDED:
            counts[key["transactional_id"]][state] += 1
    return counts


def told(bootstrap: str, running: Iterable[Copier]) -> str:
    """What each client went through, for those who read the test's output."""
    ended = ended_transactions(bootstrap)
    counts = {}
    for one in running:
        committed, aborted = (ended[f"copy-{one.target}"][state] for state in ENDED)
        assert committed, one.target
        counts[one.target] = {
            "killed": one.killed,
            "ended by itself": one.started - one.killed - 1,
            "committed": committed,
            "aborted": aborted,
        }
    return json.dumps(counts, indent=2)


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
        targets = [new_topic(one.target, PARTITIONS) for one in running]
        with contextlib.closing(Progress(bootstrap, targets, PARTITIONS)) as progress:

            def wait_for(count: int) -> None:
                began, last = time.monotonic(), list[str]()

                def are_there() -> bool:
                    for one in running:
                        one.keep_running()
                    behind = [name for name, copied in progress.read().items() if copied < count]
                    last[:] = behind or last
                    return not behind

                wait_until(are_there, lambda: f"{count} of {progress.read()}", TIMEOUT_S)
                seconds = time.monotonic() - began
                sys.stdout.write(f"{count} of each after {seconds:.0f} s, last {last}\n")

            # Between them the brokers coordinate and lead everything.
            for done, broker in enumerate(cluster.layout.brokers):
                produce()
                wait_for(done * ROUND + AT_ONCE)
                for one in running[done % 2 :: 2]:
                    one.kill()
                cluster.kill(broker)
                wait_for((done + 1) * ROUND)
                cluster.start(broker)
                wait_healthy(cluster)
            # Whoever has copied these as well has nothing else under way.
            produce()
            wait_for((len(cluster.layout.brokers) + 1) * ROUND)
    copies = {topic: [list[int]() for _ in range(PARTITIONS)] for topic in targets}
    for message in records(bootstrap, targets, PARTITIONS):
        copies[str(message.topic())][message.partition() or 0].append(int(message.value() or b""))
    written = next(numbers)
    expected = [list(range(number, written, PARTITIONS)) for number in range(PARTITIONS)]
    assert copies == dict.fromkeys(targets, expected)
    sys.stdout.write(told(bootstrap, running))
