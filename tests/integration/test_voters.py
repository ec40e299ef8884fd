"""Voters that come and go while clients work: real processes, as an operator changes them."""

from __future__ import annotations

import asyncio
import io
import random
import shutil
import signal
from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftctl.cli.offline.storage import random_uuid_text
from raftctl.controller_channel import CLIENT_ID
from raftctl.localcluster.ports import free_ports
from raftctl.rpc import RpcClient
from raftctl.runtime.real import RealRuntime
from tests.integration.clusters import wait_until
from tests.integration.commands import raftctl
from tests.integration.kafka_clients import Confluent, Record
from tests.integration.quorum_nodes import QuorumNodes
from tests.kit.kv_client import KvClient
from tests.kit.kv_load import ALL, Recorder, use_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.commands import CommandResult
    from tests.integration.quorum_nodes import QuorumNode

TOPIC = "events"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[QuorumNodes]:
    made = QuorumNodes(tmp_path)
    try:
        yield made
    finally:
        made.kill_all()


def started(nodes: QuorumNodes, node_ids: list[int]) -> list[QuorumNode]:
    """Controllers formatted as the first voters of a quorum, and running."""
    controllers = nodes.add("controller", node_ids)
    identities = {one.node_id: random_uuid_text() for one in controllers}
    first = ",".join(
        f"{one.node_id}@{one.address}:{identities[one.node_id]}" for one in controllers
    )
    for one in controllers:
        nodes.configure(one, controllers)
        nodes.format(one, "--initial-controllers", first)
        assert nodes.directory_id(one) == identities[one.node_id]
        nodes.start(one)
    nodes.wait_for_voters(node_ids, *controllers)
    return controllers


def joined(nodes: QuorumNodes, node_id: int, known: list[QuorumNode]) -> QuorumNode:
    """A controller with an empty disk that runs and does not vote yet."""
    (node,) = nodes.add("controller", [node_id])
    nodes.configure(node, known)
    nodes.format(node, "--no-initial-controllers")
    nodes.start(node)
    return node


def added(nodes: QuorumNodes, at: QuorumNode, node: QuorumNode) -> None:
    done = nodes.quorum(at, "add-voter", "--config", str(node.properties))
    assert done.status == 0, done


def active_brokers(nodes: QuorumNodes, *at: QuorumNode) -> list[int]:
    status = nodes.status(*at)
    brokers = status["brokers"] if status else []
    return [broker["broker_id"] for broker in brokers if not broker["fenced"]]


def start_broker(nodes: QuorumNodes, node_id: int, known: list[QuorumNode]) -> QuorumNode:
    (broker,) = nodes.add("broker", [node_id])
    nodes.configure(broker, known)
    nodes.format(broker)
    nodes.start(broker)
    return broker


def records(number: int) -> list[Record]:
    return [Record(b"%d-%d" % (number, n)) for n in range(20)]


class Load:
    """Clients of keys and values, for as long as the block lasts."""

    def __init__(self, nodes: QuorumNodes, controllers: list[QuorumNode]) -> None:
        self.recorder = Recorder()
        self._runtime = RealRuntime(io.StringIO())
        self._clients = [
            RpcClient(
                self._runtime,
                "127.0.0.1",
                node.port,
                cluster_id=nodes.cluster_id,
                node_id=CLIENT_ID,
            )
            for node in controllers
        ]
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        processes = count()
        for number in range(3):
            client = KvClient(self._clients, self._runtime)
            using = use_keys(client, self.recorder, processes, self._stop, random.Random(number))
            self._tasks.append(asyncio.create_task(using))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.close()
        self._runtime.close()

    async def goes_on(self) -> None:
        """Returns when more has been read, written and compared."""
        start = len(self.recorder.history)
        async with asyncio.timeout(30):
            while True:
                if {op.f for op in self.recorder.succeeded(start)} == set(ALL):
                    return
                await asyncio.sleep(0.05)


