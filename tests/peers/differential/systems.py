"""One node of Apache Kafka and one of ours: controller and broker, with the same properties."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from broker.protocol.codec import decode_response
from broker.protocol.versions import ApiKey
from raftctl.cli.offline.storage import random_uuid_text
from raftctl.config import write_properties
from raftctl.localcluster.layout import HOST
from raftctl.localcluster.ports import free_ports
from raftctl.localcluster.processes import ProcessRef, start_node, wait_gone
from tests.bench.kafka.clusters import QUICK_JAVA, start_kafka
from tests.integration.commands import raftctl
from tests.peers.differential.language import filled
from tests.peers.differential.playing import Connection, System

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 90.0
POLL_S = 0.1
STOP_S = 20.0
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Records of the table are old.
    "log.retention.ms": "-1",
    # A busy machine shall change nothing.
    "broker.session.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "30000",
    "controller.quorum.election.timeout.ms": "5000",
}
KAFKA_ONLY = {
    # We give partitions to members as soon as these change.
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the two systems are started with, besides `PROPERTIES`."""

    listeners: Mapping[str, str] = field(default_factory=lambda: {"PLAINTEXT": "PLAINTEXT"})
    """Name to protocol; the first is for requests between brokers, and takes any client."""
    both: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=lambda: KAFKA_ONLY)


@dataclass(frozen=True, slots=True)
class _Node:
    properties: Path
    ports: Mapping[str, int]
    """By the names of the listeners."""


@contextlib.contextmanager
def both(directory: Path, jars: Path) -> Iterator[tuple[System, System]]:
    """(Apache Kafka, ours), running and ready; both are gone afterwards."""
    with listening(directory, jars, Settings()) as (kafka, ours):
        yield kafka["PLAINTEXT"], ours["PLAINTEXT"]


@contextlib.contextmanager
def listening(
    directory: Path, jars: Path, settings: Settings
) -> Iterator[tuple[Mapping[str, System], Mapping[str, System]]]:
    """(Apache Kafka, ours), each by its listeners' names, running and ready; gone afterwards."""
    started: list[ProcessRef] = []
    try:
        kafka = _node(directory, "kafka", settings, {**settings.both, **settings.kafka})
        ours = _node(directory, "raftctl", settings, settings.both)
        _format(jars, kafka.properties, ours.properties, random_uuid_text())
        log = kafka.properties.with_suffix(".log")
        started.append(start_kafka(jars, QUICK_JAVA, kafka.properties, log))
        started.append(start_node(ours.properties, ours.properties.with_suffix(".log")))
        systems = _systems("kafka", kafka), _systems("raftctl", ours)
        for system in systems:
            asyncio.run(_ready(next(iter(system.values()))))
        yield systems
    finally:
        for process in started:
            process.send(signal.SIGKILL)
        left = wait_gone(started, STOP_S)
        assert left == []


@contextlib.contextmanager
def ours_listening(directory: Path, settings: Settings) -> Iterator[Mapping[str, System]]:
    """Ours alone, by its listeners' names, running and ready; gone afterwards."""
    node = _node(directory, "raftctl", settings, settings.both)
    command = ["--cluster-id", random_uuid_text(), "--standalone", "--config", str(node.properties)]
    done = raftctl("storage", "format", *command)
    assert done.status == 0, done
    process = start_node(node.properties, node.properties.with_suffix(".log"))
    try:
        systems = _systems("raftctl", node)
        asyncio.run(_ready(next(iter(systems.values()))))
        yield systems
    finally:
        process.send(signal.SIGKILL)
        left = wait_gone([process], STOP_S)
        assert left == []


def _systems(name: str, node: _Node) -> dict[str, System]:
    return {listener: System(name, HOST, port) for listener, port in node.ports.items()}


def _node(directory: Path, name: str, settings: Settings, more: Mapping[str, str]) -> _Node:
    """Writes the properties of one system."""
    *ports, controller = free_ports(len(settings.listeners) + 1)
    by_name = dict(zip(settings.listeners, ports, strict=True))
    listeners = [f"{one}://{HOST}:{port}" for one, port in by_name.items()]
    all_listeners = ",".join([*listeners, f"CONTROLLER://{HOST}:{controller}"])
    protocols = {**settings.listeners, "CONTROLLER": "PLAINTEXT"}
    values = {
        **PROPERTIES,
        **more,
        "inter.broker.listener.name": next(iter(settings.listeners)),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "listeners": all_listeners,
        "advertised.listeners": all_listeners,
        "log.dirs": str(directory / name),
    }
    path = directory / f"{name}.properties"
    path.write_text(write_properties(values))
    return _Node(path, by_name)


def _format(jars: Path, kafka: Path, ours: Path, cluster_id: str) -> None:
    tool = ["java", *QUICK_JAVA, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
    options = ["--cluster-id", cluster_id, "--standalone", "--config"]
    subprocess.run([*tool, *options, str(kafka)], check=True, capture_output=True, timeout=120)
    done = raftctl("storage", "format", *options, str(ours))
    assert done.status == 0, done


async def _ready(system: System) -> None:
    """Answers, and has its internal topics with coordinators."""
    deadline = time.monotonic() + START_S
    while True:
        connection = Connection(system)
        try:
            if await _has_coordinators(connection):
                return
        except (ConnectionError, OSError):
            pass
        finally:
            await connection.close()
        assert time.monotonic() < deadline, f"{system.name} does not become ready"
        await asyncio.sleep(POLL_S)


async def _has_coordinators(connection: Connection) -> bool:
    asked = [(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["warm-up"]})]
    asked += [(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["warm-up"]})]
    for api, version, body in asked:
        _, waiting = await connection.send(api, version, filled(api, version, body))
        told = decode_response(api, version, await asyncio.wait_for(waiting, 10))[1]
        if any(one["error_code"] for one in told["coordinators"]):
            return False
    names = [f"warm-up-{number}" for number in range(20)]
    body = {"groups": [{"group_id": name} for name in names]}
    frame = filled(ApiKey.OFFSET_FETCH, 8, body)
    _, waiting = await connection.send(ApiKey.OFFSET_FETCH, 8, frame)
    told = decode_response(ApiKey.OFFSET_FETCH, 8, await asyncio.wait_for(waiting, 10))[1]
    if any(group["error_code"] for group in told["groups"]):
        return False
    for name in names:
        body = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        frame = filled(ApiKey.INIT_PRODUCER_ID, 4, body)
        _, waiting = await connection.send(ApiKey.INIT_PRODUCER_ID, 4, frame)
        payload = await asyncio.wait_for(waiting, 10)
        if decode_response(ApiKey.INIT_PRODUCER_ID, 4, payload)[1]["error_code"]:
            return False
    return True
