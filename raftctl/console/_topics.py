"""Topics and their partitions: of the image, with what brokers know of their logs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raftctl.console._topic_health import Condition
from raftctl.console.http import Table
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.ids import uuid_text
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.records import NO_LEADER
from raftctl.metadata.topic_names import INTERNAL_TOPICS
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from immutables import Map

    from raftctl.console._topic_health import ClusterHealth, TopicHealth
    from raftctl.console.http import Asked, Rights
    from raftctl.metadata.image import MetadataImage, PartitionImage, TopicImage
    from raftctl.metadata.records import AccessControlEntryRecord
    from raftctl.security import Requester

PROBLEMS = "problems"
KEPT_S = 5.0
"""How long a requester's topics are kept: an authorizer may go by more than the rules."""
KEPT_MAX = 64


class PartitionLog(NamedTuple):
    """A partition's log as its leader knows it. None: not known."""

    size: int | None = None
    """Bytes of the leader's replica."""
    log_start: int | None = None
    log_end: int | None = None
    high_watermark: int | None = None
    follower_ends: Mapping[int, int] = {}
    """Broker id of a follower to its log end, as the leader has last seen it."""


class LogData(Protocol):
    """What only brokers know of logs. What does not answer in time is left out."""

    async def topic_sizes(self, rights: Rights, topics: Sequence[str]) -> Mapping[str, int]:
        """Return the bytes of all replicas of each of these topics."""

    async def partition_logs(
        self, rights: Rights, topic: str, partitions: Sequence[int]
    ) -> Mapping[int, PartitionLog]:
        """Return the logs of these partitions of a topic."""


class ConfigData(Protocol):
    """Configs, which only brokers know whole."""

    async def known(
        self, requester: Requester, kind: str, name: str
    ) -> list[dict[str, Any]] | None:
        """Return the configs of a resource; None if they may not be seen, or are not known."""


class _Visible(NamedTuple):
    """The topics that a requester may describe.

    To ask for 10,000 each second would push out of the authorizer's memory what it has decided for
    requests of the protocol.
    """

    ids: Map[str, UUID]
    acls: Map[UUID, AccessControlEntryRecord]
    at: float
    """Seconds of the event loop's clock."""
    names: list[str]

    def is_of(self, image: MetadataImage) -> bool:
        """Return whether topics and rules of the image are those that were asked about."""
        return self.ids is image.topics.ids and self.acls is image.acls


