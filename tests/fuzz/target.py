"""The broker that is fuzzed: production code from the socket to the log, a controller in memory."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from broker.protocol import codec
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from tests.unit.broker.log.logs import headers
from tests.unit.broker.replication.world import TOPIC_ID, FakeController, World, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from tests.unit.broker.replication.world import Node

ANSWER_S = 20.0
"""An answer to a sound request that takes longer is a hang."""
PATIENCE_S = 0.1
"""How long a frame's answer is waited for, before the connection is given up."""
IDLE_MS = 2_000
"""The longest wait of a request, whatever it says: nothing of it is left then."""
_PING_ID = 0x70696E67
_PING = codec.encode_request(18, 0, _PING_ID, "fuzz", {})
_PING_ID_BYTES = _PING_ID.to_bytes(4, "big")
_PRODUCER_IDS = 1_000
_TOPICS_MAX = 20
_CRASHES = ("request_failed", "connection_failed")


class TopicController(FakeController):
    """Also makes and deletes topics, and gives out producer ids."""

    def __init__(self) -> None:
        super().__init__()
        self._made = 0
        self._producer_ids = 0

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """As the active controller would."""
        match request:
            case CreateTopicsRequest():
                return CreateTopicsResponse(
                    ErrorCode.NONE, tuple(self._create(t.name, request) for t in request.topics)
                )
            case DeleteTopicsRequest():
                return DeleteTopicsResponse(
                    ErrorCode.NONE, tuple(self._delete(*key) for key in request.topics)
                )
            case AllocateProducerIdsRequest():
                self._producer_ids += _PRODUCER_IDS
                first = self._producer_ids - _PRODUCER_IDS
                return AllocateProducerIdsResponse(ErrorCode.NONE, first, _PRODUCER_IDS)
            case AlterPartitionRequest():
                return await super().call(request, timeout_ms)
            case _:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "this controller cannot do that")

    def _create(self, name: str, request: CreateTopicsRequest) -> TopicResult:
        known = self.image.topics.by_name(name)
        if known is not None or not name.isalnum() or self._made >= _TOPICS_MAX:
            return TopicResult(name, ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")
        if not request.validate_only:
            self._made += 1
            topic_id = UUID(int=1_000 + self._made)
            partition = PartitionRecord(topic_id, 0, (1,), (1,), 1, 0, 0)
            self.commit(TopicRecord(name, topic_id), partition)
        return TopicResult(name, ErrorCode.NONE, "", TOPIC_ID, 1, 1)

    def _delete(self, name: str | None, topic_id: UUID | None) -> TopicResult:
        topics = self.image.topics
        found = topics.by_name(name) if name else topics.by_id(topic_id or UUID(int=0))
        if found is None or found.topic_id == TOPIC_ID:
            return TopicResult(name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.commit(RemoveTopicRecord(found.topic_id))
        return TopicResult(found.name, ErrorCode.NONE, "", found.topic_id)


class Target:
    """A broker of its own, and one connection to it that is made anew whenever it has closed."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.seen: Counter[str] = Counter()
        """What became of the frames, and the broker's log lines."""
        self.crashes: list[dict[str, object]] = []
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, frame: bytes) -> None:
        """Sends a frame and a sound one after it: that is answered, or the connection closes."""
        reader, writer = await self._connected()
        writer.write(frame + _PING)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (await self._answer(reader))[:4] != _PING_ID_BYTES:
                    pass
            self.seen["answered"] += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            self.seen["closed"] += 1
            await self.disconnect()
        except TimeoutError:
            # It waits for the rest of the frame, or as long as the frame says.
            self.seen["left waiting"] += 1
            await self.disconnect()
            await self.ping()
        self._note_log()

    async def ping(self) -> None:
        """A sound request on a new connection is answered, or the broker hangs."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.node.port)
        try:
            writer.write(_PING)
            async with asyncio.timeout(ANSWER_S):
                assert (await self._answer(reader))[:4] == _PING_ID_BYTES
        finally:
            writer.close()

    async def disconnect(self) -> None:
        """Leaves without waiting for anything."""
        if self._link is not None:
            self._link[1].transport.abort()
            self._link = None
        await asyncio.sleep(0)

    async def check_idle(self) -> None:
        """Nothing of what was sent is still held, and the log is whole."""
        await self.disconnect()
        await eventually(lambda: not self.node._limits._connections, ANSWER_S)
        replicas, config = self.node.replicas, self.node.config
        waiting = replicas._produces, replicas._fetches, replicas._deletes
        assert [len(one) for one in waiting] == [0, 0, 0]
        assert self.node._limits.permits == config.queued_max_requests
        assert len(self.node.sessions) <= config.max_incremental_fetch_session_cache_slots
        assert self.node.failures == []
        assert self.crashes == [], self.crashes[0]
        log = self.node.replica().log
        ends = [header.next_offset for header in headers(log)]
        assert [0, *ends][:-1] == [header.base_offset for header in headers(log)]
        gc.collect()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._link is None:
            self._link = await asyncio.open_connection("127.0.0.1", self.node.port)
        return self._link

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)

    def _note_log(self) -> None:
        events, self.node.runtime.events = self.node.runtime.events, []
        for name, values in events:
            self.seen[name] += 1
            if name in _CRASHES:
                self.crashes.append({"event": name, **values})


@asynccontextmanager
async def fuzzed() -> AsyncIterator[Target]:
    """A running broker that leads one partition of the topic `t`."""
    world = World(
        1,
        listen=True,
        controller=TopicController(),
        message_max_bytes="10000",
        connections_max_idle_ms=str(IDLE_MS),
        # The clients have another clock than the broker.
        log_message_timestamp_after_max_ms=str(2**63 - 1),
    )
    async with world:
        world.create_topic()
        target = Target(world.nodes[1])
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: target.crashes.append(context))
        try:
            yield target
        finally:
            await target.disconnect()
