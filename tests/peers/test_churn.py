"""Groups of twenty processes that join, leave, are killed and are paused, under both protocols."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.integration.clusters import wait_until
from tests.peers.programs import franz_go_program
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PARTITIONS = 30
MEMBERS = 20
A_FEW = 4
TIMEOUT_S = 120
PROTOCOLS = ("classic", "consumer")


class Member:
    """A process with one consumer, and the file that it tells what happens in."""

    def __init__(self, command: Sequence[str], told: Path) -> None:
        self._told = told
        with told.open("wb") as out, told.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)

    def events(self) -> list[Any]:
        """All it has told, but for a line that it is about to write."""
        return [json.loads(line) for line in self._told.read_text().split("\n")[:-1]]

    def owned(self) -> set[int]:
        """What it takes for its own, if it is not dead or paused."""
        owned = set[int]()
        for event in self.events():
            if event["kind"] == "assigned":
                owned.update(event["partitions"] or ())
            elif event["kind"] != "read":
                owned.difference_update(event["partitions"] or ())
        return owned


@dataclass
class Group:
    """The members that there ever were, and those of them that run."""

    bootstrap: str
    topic: str
    protocol: str
    folder: Path
    members: list[Member] = field(default_factory=list)
    running: list[Member] = field(default_factory=list)

    def join(self, count: int) -> None:
        """New members."""
        name = f"{self.topic}-{self.protocol}"
        program = str(franz_go_program())
        command = [program, "member", self.bootstrap, name, self.topic, self.protocol]
        for number in range(len(self.members), len(self.members) + count):
            member = Member(command, self.folder / f"{name}-{number}")
            self.members.append(member)
            self.running.append(member)

    def signal(self, number: signal.Signals) -> list[Member]:
        """Signals the few that have run for longest and returns them, no longer running."""
        signalled, self.running = self.running[:A_FEW], self.running[A_FEW:]
        for one in signalled:
            one.process.send_signal(number)
        return signalled

    def go_on(self, paused: Sequence[Member]) -> None:
        """They take themselves for members, which they are no longer."""
        for one in paused:
            one.process.send_signal(signal.SIGCONT)
        self.running.extend(paused)

    def is_shared(self) -> bool:
        """Whether those who run have every partition once between them, and each has some."""
        owned = [one.owned() for one in self.running]
        owners = Counter(partition for one in owned for partition in one)
        return all(owned) and owners == dict.fromkeys(range(PARTITIONS), 1)

    def has_read(self, values: set[str]) -> bool:
        """Whether its members, those that are gone included, have read them all."""
        events = [event for one in self.members for event in one.events()]
        return values <= {value for event in events for value in event["values"] or ()}

    def owners(self) -> dict[tuple[int, int], set[int]]:
        """The processes by generation and partition that they were given or have read of.

        What was read by one that has just heard that it is no member is of no generation.
        """
        owners = defaultdict[tuple[int, int], set[int]](set)
        for number, one in enumerate(self.members):
            for event in one.events():
                if event["kind"] in ("assigned", "read") and event["generation"] > 0:
                    for partition in event["partitions"] or ():
                        owners[event["generation"], partition].add(number)
        return owners

    def __str__(self) -> str:
        owned = {one.process.pid: one.owned() for one in self.running}
        return f"{self.protocol}, in {self.folder}: {owned}"


@contextlib.contextmanager
def groups_of(bootstrap: str, topic: str, folder: Path) -> Iterator[list[Group]]:
    """A group for each protocol, without members; afterwards none of their processes is left."""
    made = [Group(bootstrap, topic, protocol, folder) for protocol in PROTOCOLS]
    try:
        yield made
    finally:
        for member in [member for one in made for member in one.members]:
            member.process.kill()
            member.process.wait()


@pytest.mark.req("G2", "G4", "N1")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 6 * TIMEOUT_S)
def test_twenty_members_that_come_and_go(
    bootstrap: str, new_topic: Callable[[str, int], str], tmp_path: Path
) -> None:
    topic = new_topic("churn", PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent: set[str] = set()

    def produce() -> None:
        for number in range(len(sent), len(sent) + 10 * PARTITIONS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
            sent.add(str(number))
        assert producer.flush(TIMEOUT_S) == 0

    with groups_of(bootstrap, topic, tmp_path) as groups:

        def settle() -> None:
            # Also while the partitions change hands.
            produce()
            for one in groups:
                wait_until(one.is_shared, partial(str, one), TIMEOUT_S)
            produce()
            for one in groups:
                wait_until(partial(one.has_read, sent), f"all is read: {one}", TIMEOUT_S)

        for one in groups:
            one.join(MEMBERS)
        settle()
        left, paused = [], []
        for one in groups:
            one.signal(signal.SIGKILL)
            paused.append(one.signal(signal.SIGSTOP))
            left.extend(one.signal(signal.SIGTERM))
            one.join(A_FEW)
        settle()
        for one, members in zip(groups, paused, strict=True):
            one.go_on(members)
            one.join(A_FEW)
        settle()
        assert {member.process.wait(TIMEOUT_S) for member in left} == {0}
        for one in groups:
            twice = {at: who for at, who in one.owners().items() if len(who) > 1}
            assert not twice, one.protocol
