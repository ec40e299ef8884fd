"""Sizes and ends of logs: for topics, for partitions, and for a broker's log directories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from raftctl.console._topics import PartitionLog
from raftctl.console.brokers._brokers import (
    ANY_REPLICA,
    EARLIEST,
    LATEST,
    Partition,
    check,
)
from raftctl.console.brokers._recent import Recent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from raftctl.console.brokers._brokers import Answers, Brokers
    from raftctl.console.http import Rights
    from raftctl.security import Requester

    Document = Mapping[str, Any]


class BrokerLogs:
    """Logs as brokers know them; see `raftctl.console._topics.LogData`."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._recent: Recent[Answers] = Recent()

    async def topic_sizes(self, rights: Rights, topics: Sequence[str]) -> Mapping[str, int]:
        """Return the bytes of all replicas of each of these topics.

        One is left out if a broker with a replica of it does not answer.
        """
        found = await self._sizes(rights.requester, self._partitions(topics))
        sizes = dict.fromkeys(topics, 0)
        for (_, one), size in _replica_sizes(found):
            sizes[one.topic] = sizes.get(one.topic, 0) + size
        missing = found.failures.keys() | {
            one for one, answer in found.answers.items() if answer["error_code"]
        }
        image = self._brokers.image
        for name in topics:
            topic = image.topics.by_name(name)
            used = {
                one
                for each in (topic.partitions.values() if topic else ())
                for one in each.replicas
            }
            if topic is None or used - found.answers.keys() or used & missing:
                sizes.pop(name, None)
        return sizes

    async def partition_logs(
        self, rights: Rights, topic: str, partitions: Sequence[int]
    ) -> Mapping[int, PartitionLog]:
        """Return the logs of these partitions of a topic, as far as brokers answer."""
        requester, brokers = rights.requester, self._brokers
        wanted = [Partition(topic, number) for number in partitions]
        leaders = brokers.leaders(wanted)
        hosts = self._hosts(wanted)
        sizes, replica_ends, starts, watermarks = await asyncio.gather(
            self._sizes(requester, wanted),
            brokers.offsets(requester, hosts, LATEST, replica_id=ANY_REPLICA),
            brokers.offsets(requester, leaders, EARLIEST),
            brokers.offsets(requester, leaders, LATEST),
        )
        by_replica = dict(_replica_sizes(sizes))
        found = {}
        for leader, led in leaders.items():
            for one in led:
                ends = {host: known[one] for host, known in replica_ends.items() if one in known}
                found[one.partition] = PartitionLog(
                    by_replica.get((leader, one)),
                    starts.get(leader, {}).get(one),
                    ends.get(leader),
                    watermarks.get(leader, {}).get(one),
                    {host: end for host, end in ends.items() if host != leader},
                )
        return found

    async def directories(self, requester: Requester, broker_id: int) -> list[dict[str, Any]]:
        """Return the log directories of a broker. KafkaError: CLUSTER_AUTHORIZATION_FAILED."""
        found = await self._recent.get(
            (requester, broker_id, None), lambda: self._describe(requester, {broker_id: None})
        )
        for error in found.failures.values():
            raise error
        answer = found.answers[broker_id]
        check(answer["error_code"])
        return [_directory(one) for one in answer["results"]]

    # --- brokers ----------------------------------------------------------------------------------

    async def _sizes(self, requester: Requester, partitions: Iterable[Partition]) -> Answers:
        bodies = self._hosts(partitions)
        key = requester, tuple((one, tuple(some)) for one, some in sorted(bodies.items()))
        return await self._recent.get(key, lambda: self._describe(requester, bodies))

    async def _describe(
        self, requester: Requester, asked: Mapping[int, Sequence[Partition] | None]
    ) -> Answers:
        bodies = {
            broker_id: {"topics": None if some is None else _topics(some)}
            for broker_id, some in asked.items()
        }
        return await self._brokers.ask_each(requester, "DESCRIBE_LOG_DIRS", bodies)

    def _partitions(self, topics: Iterable[str]) -> Iterator[Partition]:
        image = self._brokers.image
        for name in topics:
            topic = image.topics.by_name(name)
            for number in () if topic is None else topic.partitions:
                yield Partition(name, number)

    def _hosts(self, partitions: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Return the partitions of which each live broker has a replica."""
        image = self._brokers.image
        found: dict[int, list[Partition]] = {one: [] for one in self._brokers.live}
        for one in partitions:
            topic = image.topics.by_name(one.topic)
            known = None if topic is None else topic.partitions.get(one.partition)
            for host in () if known is None else known.replicas:
                if host in found:
                    found[host].append(one)
        return {host: some for host, some in found.items() if some}


def _topics(partitions: Iterable[Partition]) -> list[Document]:
    numbers: dict[str, list[int]] = {}
    for one in partitions:
        numbers.setdefault(one.topic, []).append(one.partition)
    return [{"topic": topic, "partitions": some} for topic, some in numbers.items()]


def _replica_sizes(found: Answers) -> Iterator[tuple[tuple[int, Partition], int]]:
    """Yield ((broker, partition), bytes); copies that will take a log's place are left out."""
    for broker_id, answer in found.answers.items():
        for directory in answer["results"]:
            for topic in directory["topics"]:
                for one in topic["partitions"]:
                    if not one["is_future_key"]:
                        where = broker_id, Partition(topic["name"], one["partition_index"])
                        yield where, one["partition_size"]


def _directory(one: Document) -> dict[str, Any]:
    sizes = [each["partition_size"] for topic in one["topics"] for each in topic["partitions"]]
    return {
        "path": one["log_dir"],
        "size": sum(sizes),
        "total": _known(one["total_bytes"]),
        "usable": _known(one["usable_bytes"]),
        "offline": bool(one["error_code"]),
        "partitions": len(sizes),
    }


def _known(size: int) -> int | None:
    return None if size < 0 else size
