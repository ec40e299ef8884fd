"""Checks that any broker plug-in can be put to: does it keep the contract (rows P1, P2)?

Each check plays the node: it makes the broker, starts it, publishes images and stops it as
`raftctl.node` would, and raises ContractViolation with what the contract asks for. The broker's
files are in memory and its controller cannot be reached. Nothing here needs a test framework:

    assert asyncio.run(violations(MyBroker)) == []
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftctl.plugins._contract import Broker, BrokerContext
from raftctl.runtime import MemoryFiles, MemoryRuntime
from raftctl.runtime.real import RealRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from raftctl.metadata.records import Endpoint, Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse

MakeBroker = Callable[[BrokerContext], Broker]
Check = Callable[[MakeBroker], Awaitable[None]]

STEP_TIMEOUT_S = 30.0
"""Time that a check may take; longer is a violation."""
SILENCE_S = 0.1
"""Time that a client listens for an answer that must not come."""
FILES_BYTES_MAX = 256 << 20
DIRECTORY = "/tmp/raftctl-contract"
"""Begin of `log.dirs`, where a broker that goes past its runtime could write."""
TOPIC_ID = UUID(int=0x7091C)
API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""The first that a Kafka client sends: version 0, without a client id."""


class ContractViolation(AssertionError):
    """Violation of the contract by a broker; one sentence."""


async def violations(plugin: MakeBroker) -> list[str]:
    """Run all checks of a plug-in; return a sentence for each that fails, with its name."""
    found = []
    for check in CHECKS:
        [error] = await asyncio.gather(run_check(check, plugin), return_exceptions=True)
        if isinstance(error, Exception):
            found.append(f"{check_name(check)}: {error or type(error).__name__}")
        elif error is not None:
            raise error
    return found


async def run_check(check: Check, plugin: MakeBroker) -> None:
    """Run one of `CHECKS`; raise ContractViolation, or the error of the broker."""
    try:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            await check(plugin)
    except TimeoutError as error:
        text = f"it takes longer than {STEP_TIMEOUT_S:g} s: end or give up in time"
        raise ContractViolation(text) from error


def check_name(check: Check) -> str:
    """Return the name of a check, for reports and test ids."""
    return getattr(check, "__name__", repr(check))


def expect(is_so: object, sentence: str) -> None:
    """Raise ContractViolation unless the condition holds."""
    if not is_so:
        raise ContractViolation(sentence)


# --- the node, played ---------------------------------------------------------------------------


class _Unreachable:
    """A controller that never answers; see `raftctl.plugins.ControllerClient`."""

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """Wait as long as it may, as the node's does."""
        await asyncio.sleep(timeout_ms / 1000)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller answers")