class TopicViews:
    """Answers about topics."""

    def __init__(self, health: ClusterHealth, logs: LogData, configs: ConfigData) -> None:
        self._health = health
        self._configs = configs
        self._logs = logs
        self._sorted: tuple[Map[str, UUID] | None, list[str]] = None, []
        """The names of an image's topics, in order."""
        self._visible: dict[Requester, _Visible] = {}

    def names(self, image: MetadataImage) -> list[str]:
        """Return the names of all topics in order; not to be changed."""
        ids, found = self._sorted
        if ids is not image.topics.ids:
            found = sorted(image.topics.ids)
            self._sorted = image.topics.ids, found
        return found

    async def visible(self, rights: Rights, image: MetadataImage) -> list[str]:
        """Return the names of the topics that the requester may describe, in order."""
        names = self.names(image)
        if rights.may_all(Operation.DESCRIBE, ResourceType.TOPIC):
            return names
        now = asyncio.get_running_loop().time()
        known = self._visible.get(rights.requester)
        if known is not None and known.is_of(image) and now - known.at < KEPT_S:
            return known.names
        slices, found = Slices(), []
        for name in names:
            if rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                found.append(name)
            await slices.rest()
        if len(self._visible) >= KEPT_MAX:
            self._visible.clear()
        self._visible[rights.requester] = _Visible(image.topics.ids, image.acls, now, found)
        return found

    # --- topics -----------------------------------------------------------------------------------

    async def topics(self, asked: Asked) -> dict[str, Any]:
        """Return the table of topics; `only=problems` leaves out those that are well."""
        only = asked.fields.text_or_none("only")
        if only not in (None, PROBLEMS):
            raise BadFieldError("only", f"must be {PROBLEMS}, or left out")
        image = await self._health.current()
        ids, topics = image.topics.ids, self._health.topics
        names = await self.visible(asked.rights, image)
        if only is not None:
            names = [name for name in names if topics[ids[name]].has_problem]

        def of(name: str) -> TopicHealth:
            return topics[ids[name]]

        table: Table[str] = Table(
            lambda name: topic_row(name, ids[name], of(name)),
            {
                "name": lambda name: name,
                "internal": lambda name: name in INTERNAL_TOPICS,
                "partitions": lambda name: of(name).partitions,
                "replication_factor": lambda name: of(name).replication_factor,
                **{column: _counted(of, one) for column, one in CONDITION_COLUMNS.items()},
            },
            name=lambda name: name,
        )
        answer = await table.answer(names, asked.fields, image.offset)
        shown = [row["name"] for row in answer["rows"]]
        sizes = await self._logs.topic_sizes(asked.rights, shown)
        rows = [{**row, "size": sizes.get(row["name"])} for row in answer["rows"]]
        return {**answer, "rows": rows}

    def topic(self, rights: Rights, name: str, image: MetadataImage) -> TopicImage:
        """Return a topic that the requester may describe.

        KafkaError: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION.
        """
        rights.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
        topic = image.topics.by_name(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name:.100}")
        return topic

    async def one(self, asked: Asked) -> dict[str, Any]:
        """Return a topic."""
        asked.fields.end()
        image = await self._health.current()
        topic = self.topic(asked.rights, asked.named["topic"], image)
        row = topic_row(topic.name, topic.topic_id, self._health.topics[topic.topic_id])
        configs = await self._configs.known(asked.requester, "topic", topic.name)
        return {
            **row,
            "partition_count": row["partitions"],
            "configs": configs,
            "metadata_offset": image.offset,
        }

    async def reassignments(self, asked: Asked) -> dict[str, Any]:
        """Return the table of partitions that move: as ListPartitionReassignments, of the cluster.

        KafkaError(CLUSTER_AUTHORIZATION_FAILED).
        """
        asked.rights.require(Operation.DESCRIBE, ResourceType.CLUSTER)
        image = await self._health.current()
        topics = map(image.topics.topics.get, self._health.since[Condition.REASSIGNING])
        moving = {
            (topic.name, number): partition
            for topic in topics
            if topic is not None
            for number, partition in topic.items()
            if partition.adding_replicas or partition.removing_replicas
        }
        table: Table[tuple[str, int]] = Table(
            lambda item: reassignment_row(*item, moving[item]),
            {
                "topic": lambda item: item[0],
                "partition": lambda item: item[1],
                "progress": lambda item: _progress(moving[item]),
            },
            name=lambda item: item[0],
        )
        answer = await table.answer(sorted(moving), asked.fields, image.offset)
        shown = [(row["topic"], row["partition"]) for row in answer["rows"]]
        logs = await self._logs_of(asked.rights, shown)
        rows = [
            {**row, "progress": _progress(moving[item], logs.get(item))}
            for item, row in zip(shown, answer["rows"], strict=True)
        ]
        return {**answer, "rows": rows}

    async def _logs_of(
        self, rights: Rights, items: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], PartitionLog]:
        """Return the logs of partitions of several topics."""
        numbers: dict[str, list[int]] = {}
        for name, number in items:
            numbers.setdefault(name, []).append(number)
        found = await asyncio.gather(
            *(self._logs.partition_logs(rights, name, some) for name, some in numbers.items())
        )
        return {
            (name, number): log
            for name, logs in zip(numbers, found, strict=True)
            for number, log in logs.items()
        }

    # --- partitions -------------------------------------------------------------------------------

    async def partitions(self, asked: Asked) -> dict[str, Any]:
        """Return the table of a topic's partitions."""
        image = await self._health.current()
        topic = self.topic(asked.rights, asked.named["topic"], image)
        partitions = topic.partitions
        table: Table[int] = Table(
            lambda number: partition_row(number, partitions[number]),
            {
                "partition": lambda number: number,
                "leader": lambda number: _leader(partitions[number]),
                "leader_epoch": lambda number: partitions[number].leader_epoch,
                "offline": lambda number: partitions[number].leader == NO_LEADER,
                "isr": lambda number: len(partitions[number].isr),
            },
            name=str,
        )
        answer = await table.answer(range(len(partitions)), asked.fields, image.offset)
        shown = [row["partition"] for row in answer["rows"]]
        logs = await self._logs.partition_logs(asked.rights, topic.name, shown)
        rows = [
            {**row, **_log_fields(partitions[number], logs.get(number, PartitionLog()))}
            for number, row in zip(shown, answer["rows"], strict=True)
        ]
        return {**answer, "rows": rows}