@pytest.mark.req("Q7", "Q4", "A1")
@pytest.mark.timeout(300)
async def test_three_voters_become_five_and_the_first_three_leave_under_load(
    nodes: QuorumNodes,
) -> None:
    first = started(nodes, [101, 102, 103])
    broker = start_broker(nodes, 1, first)
    wait_until(lambda: active_brokers(nodes, *first) == [1], "the broker is active")
    AdminClient({"bootstrap.servers": broker.address}).create_topics([NewTopic(TOPIC, 1)])
    later = [joined(nodes, node_id, first) for node_id in (104, 105)]
    kafka = Confluent()
    kafka.write(broker.address, TOPIC, records(0))
    async with Load(nodes, [*first, *later]) as load:
        for node in later:
            await asyncio.to_thread(added, nodes, first[0], node)
            await load.goes_on()
        nodes.wait_for_voters([101, 102, 103, 104, 105], *first, *later)
        for number, node in enumerate(first, start=1):
            done = await asyncio.to_thread(nodes.remove, later[0], node)
            assert done.status == 0, done
            await asyncio.to_thread(nodes.stop, node)
            await load.goes_on()
            await asyncio.to_thread(kafka.write, broker.address, TOPIC, records(number))
    nodes.wait_for_voters([104, 105], *later)
    load.recorder.assert_linearizable()
    third = joined(nodes, 106, later)
    added(nodes, later[1], third)
    status = nodes.wait_for_voters([104, 105, 106], *later, third)
    assert {one["port"] for one in status["voter_set"]} == {n.port for n in (*later, third)}

    # Who voted first is gone: a broker that was away knows the others by its log, a new one asks.
    nodes.stop(broker)
    nodes.start(broker)
    start_broker(nodes, 2, [first[0], third])
    wait_until(lambda: active_brokers(nodes, *later, third) == [1, 2], "both brokers are active")
    (partition,) = kafka.read(broker.address, TOPIC)
    assert partition.records == [one for number in range(4) for one in records(number)]


def configured(nodes: QuorumNodes, node_ids: list[int]) -> tuple[list[QuorumNode], str]:
    """Running controllers whose files list the voters; and that list."""
    controllers = nodes.add("controller", node_ids)
    voters = ",".join(f"{one.node_id}@{one.address}" for one in controllers)
    for one in controllers:
        nodes.configure(one, [], controller_quorum_voters=voters)
        nodes.format(one)
        nodes.start(one)
    nodes.wait_for_voters(node_ids, *controllers)
    return controllers, voters


@pytest.mark.req("Q7", "A1")
@pytest.mark.timeout(300)
def test_a_static_quorum_becomes_dynamic_as_the_guide_has_it(nodes: QuorumNodes) -> None:
    """docs/how-to/change-voters.md, "From configured voters", step by step."""
    first, voters = configured(nodes, [1, 2, 3])
    listed, asking = nodes.add("broker", [11, 12])
    nodes.configure(listed, [], controller_quorum_voters=voters)
    nodes.configure(asking, first[:1])
    for broker in (listed, asking):
        nodes.format(broker)
        nodes.start(broker)
    wait_until(lambda: active_brokers(nodes, *first) == [11, 12], "both brokers follow")
    status = nodes.status(*first)
    assert status is not None
    assert {voter["directory_id"] for voter in status["voter_set"]} == {None}, "still configured"

    fourth = joined(nodes, 4, first)
    added(nodes, first[1], fourth)
    status = nodes.wait_for_voters([1, 2, 3, 4], *first, fourth)
    identities = {voter["node_id"]: voter["directory_id"] for voter in status["voter_set"]}
    assert identities == {node.node_id: nodes.directory_id(node) for node in (*first, fourth)}

    everyone = [*first, fourth]
    for node in (*first, listed):
        nodes.stop(node)
        nodes.configure(node, everyone)
        nodes.start(node)
        nodes.wait_for_voters([1, 2, 3, 4], *everyone)
    for node in first[:2]:
        done = nodes.remove(fourth, node)
        assert done.status == 0, done
        nodes.stop(node)
    nodes.wait_for_voters([3, 4], first[2], fourth)
    third, left = (joined(nodes, 5, [fourth]), first[2])
    added(nodes, fourth, third)
    nodes.stop(asking)
    nodes.configure(asking, [fourth])
    nodes.start(asking)
    wait_until(
        lambda: active_brokers(nodes, left, fourth, third) == [11, 12], "both brokers follow again"
    )


@pytest.mark.req("Q7", "A1")
def test_a_replaced_disk_is_another_voter(nodes: QuorumNodes) -> None:
    controllers = started(nodes, [1, 2, 3])
    wiped, *others = controllers
    old_id = nodes.directory_id(wiped)
    nodes.stop(wiped, number=signal.SIGKILL)
    shutil.rmtree(wiped.directory)
    nodes.format(wiped, "--no-initial-controllers")
    nodes.start(wiped)
    refused = nodes.quorum(others[0], "add-voter", "--config", str(wiped.properties))
    assert refused.status == 1
    assert "remove the voter with the old directory" in refused.stderr
    done = nodes.remove(others[0], wiped, old_id)
    assert done.status == 0, done
    added(nodes, others[0], wiped)
    status = nodes.wait_for_voters([1, 2, 3], *controllers)
    assert status["voter_set"][0]["directory_id"] == nodes.directory_id(wiped) != old_id
    again = nodes.remove(others[0], wiped, old_id)
    assert again.status == 1
    assert f"no voter 1 with directory id {old_id}" in again.stderr


