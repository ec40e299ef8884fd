"""Groups of twenty members, of which five at a time join, leave, are killed and are paused."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.integration.clusters import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITIONS = 30
TOGETHER = 5
TIMEOUT_S = 120
PROTOCOLS = ("classic", "consumer")


@dataclass
class Group:
    """A group, its processes of five members each and what they have printed."""

    bootstrap: str
    topic: str
    protocol: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The group's id."""
        return f"{self.topic}-{self.protocol}"

    def join(self) -> None:
        """Five more members."""
        arguments = [self.bootstrap, self.name, self.topic, self.protocol, str(TOGETHER)]
        command = [sys.executable, "-m", "tests.peers.members", *arguments]
        log = self.folder / f"{self.name}-{len(self.processes)}"
        with log.open("wb") as out, log.with_suffix(".err").open("wb") as errors:
            self.processes.append(subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=errors))

    def has_read(self, values: set[str]) -> bool:
        """Whether its members, together and with those that are gone, have read them all."""
        logs = self.folder.glob(f"{self.name}-?")
        return values <= {line for log in logs for line in log.read_text().splitlines()}

    def is_shared_by(self, admin: AdminClient, members: int) -> bool:
        """Whether so many members have every partition once between them."""
        try:
            found = admin.describe_consumer_groups([self.name])[self.name].result(TIMEOUT_S)
        except KafkaException:
            # It is not there yet, or its coordinator is not.
            return False
        owned = Counter(
            one.partition
            for member in found.members
            if member.assignment is not None
            for one in member.assignment.topic_partitions
        )
        return (
            found.state == ConsumerGroupState.STABLE
            and len(found.members) == members
            and owned == dict.fromkeys(range(PARTITIONS), 1)
        )

    def end(self) -> None:
        """No process is left."""
        for one in self.processes:
            one.kill()
            one.wait()


@contextlib.contextmanager
def groups_of(bootstrap: str, topic: str, folder: Path) -> Iterator[list[Group]]:
    """A group for each protocol, without members."""
    made = [Group(bootstrap, topic, protocol, folder) for protocol in PROTOCOLS]
    try:
        yield made
    finally:
        for one in made:
            one.end()


@pytest.mark.req("G2", "G4", "N1")
@pytest.mark.timeout(4 * TIMEOUT_S)
def test_twenty_members_that_come_and_go(
    bootstrap: str, new_topic: Callable[[str, int], str], tmp_path: Path
) -> None:
    topic = new_topic("churn", PARTITIONS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent: set[str] = set()

    def produce() -> None:
        for number in range(len(sent), len(sent) + 10 * PARTITIONS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
            sent.add(str(number))
        assert producer.flush(TIMEOUT_S) == 0

    with groups_of(bootstrap, topic, tmp_path) as groups:

        def wait_for(members: int) -> None:
            produce()
            for one in groups:
                wait_until(
                    partial(one.is_shared_by, admin, members), f"{members}: {one}", TIMEOUT_S
                )
                wait_until(partial(one.has_read, sent), f"all is read: {one}", TIMEOUT_S)

        for one in groups:
            for _ in range(4):
                one.join()
        wait_for(20)
        for one in groups:
            killed, paused, leaving, _ = one.processes
            killed.kill()
            paused.send_signal(signal.SIGSTOP)
            leaving.send_signal(signal.SIGTERM)
            one.join()
        wait_for(10)
        for one in groups:
            one.processes[1].send_signal(signal.SIGCONT)
            one.join()
        wait_for(20)
