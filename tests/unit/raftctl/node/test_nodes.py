"""Nodes, production code from the entry on, in the deterministic world: short stories."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jepsen.simulator.cluster import BROKER_PORT, CONTROLLER_PORT, SimCluster
from jepsen.simulator.world import World
from raftctl.admin import METADATA_PATH
from raftctl.cli.quorum import replication_rows
from raftctl.controller import QuorumController
from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.metadata.codec import RECORD_CODEC
from raftctl.metadata.requests.security import AlterScramRequest, ScramUpsertion
from raftctl.node import _node as node_module
from raftctl.node._registrations import CONTROLLED_SHUTDOWN_TIMEOUT_S
from raftctl.rpc import RpcError, RpcRefused
from raftctl.storage import METADATA_LOG_NAME
from tests.unit.raftctl.node.nodes import (
    CALL_TIMEOUT_MS,
    Operator,
    PluginBroker,
    broker_ids,
    registration,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.plugins import BrokerContext


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=11, tolerated=(OSError, InvariantViolation)) as made:
        yield made


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[PluginBroker]:
    """The brokers that were made."""
    made: list[PluginBroker] = []

    def make(context: BrokerContext) -> PluginBroker:
        made.append(PluginBroker(context))
        return made[-1]

    monkeypatch.setattr(node_module, "load_broker", lambda name: make)
    return made


@pytest.mark.req("C12")
def test_the_metadata_that_anyone_may_read_has_no_credentials(world: World) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    salt, password = b"a-salt-of-a-user", b"p" * 32

    async def story(operator: Operator) -> None:
        name = await operator.leader()
        await operator.ask(
            AlterScramRequest((), (ScramUpsertion("alice", 1, 4_096, salt, password),))
        )
        told = await operator.read(name, METADATA_PATH)
        loader = cluster.nodes[name].loader
        assert loader is not None
        kept = loader.image.scram["alice", 1]
        assert kept.salt == salt
        (shown,) = [one for one in RECORD_CODEC.unpack_all(told) if isinstance(one, type(kept))]
        assert shown == replace(kept, salt=b"", stored_key=b"", server_key=b"")
        for secret in (kept.salt, kept.stored_key, kept.server_key):
            assert secret not in told

    tell(world, cluster, story)


@pytest.mark.req("Q1", "C1")
def test_standbys_are_hot(world: World) -> None:
    """All know what was answered, and the next leader goes on from there."""
    cluster = SimCluster(world, brokers=0)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        epochs = [await operator.register(broker_id) for broker_id in (1, 2, 3)]
        assert epochs == sorted(set(epochs))
        await operator.until(_all_know([1, 2, 3]))
        old = await operator.leader()
        epoch = (await operator.statuses())[old]["epoch"]
        world.kill(old)
        new = await operator.leader(after_epoch=epoch)
        assert broker_ids((await operator.statuses())[new]) == [1, 2, 3]
        assert await operator.register(4) > epochs[-1]
        cluster.start(old)
        await operator.until(lambda found: len(found) == 3 and _all_know([1, 2, 3, 4])(found))

    tell(world, cluster, story)


def _all_know(ids: list[int]) -> Any:
    return lambda statuses: all(broker_ids(status) == ids for status in statuses.values())


@pytest.mark.req("Q5")
def test_observers_follow_and_their_lag_is_seen(world: World, plugins: list[PluginBroker]) -> None:
    cluster = SimCluster(world, brokers=1)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        statuses = await operator.until(
            lambda found: any(_active(status, 1) for status in found.values())
        )
        [plugin] = plugins
        await operator.register(7)
        end = max(status["metadata_offset"] for status in (await operator.statuses()).values())
        await asyncio.sleep(1)
        offsets = [image.offset for image in plugin.images]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] >= end
        assert sorted(plugin.images[-1].brokers) == [1, 7]
        assert plugin.context.active_controller_id() in (101, 102, 103)

        leader = await operator.leader()
        [observer] = (await operator.statuses())[leader]["observers"]
        assert observer["node_id"] == 1
        assert observer["lag"] <= 1
        assert observer["last_caught_up_age_ms"] < 1_000
        world.pause("broker-1")
        await asyncio.sleep(3)
        status = (await operator.statuses())[leader]
        [observer] = status["observers"]
        assert observer["lag"] > 1
        assert observer["last_caught_up_age_ms"] > 2_000
        *_, shown = replication_rows(status, now_ms=10_000)
        assert (shown["NodeId"], shown["Status"]) == (1, "Observer")
        assert shown["Lag"] == observer["lag"]
        assert shown["LastCaughtUpTimestamp"] == 10_000 - observer["last_caught_up_age_ms"]
        statuses = await operator.statuses()
        assert not _active(statuses[leader], 1)
        world.resume("broker-1")
        await operator.until(lambda found: _active(found[leader], 1))

    tell(world, cluster, story)


def _active(status: dict[str, Any], broker_id: int) -> bool:
    known = {broker["broker_id"]: broker for broker in status["brokers"]}
    return broker_id in known and not known[broker_id]["fenced"]


@pytest.mark.req("C1")
def test_a_leader_that_is_cut_off_answers_nothing_and_takes_it_back(world: World) -> None:
    cluster = SimCluster(world, brokers=0)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        old = await operator.leader()
        epoch = (await operator.statuses())[old]["epoch"]
        for other in cluster.controller_names:
            if other != old:
                world.partition(old, other)
        cut_off = operator.voters[int(old.partition("-")[2])]
        with pytest.raises(RpcRefused) as refused:
            await cut_off.call(registration(cluster, 50), CALL_TIMEOUT_MS)
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        await operator.leader(after_epoch=epoch, other_than=old)
        await operator.register(51)
        assert broker_ids((await operator.statuses())[old]) == []
        world.heal()
        await operator.until(_all_know([51]))

    tell(world, cluster, story)


@pytest.mark.req("Q3", "Q12")
def test_a_disk_that_cannot_sync_stops_the_node_before_it_answers(world: World) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    disk = world.node("controller-101").disk
    healthy = disk.fault

    def broken(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the disk is broken", path)

    async def story(operator: Operator) -> None:
        await operator.register(1)
        process = world.node("controller-101").process
        assert process is not None
        disk.fault = broken
        with pytest.raises(RpcError):
            await operator.voters[101].call(registration(cluster, 2), CALL_TIMEOUT_MS)
        with pytest.raises(OSError, match="the disk is broken"):
            await process.done
        assert "node_failed" in "".join(world.trace.recent)
        disk.fault = healthy
        disk.crash()
        cluster.start("controller-101")
        await operator.leader()
        assert 1 in broker_ids((await operator.statuses())["controller-101"])

    tell(world, cluster, story)


@pytest.mark.req("Q1", "Q3")
@pytest.mark.parametrize("controllers", [1, 3, 5])
def test_what_was_answered_survives_a_power_cut(world: World, controllers: int) -> None:
    cluster = SimCluster(world, controllers=controllers, brokers=0)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        for round_number in range(3):
            await operator.register(round_number)
            for name in cluster.controller_names:
                world.power_off(name)
            await asyncio.sleep(0.1)
            for name in cluster.controller_names:
                cluster.start(name)
            leader = await operator.leader()
            known = broker_ids((await operator.statuses())[leader])
            assert known == list(range(round_number + 1))

    tell(world, cluster, story)


@pytest.mark.req("Q12")
def test_a_damaged_note_of_what_was_durable_is_named_and_made_anew(world: World) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    note = f"/data/{METADATA_LOG_NAME}/recovery-point"
    told: list[str] = []
    world.trace.sink = lambda line: told.append(line) if "recovery_point_damaged" in line else None

    async def story(operator: Operator) -> None:
        await operator.register(1)
        for damaged in (True, False):
            world.kill("controller-101")
            if damaged:
                world.node("controller-101").disk.flip(note, 7)
            cluster.start("controller-101")
            leader = await operator.leader()
            assert broker_ids((await operator.statuses())[leader]) == [1]

    tell(world, cluster, story)
    assert len(told) == 1
    assert note in told[0]


@pytest.mark.req("Q6")
def test_by_default_a_snapshot_is_taken_after_an_hour(world: World) -> None:
    seldom = {"metadata.max.idle.interval.ms": "60000"}
    cluster = SimCluster(world, controllers=1, brokers=0, overrides=seldom)
    cluster.start_all()

    def snapshots() -> list[str]:
        names = world.node("controller-101").disk.names(f"/data/{METADATA_LOG_NAME}")
        # But for the one that formatting makes, which holds nothing but the first voters.
        return [one for one in names if one.endswith(".checkpoint") and int(one[:20]) > 0]

    async def story(operator: Operator) -> None:
        await operator.leader()
        await operator.register(1)
        await asyncio.sleep(3_580)
        assert snapshots() == []
        await asyncio.sleep(90)
        [taken] = snapshots()
        end_offset = int(taken[:20])
        assert end_offset > 50, "a record a minute"
        world.power_off("controller-101")
        cluster.start("controller-101")
        leader = await operator.leader()
        assert (await operator.statuses())[leader]["metadata_offset"] >= end_offset
        assert broker_ids((await operator.statuses())[leader]) == [1]

    tell(world, cluster, story)


def test_a_broken_invariant_ends_the_node_with_its_story(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimCluster(world, controllers=1, brokers=0)
    cluster.start_all()
    bug = InvariantViolation("partitions have leaders")

    def broken(*_: object) -> None:
        raise bug

    async def story(operator: Operator) -> None:
        await operator.leader()
        process = world.node("controller-101").process
        assert process is not None
        monkeypatch.setattr(QuorumController, "handle", broken)
        with pytest.raises(RpcError):
            await operator.voters[101].call(registration(cluster, 2), CALL_TIMEOUT_MS)
        with pytest.raises(InvariantViolation):
            await process.done

    tell(world, cluster, story)
    trace = "".join(world.trace.recent)
    assert "node_failed" in trace
    assert "partitions have leaders" in trace
    story_lines = [line for line in trace.splitlines() if "before_failure" in line]
    assert any("HighWatermarkAdvanced(high_watermark=" in line for line in story_lines)


@pytest.mark.req("O3")
def test_a_controller_says_how_it_is(world: World) -> None:
    cluster = SimCluster(world, brokers=0)
    cluster.start("controller-101")

    async def story(operator: Operator) -> None:
        await asyncio.sleep(1)
        assert await operator.get("controller-101", "/healthz") == (200, {"alive": True})
        status_code, answer = await operator.get("controller-101", "/readyz")
        assert (status_code, answer["ready"]) == (503, False)
        assert [one["name"] for one in answer["problems"]] == ["no_leader", "behind"]
        cluster.start("controller-102")
        await operator.leader()
        await asyncio.sleep(1)
        for name in ("controller-101", "controller-102"):
            assert await operator.get(name, "/readyz") == (200, {"ready": True, "problems": []})
            assert await operator.get(name, "/livez") == (200, {"alive": True})
        statuses = await operator.statuses()
        leader = await operator.leader()
        status = statuses[leader]
        assert (status["node_id"], status["cluster_id"]) == (
            status["leader_id"],
            cluster.cluster_id,
        )
        assert [voter["node_id"] for voter in status["voters"]] == [101, 102, 103]
        lags = {voter["node_id"]: voter["lag"] for voter in status["voters"]}
        assert lags[103] == status["log_end_offset"] + 1  # never seen
        assert max(lags[101], lags[102]) <= 1
        [other] = [one for name, one in statuses.items() if name != leader]
        assert (other["role"], other["voters"]) == ("follower", [])
        assert other["leader_id"] == status["node_id"]

    tell(world, cluster, story)


@pytest.mark.req("N4")
def test_a_sum_over_controllers_counts_the_cluster_once(world: World) -> None:
    cluster = SimCluster(world, controllers=3, brokers=1)
    cluster.start_all()

    async def story(operator: Operator) -> None:
        await operator.leader()
        await asyncio.sleep(20)
        total: defaultdict[str, float] = defaultdict(float)
        for controller in (101, 102, 103):
            text = (await operator.read(f"controller-{controller}", "/metrics")).decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    total[sample.name] += sample.value
        prefix = "kafka_controller_kafkacontroller"
        assert total[f"{prefix}_activecontrollercount"] == 1
        assert total[f"{prefix}_activebrokercount"] == 1
        assert total[f"{prefix}_offlinepartitionscount"] == 0
        assert total["kafka_server_raftmetrics_number_of_voters"] == 9
        assert total["kafka_server_raftmetrics_append_records_rate"] > 0
        assert total["kafka_server_raftmetrics_fetch_records_rate"] > 0

    tell(world, cluster, story)


@pytest.mark.req("N4", "O3")
def test_a_broker_is_ready_once_it_is_not_fenced_and_serves_its_metrics(world: World) -> None:
    overrides = {"http.listener": f"HTTP://broker-1:{CONTROLLER_PORT}"}
    cluster = SimCluster(world, controllers=1, brokers=1, broker_overrides=overrides)
    cluster.start("broker-1")

    async def story(operator: Operator) -> None:
        await asyncio.sleep(5)
        assert await operator.get("broker-1", "/livez") == (200, {"alive": True})
        status, answer = await operator.get("broker-1", "/readyz")
        assert (status, answer["ready"]) == (503, False)
        assert {one["name"] for one in answer["problems"]} >= {"no_leader", "not_registered"}
        cluster.start("controller-101")
        await asyncio.sleep(15)
        assert await operator.get("broker-1", "/readyz") == (200, {"ready": True, "problems": []})
        reader, writer = await asyncio.open_connection("broker-1", BROKER_PORT)
        writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # ApiVersions
        size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
        assert correlation_id == 1
        await reader.readexactly(size - 4)
        writer.close()
        text = (await operator.read("broker-1", "/metrics")).decode()
        series = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert series["kafka_server_raftmetrics_current_state", "observer"] == 1
        assert series["kafka_network_requestmetrics_totaltimems_count", "ApiVersions"] == 1

    tell(world, cluster, story)


@pytest.mark.req("C2")
@pytest.mark.parametrize("signals", [1, 2, 3])
def test_a_broker_that_is_asked_again_to_end_waits_no_longer_but_leaves_nothing_open(
    world: World, signals: int
) -> None:
    """No controller is there to let it go. What a process leaves open is looked for as it exits."""
    cluster = SimCluster(world, controllers=1, brokers=1)
    cluster.start_all()
    world.run(5)
    broker = cluster.nodes["broker-1"].loader
    assert broker is not None
    assert broker.image.brokers[1].active
    world.kill(cluster.controller_names[0])
    world.terminate("broker-1")
    world.run(0.5)
    for _ in range(signals - 1):
        world.terminate("broker-1")
    world.run(0.5)
    assert cluster.is_up("broker-1") is (signals == 1)
    world.run(CONTROLLED_SHUTDOWN_TIMEOUT_S)
    assert not cluster.is_up("broker-1")
