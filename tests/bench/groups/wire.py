"""Requests to group coordinators, asked by hand: a client library waits before it asks again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.protocol.versions import ApiKey
from broker.replication.fetcher import BrokerConnection, connect
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIND_VERSION = 4
COMMIT_VERSION = 8
NAME = "bench"
TIMEOUT_MS = 30_000
AGAIN_S = 0.005
GIVE_UP_S = 120.0
"""How long a group may be without a coordinator that takes its commits."""
_RESPONSE_BYTES_MAX = 1 << 24


class Place(NamedTuple):
    """A broker, as clients reach it."""

    node_id: int
    host: str
    port: int


class Wire:
    """Connections to the brokers of one cluster, each opened when it is needed."""

    def __init__(self, bootstrap: str) -> None:
        """`bootstrap` is `host:port,host:port`."""
        pairs = [one.rpartition(":") for one in bootstrap.split(",")]
        self._bootstrap = [(host, int(port)) for host, _, port in pairs]
        self._open: dict[tuple[str, int], BrokerConnection] = {}

    def close(self) -> None:
        """Drops all connections."""
        for connection in self._open.values():
            connection.close()

    async def ask(
        self, where: tuple[str, int], key: ApiKey, version: int, message: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The answer; KafkaError if there is none, and the next time a new connection."""
        connection = self._open.pop(where, None)
        if connection is None:
            connection = await connect(
                *where,
                client_id=NAME,
                response_bytes_max=_RESPONSE_BYTES_MAX,
                timeout_ms=TIMEOUT_MS,
            )
        answer = await connection.call(key, version, message, TIMEOUT_MS)
        self._open[where] = connection
        return answer

    async def coordinators(self, groups: Sequence[str]) -> list[Place]:
        """Who has each group, asked again and again until all have somebody; TimeoutError."""
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                try:
                    return await self._found(groups)
                except KafkaError:
                    await asyncio.sleep(AGAIN_S)

    async def _found(self, groups: Sequence[str]) -> list[Place]:
        """As the first broker says that answers."""
        message = {"key_type": 0, "coordinator_keys": groups}
        for where in self._bootstrap:
            try:
                answer = await self.ask(where, ApiKey.FIND_COORDINATOR, FIND_VERSION, message)
            except KafkaError:
                continue
            return [_place(one) for one in answer["coordinators"]]
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")

    async def commit(self, group: str, topic: str, partitions: int) -> Place:
        """Commits an offset in each of so many partitions, again and again until it is taken;
        TimeoutError.
        """
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                (place,) = await self.coordinators([group])
                if await self.is_taken(place, group, topic, partitions):
                    return place
                await asyncio.sleep(AGAIN_S)

    async def is_taken(self, place: Place, group: str, topic: str, partitions: int) -> bool:
        """Whether the coordinator takes a commit of an offset in each of so many partitions."""
        message = commit_message(group, topic, partitions)
        where = place.host, place.port
        try:
            check_commit(await self.ask(where, ApiKey.OFFSET_COMMIT, COMMIT_VERSION, message))
        except KafkaError:
            return False
        return True


def _place(found: Mapping[str, Any]) -> Place:
    if found["error_code"]:
        raise KafkaError(ErrorCode(found["error_code"]))
    return Place(found["node_id"], found["host"], found["port"])


def commit_message(group: str, topic: str, partitions: int) -> dict[str, Any]:
    """An OffsetCommit of a consumer that assigns partitions to itself, of so many partitions."""
    offsets = [
        {
            "partition_index": number,
            "committed_offset": 1_000_000 + number,
            "committed_leader_epoch": 0,
            "committed_metadata": "",
        }
        for number in range(partitions)
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": offsets}],
    }


def check_commit(answer: Mapping[str, Any]) -> None:
    """KafkaError with the first error in the answer to an OffsetCommit."""
    for topic in answer["topics"]:
        for one in topic["partitions"]:
            if one["error_code"]:
                raise KafkaError(ErrorCode(one["error_code"]))