class _Node:
    """One node without its controller. Incarnations of its broker follow each other."""

    def __init__(self, plugin: MakeBroker, node_id: int, port: int, runtime: RealRuntime) -> None:
        self.files = MemoryFiles(
            FILES_BYTES_MAX, "the broker writes more than a check needs", runtime.wall_ms
        )
        self.directory = f"{DIRECTORY}-{runtime.uuid()}"
        self.failures: list[BaseException] = []
        self._plugin = plugin
        self._runtime = MemoryRuntime(runtime, self.files)
        self._real_files = runtime.files
        self._image = EMPTY_IMAGE
        self._endpoints: tuple[Endpoint, ...] = ()
        self._tasks = asyncio.all_tasks()
        self._config = make_config(
            {
                "process.roles": "broker",
                "node.id": str(node_id),
                "controller.quorum.voters": "100@127.0.0.1:9",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": self.directory,
            }
        )

    def make(self) -> Broker:
        """A broker that has not started."""
        node_id = self._config.node_id
        return self._plugin(
            BrokerContext(
                config=self._config,
                runtime=self._runtime,
                cluster_id="contract",
                controller=_Unreachable(),
                broker_epoch=lambda: self._epoch_of(node_id),
                active_controller_id=lambda: -1,
                fail=self.failures.append,
                directory_ids={self.directory: UUID(int=node_id + 1)},
            )
        )

    async def start(self) -> Broker:
        """A broker that has started and has no image yet."""
        broker = self.make()
        self._image = EMPTY_IMAGE
        self._endpoints = tuple(await broker.start())
        return broker

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Registration for which the newest broker asked."""
        return self._endpoints

    def register(self, broker: Broker) -> None:
        """Publish the first image: the broker is in it, and not fenced."""
        node_id = self._config.node_id
        incarnation = UUID(int=self._image.offset + 2)
        self.commit(
            broker,
            RegisterBrokerRecord(node_id, incarnation, self._endpoints, None, fenced=False),
        )

    def create_topic(self, broker: Broker) -> None:
        """Publish a topic of two partitions that the broker leads."""
        only = (self._config.node_id,)
        partitions = [
            PartitionRecord(TOPIC_ID, number, only, only, only[0], 0, 0) for number in range(2)
        ]
        self.commit(broker, TopicRecord("contract", TOPIC_ID), *partitions)

    def commit(self, broker: Broker, *records: Record) -> None:
        """Publish the image after these records, with the delta that leads to it."""
        delta = MetadataDelta(self._image)
        delta.replay_all(records, self._image.offset + 1)
        self._image = delta.apply(self._image.offset + len(records), 1, 0)
        answer: object = _publish(broker)(delta, self._image)
        expect(answer is None, "publish is no coroutine and returns None: it starts work at most")

    async def stop(self, broker: Broker) -> None:
        """Stop the broker and check what it left."""
        await broker.stop()
        await self.expect_nothing_left()

    async def expect_nothing_left(self) -> None:
        """Check a stopped broker: no task, no listener, no failure, nothing past the runtime.

        A task that is left would run on in the next incarnation of the node.
        """
        left = asyncio.all_tasks() - self._tasks - {asyncio.current_task()}
        if left:
            # What was cancelled may need a turn of the loop to end.
            _, left = await asyncio.wait(left, timeout=1)
        names = ", ".join(sorted(repr(task.get_coro()) for task in left if task))
        expect(not left, f"stop ends every task that the broker began; there are {names}")
        for endpoint in self._endpoints:
            async with _connection(endpoint) as opened:
                expect(opened is None, f"stop closes the listeners; {endpoint.port} accepts")
        self.expect_in_order()

    def expect_in_order(self) -> None:
        """Check a broker at any time: nothing failed, nothing went past the runtime."""
        expect(not self.failures, f"nothing fails here, but `fail` was given {self.failures[:1]!r}")
        beside = self._real_files.exists(self.directory)
        expect(not beside, "files are touched through context.runtime.files only")

    def _epoch_of(self, node_id: int) -> int:
        registered = self._image.brokers.get(node_id)
        return -1 if registered is None else registered.broker_epoch


def _publish(broker: Broker) -> Callable[[MetadataDelta, object], object]:
    """Return the method, whatever it may return: a plug-in need not be type-checked."""
    method: Callable[..., object] = broker.publish
    return method


@contextlib.asynccontextmanager
async def _nodes(plugin: MakeBroker, count: int = 1) -> AsyncIterator[Sequence[_Node]]:
    runtime = RealRuntime(io.StringIO())
    try:
        yield [
            _Node(plugin, node_id, await _free_port(), runtime) for node_id in range(1, count + 1)
        ]
    finally:
        runtime.close()


async def _free_port() -> int:
    probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port: int = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    return port


@contextlib.asynccontextmanager
async def _connection(
    endpoint: Endpoint,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
    """Return a client's connection; None if it is refused."""
    try:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except OSError:
        yield None
        return
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# --- the checks ---------------------------------------------------------------------------------


async def does_nothing_before_start(plugin: MakeBroker) -> None:
    """To make a broker has no effect: the node may still refuse to start."""
    async with _nodes(plugin) as [node]:
        node.make()
        expect(node.files.used == 0, "a broker that has not started writes no files")
        await node.expect_nothing_left()


