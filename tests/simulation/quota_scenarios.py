"""A day of quotas in virtual time: a broker's server and protocol, with its logs in memory.

Every client uses its connection as much as it is let. A quota is a rate, so what counts is any
interval, however long: what is granted in it is bounded, and the bound is used up. Whoever is
throttled is answered at once and learns for how long; whoever is not throttled notices nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from broker.protocol import codec
from broker.protocol.versions import ApiKey
from broker.quotas import ClientQuotas, StoredQuotas, Windows
from broker.request_context import ClientConnection
from broker.types import TopicPartition
from jepsen.simulator.properties import Violation
from raftctl.errors import ErrorCode
from raftctl.metadata.records import ClientQuotaRecord
from tests.unit.broker.server.fakes import (
    Client,
    batch,
    fetch_message,
    produce_message,
    publish,
    running,
)
from tests.unit.broker.server.memory_log import MemoryLog

if TYPE_CHECKING:
    import random

    from jepsen.simulator.world import SimRuntime, World
    from tests.unit.broker.server.fakes import FakeBroker

DAY_S, REST_S, BURST_S, LOOK_S = 86_400.0, 3_600.0, 300.0, 15.0
IDLE_S = 20.0
"""A connection that says nothing for so long is closed, unless it is muted."""
WINDOWS = Windows(11, 60_000)
"""What a client did not use for so long it may use later. A request must be small beside that:
Apache Kafka forgets a larger one before it is paid for, and so does this broker."""
BYTES_MIN, BYTES_MAX = 500, 2_000
QUOTAS = {
    "writer": ("producer_byte_rate", 40.0),
    "rester": ("producer_byte_rate", 40.0),
    "reader": ("consumer_byte_rate", 100.0),
    "creator": ("controller_mutation_rate", 0.01),
}
AT_ONCE_S = 0.5
USED_UP, OVER = 0.85, 1.01
"""Shares of a quota that are granted over a day, at least and at most. The least is for fetches:
a broker counts them as a little larger than they are, and one that must wait comes again late."""
PARTITION = TopicPartition("t", 0)


class Named(Client):
    """A client with an id of its own, and what it was granted."""

    def __init__(self, name: str, broker: FakeBroker, *streams: Any) -> None:
        super().__init__(*streams)
        self.name = name
        self.sent = self.received = 0
        """Bytes of the newest request and of its answer."""
        self._broker = broker
        self._connection = ClientConnection()
        self._muted_until = 0.0

    def send(self, api_key: int, version: int, message: dict[str, Any]) -> int:
        self._next_id += 1
        frame = codec.encode_request(api_key, version, self._next_id, self.name, message)
        self.sent = len(frame) - 4
        self.writer.write(frame)
        return self._next_id

    async def receive(self, api_key: int, version: int) -> tuple[int, dict[str, Any]]:
        self.received = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = await self.reader.readexactly(self.received)
        return codec.decode_response(api_key, version, frame)

    async def begin(self) -> None:
        """Find out which connection is this one; nobody else may ask meanwhile."""
        await self.ask(ApiKey.API_VERSIONS, 0, {})
        self._connection = self._broker.contexts[-1].connection

    async def used(self, api_key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        """Ask at once, and judge when the answer comes and for how long the next must wait."""
        due = max(now(), self._muted_until)
        try:
            answer = await self.ask(api_key, version, message)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Violation("muted_connection_stays", f"{self.name} was closed") from None
        late_s = now() - due
        if late_s < 0:
            text = f"{self.name} is answered {-late_s:.3f} s too early"
            raise Violation("throttled_client_waits", text)
        if late_s > AT_ONCE_S:
            text = f"{self.name} is answered {late_s:.3f} s late"
            raise Violation("answer_comes_at_once", text)
        muted_s = self._connection.muted_until - now()
        throttle_s = answer.get("throttle_time_ms", 0) / 1000
        if throttle_s < muted_s:
            text = f"{self.name} is muted for {muted_s:.3f} s, its answer says {throttle_s:.3f}"
            raise Violation("throttle_time_is_in_the_answer", text)
        # The answer took some time to come, in which the connection was muted already.
        self._muted_until = now() + throttle_s - AT_ONCE_S / 10 if throttle_s else 0.0
        return answer


@dataclass(slots=True)
class Grants:
    """What clients of one quota were granted, and when."""

    bound: float
    most: float
    """The most that one request uses."""
    times: list[float] = field(default_factory=list)
    amounts: list[float] = field(default_factory=list)

    def add(self, amount: float) -> None:
        """Something was granted now."""
        self.times.append(now())
        self.amounts.append(amount)

    def judge(self, name: str, *, used_up_over_s: float | None) -> None:
        """Raise Violation unless each interval has no more than its share, and the day has it."""
        bound = self.bound * OVER
        allowed = bound * WINDOWS.total_ms / 1000 + 2 * self.most
        lowest = float("inf")
        for time, amount, total in zip(
            self.times, self.amounts, accumulate(self.amounts), strict=True
        ):
            lowest = min(lowest, total - amount - bound * time)
            excess = total - bound * time - lowest
            if excess > allowed:
                text = f"{name} has {excess:.0f} more than its share, {allowed:.0f} are allowed"
                raise Violation("granted_rate_is_bounded", text)
        if used_up_over_s is not None:
            share = sum(self.amounts) / used_up_over_s / self.bound
            if share < USED_UP:
                raise Violation("quota_is_used_up", f"{name} gets {share:.2f} of its quota")


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()


class Day:
    """The broker, its clients and what they are granted."""

    def __init__(self, broker: FakeBroker, rng: random.Random) -> None:
        self.broker = broker
        self.random = rng
        self.ends = now() + DAY_S
        most = {"writer": BYTES_MAX, "rester": BYTES_MAX, "reader": BYTES_MAX, "creator": 1}
        self.grants = {name: Grants(bound, most[name] * 1.1) for name, (_, bound) in QUOTAS.items()}

    async def client(self, name: str) -> Named:
        """Return a new connection."""
        streams = await asyncio.open_connection("127.0.0.1", self.broker.port)
        client = Named(name, self.broker, *streams)
        await client.begin()
        return client

    async def produce(self, client: Named) -> None:
        """A batch, as soon as it may be."""
        filler = b"x" * self.random.randint(BYTES_MIN, BYTES_MAX)
        answer = await client.used(ApiKey.PRODUCE, 9, produce_message("t", batch(filler=filler)))
        assert not answer["responses"][0]["partition_responses"][0]["error_code"]
        self.grants[client.name].add(client.sent)

    async def write(self, client: Named) -> None:
        """Produce all day."""
        while now() < self.ends:
            await self.produce(client)

    async def read(self, client: Named) -> None:
        """Fetch the newest batch again and again."""
        while now() < self.ends:
            newest = self.broker.replicas.logs[PARTITION].end - 1
            answer = await client.used(ApiKey.FETCH, 11, fetch_message("t", newest, rack_id=""))
            if answer["responses"]:
                self.grants[client.name].add(client.received)

    async def create(self, client: Named) -> None:
        """Create topics, of which some are refused for now."""
        number = 0
        while now() < self.ends:
            message = {
                "topics": [
                    {
                        "name": f"created-{number}",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [],
                    }
                ],
                "timeout_ms": 1_000,
                "validate_only": False,
            }
            answer = await client.used(ApiKey.CREATE_TOPICS, 7, message)
            code = answer["topics"][0]["error_code"]
            assert code in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED), code
            if code == ErrorCode.NONE:
                self.grants[client.name].add(1)
                number += 1

    async def rest(self, client: Named) -> None:
        """Be quiet for an hour, then produce for a minute; an idle connection is closed."""
        while now() < self.ends:
            began = now()
            assert await client.ended(), "an idle connection is closed"
            assert IDLE_S - 1 < now() - began < IDLE_S + 1 + BURST_S, now() - began
            await asyncio.sleep(REST_S)
            client = await self.client("rester")
            until = now() + BURST_S
            while now() < until:
                await self.produce(client)

    async def look(self, client: Named) -> None:
        """Ask for something without a quota; `used` judges that it is not delayed."""
        while now() < self.ends:
            await client.used(ApiKey.API_VERSIONS, 0, {})
            await asyncio.sleep(LOOK_S)

    async def run(self) -> None:
        """All at once."""
        does = {
            "writer": self.write,
            "reader": self.read,
            "creator": self.create,
            "rester": self.rest,
            "other": self.look,
        }
        clients = [await self.client(name) for name in does]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(does[client.name](client))
        for name, grants in self.grants.items():
            grants.judge(name, used_up_over_s=None if name == "rester" else DAY_S)


async def quotas_hold_all_day(world: World) -> None:
    """Five clients use one broker for 24 hours."""

    async def main(runtime: SimRuntime) -> None:
        async with running("t", connections_max_idle_ms=str(int(IDLE_S * 1000))) as broker:
            measured = ClientQuotas(StoredQuotas(), WINDOWS, WINDOWS)
            broker.metadata.quotas = measured
            broker.context = replace(broker.context, quotas=measured)
            broker.replicas.logs[PARTITION] = MemoryLog()
            broker.replicas.append(1, 0, [(PARTITION, batch(filler=b"x" * BYTES_MIN))])
            quotas = [
                ClientQuotaRecord((("client-id", name),), key, bound)
                for name, (key, bound) in QUOTAS.items()
            ]
            publish(broker.metadata, quotas)
            try:
                await Day(broker, world.random).run()
            except* Violation as found:
                raise found.exceptions[0] from None

    await world.start("broker-1", main).done
