"""A console on this machine, whose image is made by hand."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import aiohttp
from aiohttp import web
from yarl import URL

from raftctl.config import load_config
from raftctl.console import Console
from raftctl.errors import ErrorCode, KafkaError
from raftctl.loader import MetadataLoader
from raftctl.metadata.codec import pack_payload
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    Endpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.raft import QuorumStatus, ReplicaStatus
from raftctl.raft.batch import Batch
from raftctl.raft.messages import Epoch, NodeId, Offset, ReplicaKey, Voter
from raftctl.rpc import start_http
from raftctl.runtime.real import RealRuntime
from raftctl.security import ANONYMOUS, Principal, Requester
from tests.kit.authorizing import requester
from tests.unit.raftctl.console.fake_brokers import FakeBrokers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from raftctl.config import NodeConfig
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.plugins import BrokerClient
    from raftctl.security import Authorizer

CONFIG = (
    "node.id=3\nprocess.roles=controller\nlog.dirs=/data\nlisteners=CONTROLLER://127.0.0.1:9093\n"
    "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=3@127.0.0.1:9093\n"
)
CLUSTER_ID = "a-cluster"
WHO = "X-Who"
"""Header with the principal whose rights a request has."""


class Log:
    """A metadata log with nothing to read."""

    high_watermark = Offset(0)

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """There is nothing."""
        del offset, max_bytes
        return []


class StubQuorum:
    """A quorum that a test changes, and a log with what it appends."""

    def __init__(self) -> None:
        self.leader_id = 3
        self.epoch = 7
        self.is_leader = True
        self.start_offset = 0
        self.high_watermark = 0
        self.batches: list[Batch] = []
        self.voters: tuple[ReplicaStatus, ...] = ()
        self.observers: tuple[ReplicaStatus, ...] = ()

    @property
    def log(self) -> StubQuorum:
        """Where the log begins."""
        return self

    def append(self, *records: Record, timestamp_ms: int = 0, control: bool = False) -> None:
        """Append a batch, which is committed."""
        base, payload = self.high_watermark, pack_payload(records)
        batch = Batch(Offset(base), Epoch(7), len(records), timestamp_ms, control, payload)
        self.batches.append(batch)
        self.high_watermark = batch.end_offset

    def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Return the batch that contains the offset."""
        del max_bytes
        return [one for one in self.batches if one.base_offset <= offset < one.end_offset]

    def bytes_from(self, offset: Offset) -> int:
        """Return the bytes of the batches."""
        return sum(len(one.payload) for one in self.batches if one.base_offset >= offset)

    def status(self) -> QuorumStatus:
        """See `Quorum`. The log of this node ends at 100; there are two voters."""
        return QuorumStatus(
            100_000,
            "leader" if self.is_leader else "follower",
            NodeId(self.leader_id),
            Epoch(self.epoch),
            Offset(90),
            Offset(100),
            self.voters,
            self.observers,
            tuple(Voter(ReplicaKey(NodeId(one), None), f"node-{one}", 9093) for one in (3, 4)),
        )


class StubController:
    """The way to the active controller: what it answers is set by a test."""

    def __init__(self) -> None:
        self.asked: list[ControllerRequest] = []
        self.answer: ControllerResponse | None = None
        """None: no controller is active."""

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """See `raftctl.plugins.ControllerClient`."""
        self.asked.append(request)
        if self.answer is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"not within {timeout_ms} ms")
        return self.answer


class Answer(NamedTuple):
    """What came back."""

    status: int
    document: Any
    headers: Mapping[str, str]