async def says_where_it_is_reached(plugin: MakeBroker) -> None:
    """`start` returns what to register."""
    async with _nodes(plugin) as [node]:
        broker = await node.start()
        endpoints = node.endpoints
        expect(endpoints, "start returns at least one endpoint")
        names = [endpoint.listener for endpoint in endpoints]
        expect(len({*names}) == len(names), f"listeners have names of their own, not {names}")
        for one in endpoints:
            expect(one.host, f"{one.listener} has a host")
            expect(
                0 < one.port < 1 << 16, f"{one.listener} has a port that is bound, not {one.port}"
            )
        await node.stop(broker)


async def answers_nobody_before_the_first_image(plugin: MakeBroker) -> None:
    """Until the first `publish` clients are refused or kept waiting."""
    async with _nodes(plugin) as [node]:
        broker = await node.start()
        for endpoint in node.endpoints:
            async with _connection(endpoint) as opened:
                if opened is not None:
                    await _expect_silence(*opened)
        await node.stop(broker)


async def _expect_silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(API_VERSIONS_REQUEST)
    with contextlib.suppress(TimeoutError, OSError):
        answer = await asyncio.wait_for(reader.read(1), SILENCE_S)
        expect(not answer, "before the first publish clients are refused or kept waiting")


async def follows_the_log(plugin: MakeBroker) -> None:
    """Check that it takes what the log brings: topics, new leaders, other brokers, deletions."""
    async with _nodes(plugin) as [node]:
        broker = await node.start()
        node.register(broker)
        node.create_topic(broker)
        await asyncio.sleep(0)
        node.commit(broker, PartitionChangeRecord(TOPIC_ID, 0, leader=1))
        node.commit(broker, PartitionChangeRecord(TOPIC_ID, 1, leader=-1))
        node.commit(
            broker, RegisterBrokerRecord(2, UUID(int=99), node.endpoints, "rack", fenced=True)
        )
        node.commit(broker)
        await asyncio.sleep(0)
        node.commit(broker, RemoveTopicRecord(TOPIC_ID))
        await asyncio.sleep(0)
        node.expect_in_order()
        await node.stop(broker)


async def stops_before_the_first_image(plugin: MakeBroker) -> None:
    """Check that a node may end before its broker is registered."""
    async with _nodes(plugin) as [node]:
        await node.stop(await node.start())


async def stops_without_having_started(plugin: MakeBroker) -> None:
    """Check that a node that is stopped at once stops a broker whose `start` was never called."""
    async with _nodes(plugin) as [node]:
        await node.stop(node.make())


async def stops_in_the_middle_of_its_start(plugin: MakeBroker) -> None:
    """Check that a node that is stopped early cancels `start` and still stops the broker."""
    async with _nodes(plugin) as [node]:
        broker = node.make()
        starting = asyncio.ensure_future(broker.start())
        await asyncio.sleep(0)
        starting.cancel()
        [_] = await asyncio.gather(starting, return_exceptions=True)
        await node.stop(broker)


async def starts_again(plugin: MakeBroker) -> None:
    """Check that the next incarnation finds addresses free and takes up what the last one left."""
    async with _nodes(plugin) as [node]:
        for _ in range(2):
            broker = await node.start()
            node.register(broker)
            node.create_topic(broker)
            await asyncio.sleep(0)
            await node.stop(broker)


async def lives_beside_another(plugin: MakeBroker) -> None:
    """Several nodes share one process in the simulation, so nothing is process-global."""
    async with _nodes(plugin, 2) as nodes:
        brokers = [await node.start() for node in nodes]
        addresses = {(one.host, one.port) for node in nodes for one in node.endpoints}
        count = sum(len(node.endpoints) for node in nodes)
        expect(len(addresses) == count, "each broker has the addresses of its own configuration")
        for node, broker in zip(nodes, brokers, strict=True):
            node.register(broker)
            node.create_topic(broker)
        await asyncio.sleep(0)
        for broker in brokers:
            await broker.stop()
        for node in nodes:
            await node.expect_nothing_left()


CHECKS: tuple[Check, ...] = (
    does_nothing_before_start,
    says_where_it_is_reached,
    answers_nobody_before_the_first_image,
    follows_the_log,
    stops_before_the_first_image,
    stops_without_having_started,
    stops_in_the_middle_of_its_start,
    starts_again,
    lives_beside_another,
)
"""All checks by themselves: async functions of the plug-in's class."""