CONDITION_COLUMNS: Mapping[str, Condition] = {
    "offline": Condition.OFFLINE,
    "under_replicated": Condition.UNDER_REPLICATED,
    "under_min_isr": Condition.UNDER_MIN_ISR,
    "reassigning": Condition.REASSIGNING,
}


def _counted(of: Callable[[str], TopicHealth], condition: Condition) -> Callable[[str], int]:
    return lambda name: of(name).counts[condition]


def topic_row(name: str, topic_id: UUID, health: TopicHealth) -> dict[str, Any]:
    """Return the row of a topic, without its size."""
    return {
        "name": name,
        "id": uuid_text(topic_id),
        "internal": name in INTERNAL_TOPICS,
        "partitions": health.partitions,
        "replication_factor": health.replication_factor,
        **{column: health.counts[one] for column, one in CONDITION_COLUMNS.items()},
    }


def partition_row(number: int, partition: PartitionImage) -> dict[str, Any]:
    """Return the row of a partition, without what its leader knows."""
    return {
        "partition": number,
        "leader": _leader(partition),
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": (),
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
        "offline": partition.leader == NO_LEADER,
        "recovering": partition.leader_recovering,
    }


def reassignment_row(topic: str, number: int, partition: PartitionImage) -> dict[str, Any]:
    """Return the row of a partition that moves."""
    return {
        "topic": topic,
        "partition": number,
        "replicas": partition.replicas,
        "adding": partition.adding_replicas,
        "removing": partition.removing_replicas,
        "isr": partition.isr,
        "progress": _progress(partition),
    }


def _progress(partition: PartitionImage, log: PartitionLog | None = None) -> float:
    """Return the share of a move that is done, which ends when all new replicas are in sync.

    A new replica counts by how much of the log it has, where the leader says so.
    """
    adding = partition.adding_replicas
    shares = [_share(partition, log, broker_id) for broker_id in adding]
    return sum(shares) / len(shares) if shares else 0.0


def _share(partition: PartitionImage, log: PartitionLog | None, broker_id: int) -> float:
    if broker_id in partition.isr:
        return 1.0
    if log is None or log.log_end is None or log.log_start is None:
        return 0.0
    end, whole = log.follower_ends.get(broker_id), log.log_end - log.log_start
    if end is None or whole <= 0:
        return 0.0
    # Below 1 while it is not in sync: its end may be as of some moments ago.
    return min(0.99, max(0.0, (end - log.log_start) / whole))


def _leader(partition: PartitionImage) -> int | None:
    return None if partition.leader == NO_LEADER else partition.leader


def _log_fields(partition: PartitionImage, log: PartitionLog) -> dict[str, Any]:
    ends = log.follower_ends
    followers = [one for one in partition.replicas if one != partition.leader]
    return {
        "size": log.size,
        "log_start": log.log_start,
        "log_end": log.log_end,
        "high_watermark": log.high_watermark,
        "followers": [
            {"broker_id": one, "lag": _lag(log.log_end, ends.get(one))} for one in followers
        ],
    }


def _lag(end: int | None, follower_end: int | None) -> int | None:
    return None if end is None or follower_end is None else max(0, end - follower_end)
