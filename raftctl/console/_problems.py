"""What is wrong now, and what to do about it.

`CONDITIONS` is the one table of what counts as a problem, how bad it is, and its remedy. A problem
of partitions is a row a topic, not a row a partition: a broker that is gone may have 30,000.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console._topic_health import Condition, conditions
from raftctl.console.brokers import Recent
from raftctl.console.http import Table
from raftctl.errors import KafkaError
from raftctl.metadata.acls import Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from raftctl.console._quorum import QuorumViews
    from raftctl.console._topic_health import ClusterHealth
    from raftctl.console.brokers import Brokers, BrokerViews
    from raftctl.console.http import Asked, Rights
    from raftctl.metadata.image import MetadataImage, TopicImage

ERROR, WARNING, INFO = "error", "warning", "info"
_ORDER = {ERROR: 0, WARNING: 1, INFO: 2}
SHOWN_MAX = 20
"""In the overview."""
_NAMED_MAX = 5
"""Partitions of a topic that a sentence names."""
KEPT_S = 30.0
"""What brokers know of is asked for so seldom: it costs each of them a look at its disks."""
PATIENCE_S = 0.5
LAGGING_MS = 10_000
"""A voter that has had nothing of the leader's for so long may not be able to take over."""
LONG_REASSIGNMENT_MS = 600_000
_SPARE_VOTERS_MIN = 3
"""A quorum of fewer has no majority to spare by its size, not because something is wrong."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A kind of problem: its severity, what it is about, the sentence and what to do."""

    severity: str
    subject: str
    """The kind of what the problem is about: cluster, voter, broker, topic."""
    what: str
    do: str


CONDITIONS: Mapping[str, Remedy] = {
    "no-controller": Remedy(
        ERROR,
        "cluster",
        "No controller is active: nothing can be created, and no broker can take over from another",
        "Start controllers until a majority of the voters runs, then look at "
        "`raftctl quorum describe --replication`",
    ),
    "no-spare-majority": Remedy(
        WARNING,
        "cluster",
        "{alive} of {n} voters follow the leader: with one more lost no controller can be active",
        "Start the voters that do not follow, or replace one: `raftctl quorum add-voter`, then "
        "`raftctl quorum remove-voter`",
    ),
    "lagging-voter": Remedy(
        WARNING,
        "voter",
        "Voter {name} does not follow the leader{lag}",
        "Look whether node {name} runs, at its log and at its disk: "
        "`raftctl quorum describe --replication`",
    ),
    "fenced-broker": Remedy(
        ERROR,
        "broker",
        "Broker {name} is fenced: it does not report to the controller, and leads nothing",
        "Start it, or look at its log; if it is gone for good, move its replicas away with "
        "`raftctl reassign-partitions`, then `raftctl brokers unregister {name}`",
    ),
    "stopping-broker": Remedy(
        INFO,
        "broker",
        "Broker {name} is in a controlled shutdown: its leaders move away",
        "Wait until it has stopped; nothing is lost",
    ),
    "offline-directory": Remedy(
        ERROR,
        "broker",
        "Broker {name} cannot use its log directory {path}",
        "Look at its log and at the disk; when the disk is well again, restart the broker, which "
        "fetches what it lacks: `raftctl brokers log-dirs`",
    ),
    "hanging-transaction": Remedy(
        ERROR,
        "topic",
        "A transaction of producer {producer_id} hangs in partition {partition} of {name}, at "
        "offset {start_offset}: readers of committed records see nothing after it",
        "`raftctl transactions abort --topic {name} --partition {partition} "
        "--start-offset {start_offset}`",
    ),
    "offline": Remedy(
        ERROR,
        "topic",
        "{n} of {of} partitions of {name} have no leader ({partitions}){because}",
        "Start a broker that has a replica in sync. If all of them are lost for good: "
        "`raftctl elect-leaders --election-type unclean --partition {name}:{first}`, which may "
        "lose records",
    ),
    "under-min-isr": Remedy(
        ERROR,
        "topic",
        "{n} of {of} partitions of {name} have fewer replicas in sync than min.insync.replicas="
        "{min_isr} ({partitions}): producers with acks=all are refused{because}",
        "Start the brokers whose replicas lack. As a last resort: "
        "`raftctl configs alter --entity-type topic --entity-name {name} "
        "--set min.insync.replicas=1`",
    ),
    "under-replicated": Remedy(
        WARNING,
        "topic",
        "{n} of {of} partitions of {name} lack a replica in sync ({partitions}){because}",
        "Start the brokers whose replicas lack, or wait until they have caught up: "
        "`raftctl partitions list --under-replicated --topic {name}`",
    ),
    "not-preferred": Remedy(
        INFO,
        "cluster",
        "{n} of {of} partitions are not led by their preferred leader: load may be uneven",
        "`raftctl elect-leaders --all-topic-partitions`; with auto.leader.rebalance.enable the "
        "controller does it by itself",
    ),
    "long-reassignment": Remedy(
        WARNING,
        "topic",
        "{n} of {of} partitions of {name} have been moving for a long time ({partitions}){because}",
        "Look at `raftctl reassign-partitions --list`: raise its throttle, start the brokers that "
        "lack, or cancel it",
    ),
}
_OF_TOPICS = {
    "offline": Condition.OFFLINE,
    "under-min-isr": Condition.UNDER_MIN_ISR,
    "under-replicated": Condition.UNDER_REPLICATED,
    "long-reassignment": Condition.REASSIGNING,
}


