"""The shell that runs coordinators: loading, commits, leadership; with a core that counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.apis.handler import MetadataCache
from broker.coordinator import Coordinator
from broker.coordinator.core import Answer, Command, Core, Effect, Journal, KeyValue, Now
from broker.coordinator.internal_topics import new_topic, partition_of
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import RemoveTopicRecord
from tests.unit.broker.replication.world import TOPIC_ID, Node, World, config, eventually
from tests.unit.broker.server.fakes import broker_record, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.coordinator import Shard
    from raftctl.metadata.image import MetadataImage


class Counter(Core):
    """Adds numbers to keys; `("read", key)` tells, `("later", key)` is told a tick later."""

    def __init__(self, journal: Journal, leader_epoch: int) -> None:
        self.sums: dict[bytes, int] = {}
        self.ends: list[tuple[int, bool]] = []
        self.pending: list[tuple[int, bytes]] = []
        self.leader_epoch = leader_epoch
        self.gathered: list[int] = []
        self._journal = journal
        self._later: list[tuple[int, int]] = []

    def ended(self, producer_id: int, *, commit: bool) -> None:
        self.ends.append((producer_id, commit))

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        if producer_id != -1:
            self.pending.append((producer_id, key))
            return
        if key == b"?":
            raise ValueError("what is this?")
        self.sums[key] = int(value or b"0")

    def loaded(self, now: Now) -> list[Effect]:
        del now
        return []

    def handle(self, request_id: int, request: Any, now: Now) -> list[Effect]:
        what, key = request
        if what == "later":
            self._later.append((now.ms + 20, request_id))
            return []
        if what == "peek":
            return [Answer(request_id, self.sums.get(key, 0), needs_commit=False)]
        if what == "refuse":
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if what != "read":
            self._journal.append([KeyValue(key, b"%d" % (self.sums.get(key, 0) + what))])
            return [Answer(request_id, self.sums[key]), Command(self.sums[key])]
        return [Answer(request_id, self.sums.get(key, 0))]

    def may_gather(self, request: Any) -> bool:
        return bool(request[0] == "gather")

    def handle_all(self, requests: Sequence[tuple[int, Any]], now: Now) -> list[Effect]:
        del now
        self.gathered.append(len(requests))
        keys = [key for _, (_, key) in requests]
        self._journal.append([KeyValue(key, b"1") for key in keys if key])
        error = KafkaError(ErrorCode.INVALID_REQUEST)
        return [Answer(request_id, key or error) for request_id, (_, key) in requests]

    def deadline_ms(self) -> int | None:
        return min((due for due, _ in self._later), default=None)

    def tick(self, now: Now) -> list[Effect]:
        due = [request_id for at, request_id in self._later if at <= now.ms]
        self._later = [(at, request_id) for at, request_id in self._later if at > now.ms]
        return [Answer(request_id, "late") for request_id in due]

    def invariants(self) -> None:
        """Any sum may be."""


class Coordinators:
    """A coordinator on each broker of a world, on topic `t`, which has one partition."""

    def __init__(self, world: World, timeout_ms: int = 5_000) -> None:
        self.commands: list[Any] = []
        self.of: dict[int, Coordinator] = {}
        for node in world.nodes.values():
            self.of[node.id] = self._make(node, timeout_ms)
        publish = world.controller.publish

        def publish_all(delta: Any, image: Any) -> None:
            publish(delta, image)
            for one in self.of.values():
                one.publish(image)

        world.controller.publish = publish_all

    def _make(self, node: Node, timeout_ms: int) -> Coordinator:
        keys = {"offsets_commit_timeout_ms": str(timeout_ms), "offsets_load_buffer_size": "200"}
        made = Coordinator(
            "t",
            node.id,
            Counter,
            node.replicas,
            config(node.id, **keys),
            node.runtime.wall_ms,
            node.failures.append,
            node.runtime.log,
        )
        made.on_command = self._errand
        return made

    def _errand(self, _shard: Shard, what: Any) -> None:
        self.commands.append(what)

    async def ask(self, broker: int, what: Any, key: bytes = b"k") -> Any:
        return await asyncio.wait_for(self.of[broker].ask("id", (what, key)), 5)

    async def loaded(self, broker: int) -> None:
        await eventually(lambda: all(shard.is_loaded for shard in self.of[broker].shards()))

    async def stop(self) -> None:
        for one in self.of.values():
            await one.stop()


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("key", "partition"),
    [("console-consumer-49366", 19), ("", 0), ("polygenelubricants", 0), ("Aa", 12), ("BB", 12)],
)
def test_the_partition_of_an_id_is_the_one_that_every_client_expects(
    key: str, partition: int
) -> None:
    assert partition_of(key, 50) == partition


def image_of(brokers: int) -> MetadataImage:
    records = [broker_record(number, 9092) for number in range(1, brokers + 1)]
    return publish(MetadataCache(), [*records, broker_record(99, 9092, fenced=True)])


def test_an_internal_topic_has_as_many_replicas_as_there_are_brokers() -> None:
    offsets = new_topic("__consumer_offsets", config(1), image_of(2))
    assert (offsets.partitions, offsets.replication_factor) == (50, 2)
    assert ("cleanup.policy", "compact") in offsets.configs
    transactions = new_topic("__transaction_state", config(1), image_of(5))
    assert (transactions.partitions, transactions.replication_factor) == (50, 3)
    assert ("min.insync.replicas", "2") in transactions.configs


@pytest.mark.req("G1")
async def test_another_broker_reloads_what_was_written() -> None:
    async with World(3, listen=True) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        for _ in range(30):
            await coordinators.ask(1, 2)
        assert coordinators.commands == list(range(2, 61, 2))
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await coordinators.ask(2, "read")
        waiting = coordinators.of[1].ask("id", ("later", b"k"))
        world.elect(2)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await waiting
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await coordinators.ask(2, "read")
        await coordinators.loaded(2)
        assert await coordinators.ask(2, "read") == 60
        assert await coordinators.ask(2, "later") == "late"
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            await coordinators.ask(2, "refuse")
        await coordinators.stop()


@pytest.mark.req("G1")
async def test_nobody_is_told_of_what_is_not_committed() -> None:
    async with World(3, listen=True, replica_lag_time_max_ms="600000") as world:
        coordinators = Coordinators(world, timeout_ms=100)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        assert await coordinators.ask(1, 1) == 1
        await world.nodes[3].kill()
        write = asyncio.ensure_future(coordinators.ask(1, 1))
        await asyncio.sleep(0)
        read = asyncio.ensure_future(coordinators.ask(1, "read"))
        assert await coordinators.ask(1, "peek") == 2
        for waiting in (write, read):
            with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                await waiting
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await coordinators.ask(1, "read")
        assert coordinators.commands == [1]
        # It stands in the log, and counts once the replica that lacks it is not waited for.
        world.fence(3)
        world.set_isr(1, 2)
        await eventually(lambda: coordinators.commands == [1, 2])
        assert await coordinators.ask(1, "read") == 2
        await coordinators.stop()


async def test_requests_of_one_turn_are_handled_together() -> None:
    async with World(3, listen=True) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        shard = next(coordinators.of[1].shards())
        asked = [shard.ask(("gather", key)) for key in (b"a", b"", b"b")]
        # Whoever asks for something else finds them done.
        read = shard.ask(("read", b"b"))
        core = shard.core
        assert isinstance(core, Counter)
        assert core.gathered == [3]
        assert await asyncio.wait_for(asked[2], 5) == b"b"
        assert (await asked[0], await read) == (b"a", 1)
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            await asked[1]
        asked = [shard.ask(("gather", b"c"))]
        world.elect(2)
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await asked[0]
        await coordinators.stop()


@pytest.mark.req("G1")
async def test_what_is_due_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a broker would do at once whatever is due in all its partitions."""
    async with World(2, listen=True) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        due: list[Callable[[], None]] = []
        monkeypatch.setattr(coordinators.of[1].turns, "submit", due.append)
        shard = next(coordinators.of[1].shards())
        late = shard.ask(("later", b"k"))
        await eventually(lambda: bool(due))
        assert await coordinators.ask(1, 1) == 1
        assert not late.done()
        (turn,) = due
        turn()
        assert await late == "late"
        later = shard.ask(("later", b"k"))
        await eventually(lambda: len(due) == 2)
        world.elect(2)
        due[1]()
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await later
        await coordinators.stop()


