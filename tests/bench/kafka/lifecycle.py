"""Start, crash of a leader, and what partitions cost a broker."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from raftctl.localcluster.layout import LOCAL_TIMEOUTS
from tests.bench.failover import SteadyWriter
from tests.bench.kafka.clusters import QUICK_RECONNECT, REPLICAS, SPEC
from tests.bench.kafka.loads import produce
from tests.bench.kafka.turns import Options, Quantity, in_turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster, Maker

SETTLE_S = 1.0
IDLE_S = 5.0
PARTITIONS = (1, 100, 1000, 10_000)
GROWTH_SPEC = replace(
    SPEC,
    overrides={
        "broker.heartbeat.interval.ms": "2000",
        "broker.session.timeout.ms": "9000",
        "replica.lag.time.max.ms": "30000",
    },
)
"""Apache Kafka's defaults: with those of a local cluster, brokers that have much to take up are
fenced for it, and followers leave the replicas in sync, which makes more work.
"""
GROWTH_MEGABYTES = 16
GROWTH_RECORD = 1024


def startup(makers: Sequence[Maker], options: Options) -> dict[str, Any]:
    """All six processes of formatted nodes started, to the first acknowledged record."""
    with tempfile.TemporaryDirectory(prefix="raftctl-bench-") as directory:

        def measure(maker: Maker, turn: int) -> Mapping[str, float]:
            return _start(maker.make(Path(directory) / f"{maker.name}-{turn}"))

        goal = "to the first acknowledged record; goal: at most 0.2"
        return in_turns(makers, options.turns, measure, {"start": Quantity("s", goal)})


def _start(cluster: Cluster) -> Mapping[str, float]:
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **QUICK_RECONNECT}
    admin, producer = cluster.admin(), Producer({**settings, "acks": "all", "linger.ms": 0})
    errors: list[Any] = []
    began = time.perf_counter()
    try:
        cluster.start()
        cluster.create_topic(admin, "first", 1)
        producer.produce("first", b"hello", on_delivery=lambda error, _: errors.append(error))
        producer.flush(60)
        elapsed = time.perf_counter() - began
    finally:
        cluster.stop()
    if errors != [None]:
        raise RuntimeError(f"{cluster.name}: the first record came to {errors}")
    return {"start": elapsed}


def failover(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Kill -9 of a partition's leader to the next acknowledged write, same session timeout.

    Of that the clusters can help how soon another leader is named; then the client must ask.
    """
    topic = "failover"
    for cluster in clusters:
        cluster.create_topic(cluster.admin(), topic, 1)
    session = LOCAL_TIMEOUTS["broker.session.timeout.ms"]
    goal = f"kill -9 to next write, session timeout {session} ms; goal: at most 1"
    return in_turns(
        clusters,
        options.turns,
        lambda cluster, _: _kill_leader(cluster, topic),
        {"failover": Quantity("s", goal), "failover_named": Quantity("s", "to the new leader")},
    )


def _kill_leader(cluster: Cluster, topic: str) -> Mapping[str, float]:
    admin = cluster.admin()
    leader = cluster.leader(admin, topic)
    writer = SteadyWriter(cluster.bootstrap, topic)
    time.sleep(SETTLE_S)
    cluster.kill_broker(leader)
    killed = time.perf_counter()
    named = cluster.wait_leader(admin, topic, other_than=leader)
    resumed = writer.next_given_after(killed)
    writer.stop()
    cluster.start_broker(leader)
    cluster.wait_isr(admin, topic)
    return {"failover": resumed - killed, "failover_named": named - killed}


def partitions(clusters: Sequence[Cluster], options: Options, count: int) -> dict[str, Any]:
    """What so many replicas of one broker cost: creation, idling, produce, restart."""
    prefix = f"partitions_{count}"
    quantities = {
        f"{prefix}_create": Quantity("s", "a topic, until all replicas are in sync"),
        f"{prefix}_hosted": Quantity("s", "a topic, until all brokers have all its logs"),
        f"{prefix}_idle": Quantity("%", "of one core, all brokers together, nothing to do", 1),
        f"{prefix}_produce": Quantity("MB/s", f"{GROWTH_RECORD} B, acks=all", 1),
        f"{prefix}_restart": Quantity("s", "kill -9 of a broker, start, all in sync again"),
    }

    def measure(cluster: Cluster, turn: int) -> Mapping[str, float]:
        values = _grown(cluster, f"{prefix}-{turn}", count)
        return {f"{prefix}_{name}": value for name, value in values.items()}

    return in_turns(clusters, options.turns, measure, quantities)


def _grown(cluster: Cluster, topic: str, count: int) -> Mapping[str, float]:
    admin = cluster.admin()
    began = time.perf_counter()
    cluster.create_topic(admin, topic, count)
    created = time.perf_counter() - began
    cluster.wait_hosted(topic, count)
    hosted = time.perf_counter() - began
    time.sleep(SETTLE_S)
    before = cluster.broker_cpu_seconds()
    time.sleep(IDLE_S)
    idle = (cluster.broker_cpu_seconds() - before) / IDLE_S * 100
    load = produce(cluster, topic, GROWTH_RECORD, GROWTH_MEGABYTES, "all")
    broker = cluster.leader(admin, topic)
    cluster.kill_broker(broker)
    cluster.wait_isr(admin, topic, replicas=REPLICAS - 1)
    began = time.perf_counter()
    cluster.start_broker(broker)
    cluster.wait_isr(admin, topic)
    restarted = time.perf_counter() - began
    admin.delete_topics([topic], operation_timeout=60)[topic].result(90)
    return {
        "create": created,
        "hosted": hosted,
        "idle": idle,
        "produce": load.report["megabytes_per_s"],
        "restart": restarted,
    }