class Problem(NamedTuple):
    """A problem, small until its row is made."""

    kind: str
    """A key of `CONDITIONS`."""
    name: str = ""
    """Of the topic, or the id of the node."""
    since_ms: int | None = None
    facts: Mapping[str, Any] = {}
    """What the sentence names, unless the image has it."""

    @property
    def severity(self) -> str:
        """How bad it is."""
        return CONDITIONS[self.kind].severity


class Problems:
    """Finds what is wrong."""

    def __init__(
        self,
        health: ClusterHealth,
        quorum: QuorumViews,
        views: BrokerViews,
        brokers: Brokers,
        wall_ms: Callable[[], int],
    ) -> None:
        self._health = health
        self._views = views
        self._brokers = brokers
        self._recent: Recent[list[Problem]] = Recent(KEPT_S)
        self._quorum = quorum
        self._wall_ms = wall_ms

    async def problems(self, asked: Asked) -> dict[str, Any]:
        """Return the table of problems: the worst first, of equally bad ones the oldest."""
        image = await self._health.current()
        if asked.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            await self._quorum.refresh(asked.requester)
        found = self.found(asked.rights, image) + await self._of_disks(asked.rights)
        found.sort(key=lambda one: _ORDER[one.severity])
        table: Table[Problem] = Table(
            lambda one: self.row(one, image),
            {
                "severity": lambda one: _ORDER[one.severity],
                "what": lambda one: one.kind,
                "subject": lambda one: one.name,
                "since_ms": lambda one: one.since_ms,
            },
            name=lambda one: f"{one.name} {one.kind}",
        )
        return await table.answer(found, asked.fields, image.offset)

    def glance(self, rights: Rights, image: MetadataImage) -> dict[str, Any]:
        """Return the part of the overview about problems."""
        found = self.found(rights, image)
        return {
            "problems": [self.row(one, image) for one in found[:SHOWN_MAX]],
            "problem_count": len(found),
        }

    def found(self, rights: Rights, image: MetadataImage) -> list[Problem]:
        """Return the problems of which the requester may know, in their order."""
        found: list[Problem] = []
        if rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            found += self._of_quorum()
            found += self._of_brokers(image)
            if count := self._health.counts[Condition.NOT_PREFERRED]:
                facts = {"n": count, "of": self._health.partitions}
                found.append(Problem("not-preferred", facts=facts))
        found += self._of_topics(rights, image)
        found.sort(key=lambda one: _ORDER[one.severity])
        return found

    def _of_quorum(self) -> Iterator[Problem]:
        quorum = self._quorum.document()
        if quorum["leader_id"] is None:
            yield Problem("no-controller", since_ms=_lost_at(quorum["timeline"]))
            return
        voters = quorum["voters"]
        if any(one["last_caught_up_age_ms"] is not None for one in voters):
            lagging = [one for one in voters if _is_lagging(one)]
            alive = len(voters) - len(lagging)
            if len(voters) >= _SPARE_VOTERS_MIN and lagging and alive <= len(voters) // 2 + 1:
                yield Problem("no-spare-majority", facts={"alive": alive, "n": len(voters)})
            for one in lagging:
                lag = "" if one["lag"] is None else f": it lacks {one['lag']} records"
                yield Problem("lagging-voter", str(one["node_id"]), facts={"lag": lag})

    def _of_brokers(self, image: MetadataImage) -> Iterator[Problem]:
        since = self._health.fenced_since
        for broker_id, broker in sorted(image.brokers.items()):
            if broker.fenced:
                yield Problem("fenced-broker", str(broker_id), since.get(broker_id))
            elif broker.in_controlled_shutdown:
                yield Problem("stopping-broker", str(broker_id))

    def _of_topics(self, rights: Rights, image: MetadataImage) -> Iterator[Problem]:
        """Return a problem a topic and condition, unless a worse one says as much."""
        may_all = rights.may_all(Operation.DESCRIBE, ResourceType.TOPIC)
        topics, now_ms = image.topics.topics, self._wall_ms()
        for kind, condition in _OF_TOPICS.items():
            for topic_id, since in self._health.since[condition].items():
                name = topics[topic_id].name
                counts = self._health.topics[topic_id].counts
                if condition is Condition.REASSIGNING:
                    is_said = since is None or now_ms - since < LONG_REASSIGNMENT_MS
                else:
                    is_said = counts[condition] == max(counts[:condition], default=0)
                may = may_all or rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
                if may and not is_said:
                    yield Problem(kind, name, since)

    async def _of_disks(self, rights: Rights) -> list[Problem]:
        """Return what only brokers know, of the last moments.

        A broker that does not answer holds nobody up: what is known by then is shown, and the rest
        with a later question.
        """
        answer = self._recent.get(rights.requester, lambda: self._ask_brokers(rights))
        asking = asyncio.ensure_future(answer)
        done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
        if not done:
            asking.cancel()
            return []
        return asking.result()

    async def _ask_brokers(self, rights: Rights) -> list[Problem]:
        found: list[Problem] = []
        with contextlib.suppress(KafkaError):
            for one in await self._views.hanging(rights):
                facts = {
                    "partition": one.partition,
                    "producer_id": one.producer_id,
                    "start_offset": one.start_offset,
                }
                since = one.last_timestamp_ms
                found.append(Problem("hanging-transaction", one.topic, since, facts))
        if not rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            return found
        with contextlib.suppress(KafkaError):
            # Of no partition: only whether the directories can be used.
            body: dict[str, Any] = {"topics": []}
            answers = await self._brokers.ask_all(rights.requester, "DESCRIBE_LOG_DIRS", body)
            for broker_id, answer in sorted(answers.answers.items()):
                paths = [one["log_dir"] for one in answer["results"] if one["error_code"]]
                found += [
                    Problem("offline-directory", str(broker_id), facts={"path": path})
                    for path in paths
                ]
        return found

    def row(self, problem: Problem, image: MetadataImage) -> dict[str, Any]:
        """Return the row of a problem of this image."""
        remedy = CONDITIONS[problem.kind]
        facts: dict[str, Any] = {"name": problem.name, **problem.facts}
        subject: dict[str, Any] = {"kind": remedy.subject, "name": problem.name}
        topic = image.topics.by_name(problem.name) if problem.kind in _OF_TOPICS else None
        if "partition" in facts:
            subject["partition"] = facts["partition"]
        if topic is not None:
            facts |= self._facts(topic, _OF_TOPICS[problem.kind], image)
            if facts["n"] == 1:
                subject["partition"] = facts["first"]
        return {
            "severity": remedy.severity,
            "what": remedy.what.format_map(facts),
            "subject": subject,
            "since_ms": problem.since_ms,
            "do": remedy.do.format_map(facts),
        }

    def _facts(
        self, topic: TopicImage, condition: Condition, image: MetadataImage
    ) -> dict[str, Any]:
        health = self._health.topics[topic.topic_id]
        hit = (
            number
            for number, partition in topic.items()
            if conditions(partition, health.min_isr)[condition]
        )
        numbers = list(islice(hit, _NAMED_MAX + 1))
        named = ", ".join(map(str, numbers[:_NAMED_MAX]))
        replicas = {one for number in numbers for one in topic.partitions[number].replicas}
        fenced = [one for one in sorted(replicas) if _is_away(image, one)]
        who = f"broker{'s' * (len(fenced) > 1)} {', '.join(map(str, fenced))}"
        verb = "are" if len(fenced) > 1 else "is"
        return {
            "n": health.counts[condition],
            "of": health.partitions,
            "min_isr": health.min_isr,
            "partitions": f"{named}, …" if len(numbers) > _NAMED_MAX else named,
            "first": numbers[0] if numbers else 0,
            "because": f"; {who} {verb} fenced" if fenced else "",
        }


def _is_away(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is None or broker.fenced


def _is_lagging(row: Mapping[str, Any]) -> bool:
    age = row["last_caught_up_age_ms"]
    return age is None or age > LAGGING_MS


def _lost_at(timeline: list[dict[str, Any]]) -> int | None:
    """Return since when there is no leader; None if this node has seen none go."""
    return timeline[0]["at_ms"] if timeline and timeline[0]["leader_id"] is None else None