@pytest.mark.req("Q8", "A1")
@pytest.mark.timeout(240)
def test_a_quorum_is_rebuilt_from_one_of_three_disks(nodes: QuorumNodes) -> None:
    controllers = started(nodes, [1, 2, 3])
    values = {f"key-{n}": f"value-{n}" for n in range(2)}
    for key, value in values.items():
        put = kv(controllers, "put", key, value)
        assert put.status == 0, put
    wait_until(lambda: no_lag(nodes, controllers), "every disk has it all")
    survivor = next(node for node in controllers if not is_leader(nodes, node, controllers))
    recover = ("quorum", "force-recover", "--dir", str(survivor.directory))
    refused = raftctl(*recover, "--i-understand-data-loss")
    assert refused.status == 2, "a node holds the directory"
    assert "in use" in refused.stderr
    nodes.stop(*controllers, number=signal.SIGKILL)
    for lost in controllers:
        if lost is not survivor:
            shutil.rmtree(lost.directory)
    refused = raftctl(*recover)
    assert refused.status == 2
    assert "--i-understand-data-loss" in refused.stderr

    told = raftctl(*recover, "--i-understand-data-loss", "--output", "json").document
    assert told["log_end_offset"] > len(values)
    assert told["epoch"] > told["last_epoch"] > 0
    nodes.start(survivor)
    nodes.wait_for_voters([survivor.node_id], survivor)
    for number in (4, 5):
        added(nodes, survivor, joined(nodes, number, [survivor]))
    everyone = [nodes.nodes[number] for number in (survivor.node_id, 4, 5)]
    nodes.wait_for_voters([survivor.node_id, 4, 5], *everyone)
    done = nodes.remove(survivor, survivor)
    assert done.status == 0, done
    nodes.stop(survivor)
    found = {key: kv(everyone, "get", key).stdout.strip() for key in values}
    assert found == values, "and the fresh disks have it too"


def kv(controllers: list[QuorumNode], command: str, *arguments: str) -> CommandResult:
    addresses = ",".join(node.address for node in controllers)
    return raftctl("kv", command, "--controllers", addresses, *arguments)


def is_leader(nodes: QuorumNodes, node: QuorumNode, among: list[QuorumNode]) -> bool:
    status = nodes.status(*among)
    return status is not None and status["leader_id"] == node.node_id


def no_lag(nodes: QuorumNodes, controllers: list[QuorumNode]) -> bool:
    status = nodes.status(*controllers)
    ends = [voter["log_end_offset"] for voter in status["voters"]] if status else [-1]
    return status is not None and min(ends) >= status["high_watermark"] - 1


@pytest.mark.req("Q7")
def test_a_voter_that_moved_tells_where_it_is(nodes: QuorumNodes) -> None:
    controllers = started(nodes, [1, 2, 3])
    for moved in controllers:
        nodes.stop(moved)
        (moved.port,) = free_ports(1)
        nodes.configure(moved, controllers)
        nodes.start(moved)

        def is_known(moved: QuorumNode = moved) -> bool:
            status = nodes.status(*controllers)
            voters = status["voter_set"] if status else []
            return (moved.node_id, moved.port) in [(v["node_id"], v["port"]) for v in voters]

        wait_until(is_known, f"the new address of {moved.node_id}")


@pytest.mark.req("Q4", "A1")
def test_the_operator_chooses_the_leader(nodes: QuorumNodes) -> None:
    controllers = started(nodes, [1, 2, 3])
    status = nodes.status(*controllers)
    assert status is not None
    target = next(node for node in controllers if node.node_id != status["leader_id"])
    done = nodes.quorum(controllers[0], "transfer", "--to", str(target.node_id))
    assert done.status == 0, done
    wait_until(
        lambda: (nodes.status(*controllers) or {}).get("leader_id") == target.node_id,
        f"{target.node_id} leads",
    )
    refused = nodes.quorum(controllers[0], "transfer", "--to", "9")
    assert refused.status == 1
    assert "node 9 does not vote" in refused.stderr