class Events:
    """Events as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self, event: str) -> dict[str, Any]:
        """The document of the next event of this kind, with its id."""
        async with asyncio.timeout(5):
            while True:
                fields = await self._read()
                if fields.get("event") == event:
                    return {**json.loads(fields["data"]), "id": int(fields["id"])}

    async def _read(self) -> dict[str, str]:
        lines = []
        while line := (await self.answer.content.readline()).decode().rstrip("\n"):
            lines.append(line)
        return dict(line.split(": ", 1) for line in lines)


class Served:
    """A console and what it shows."""

    def __init__(
        self, authorizer: Authorizer | None, config: str, client: BrokerClient | None
    ) -> None:
        self.config: NodeConfig = load_config(CONFIG + config)
        self.loader = MetadataLoader(Log(), EMPTY_IMAGE)
        self.quorum = StubQuorum()
        self.controller = StubController()
        self.lines = io.StringIO()
        """What is logged, as JSON."""
        self.runtime = RealRuntime(self.lines)
        self.port = 0
        self.console = Console(
            config=self.config,
            cluster_id=CLUSTER_ID,
            quorum=self.quorum,
            loader=self.loader,
            controller=self.controller,
            runtime=self.runtime,
            client=client or FakeBrokers(),
            authorizer=authorizer,
            identify=_who,
            fail=fails,
        )
        if authorizer is not None:
            self.loader.add_publisher(authorizer)

    def commit(self, *records: Record, timestamp_ms: int = 0) -> MetadataImage:
        """Commit the records at once."""
        before = self.loader.image
        delta = MetadataDelta(before)
        delta.replay_all(records, before.offset + 1)
        image = delta.apply(before.offset + len(records), 1, timestamp_ms)
        self.loader.publish(delta, image)
        return image

    async def ask(
        self,
        path: str,
        *,
        who: str | None = None,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Answer:
        """The answer to a request of somebody."""
        sent = {**({} if who is None else {WHO: who}), **(headers or {})}
        # As it is written: a client that is no browser does not take dots out of a path.
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded="<" not in path)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, url, headers=sent, allow_redirects=False, **arguments
            ) as answer,
        ):
            is_json = answer.content_type == "application/json"
            document = await answer.json() if is_json else await answer.read()
            return Answer(answer.status, document, answer.headers)

    async def get(self, path: str, who: str | None = None, **query: Any) -> Any:
        """The document of a view below the API."""
        answer = await self.ask(f"/console/api/{path}", who=who, params=query)
        assert answer.status == 200, answer.document
        return answer.document

    @asynccontextmanager
    async def events(self, who: str | None = None) -> AsyncIterator[Events]:
        """The stream of events of a viewer."""
        url = f"http://127.0.0.1:{self.port}/console/api/events"
        headers = {} if who is None else {WHO: who}
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers) as answer,
        ):
            yield Events(answer)

    async def refused(self, path: str, who: str | None = None, **query: Any) -> tuple[int, str]:
        """The status and error of a view that is refused."""
        answer = await self.ask(f"/console/api/{path}", who=who, params=query)
        return answer.status, answer.document["error"]


@asynccontextmanager
async def serving(
    authorizer: Authorizer | None = None, config: str = "", client: BrokerClient | None = None
) -> AsyncIterator[Served]:
    """Serve a console for a test. Without a client no broker answers."""
    served = Served(authorizer, config, client)
    app = web.Application()
    served.console.mount(app)
    runner, served.port = await start_http(app, "127.0.0.1", 0)
    try:
        yield served
    finally:
        await runner.cleanup()


def _who(request: web.Request) -> Requester:
    named = request.headers.get(WHO)
    return Requester(ANONYMOUS, "127.0.0.1") if named is None else requester(named)


def fails(error: BaseException) -> None:
    """Fail the test."""
    raise error


def broker(broker_id: int, *, fenced: bool = False, rack: str | None = None) -> Sequence[Record]:
    """The records of a broker with one log directory."""
    endpoints = (Endpoint("PLAINTEXT", f"broker-{broker_id}", 9092),)
    directories = (UUID(int=1000 + broker_id),)
    return (
        RegisterBrokerRecord(
            broker_id, UUID(int=100 + broker_id), endpoints, rack, directories, fenced, False, 0
        ),
    )


def fence(broker_id: int, *, fenced: bool = True) -> Record:
    """The record that fences a broker, or lets it in."""
    return BrokerRegistrationChangeRecord(broker_id, 0, fenced=fenced)


def topic(name: str, *partitions: PartitionRecord) -> Sequence[Record]:
    """The records of a topic; its id is that of its partitions."""
    return (TopicRecord(name, partitions[0].topic_id), *partitions)


def partition(
    topic_id: int,
    number: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    leader: int | None = None,
    **fields: Any,
) -> PartitionRecord:
    """A partition; led by the first of its ISR."""
    in_sync = replicas if isr is None else isr
    led = leader if leader is not None else (in_sync[0] if in_sync else NO_LEADER)
    return PartitionRecord(UUID(int=topic_id), number, replicas, in_sync, led, 0, 0, **fields)


def user(name: str) -> str:
    """The text of a principal."""
    return str(Principal.of_user(name))