@pytest.mark.req("G2")
async def test_requests_share_a_batch_while_another_is_on_its_way() -> None:
    async with World(2, listen=True) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        shard = next(coordinators.of[1].shards())
        core = shard.core
        assert isinstance(core, Counter)
        first = shard.ask(("gather", b"a"))
        await asyncio.sleep(0)
        assert core.gathered == [1]
        second = shard.ask(("gather", b"b"))
        await asyncio.sleep(0)
        third = shard.ask(("gather", b"c"))
        assert not first.done(), "its batch is on its way"
        answers = await asyncio.wait_for(asyncio.gather(first, second, third), 5)
        assert [*answers] == [b"a", b"b", b"c"]
        assert core.gathered == [1, 2]
        await coordinators.stop()


async def test_a_refused_write_changes_nothing() -> None:
    async with World(2, min_insync_replicas="2") as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        world.set_isr(1)
        with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
            await coordinators.ask(1, 7)
        assert await coordinators.ask(1, "read") == 0
        await coordinators.stop()


async def test_a_record_that_is_not_understood_is_left_out() -> None:
    async with World(1) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        with pytest.raises(ValueError, match="what is this"):
            await coordinators.ask(1, 1, b"?")
        await coordinators.ask(1, 5)
        world.elect(1)
        await coordinators.loaded(1)
        assert await coordinators.ask(1, "read") == 5
        await coordinators.stop()


async def test_a_topic_made_anew_begins_empty() -> None:
    async with World(1) as world:
        coordinators = Coordinators(world)
        world.create_topic(leader=1)
        await coordinators.loaded(1)
        await coordinators.ask(1, 5)
        world.controller.commit(RemoveTopicRecord(TOPIC_ID))
        with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
            await coordinators.ask(1, "read")
        await coordinators.stop()
