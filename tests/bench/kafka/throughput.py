"""Produce, consume, latency: one topic of six partitions with three replicas."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tests.bench.kafka.loads import MEGABYTE, consume, consume_together, produce, run
from tests.bench.kafka.turns import Options, Quantity, in_turns
from tests.bench.kafka.warmth import Moved, Warmth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster
    from tests.bench.kafka.loads import Load

PARTITIONS = 6
KIBIBYTE = 1024
SMALL = 100
SIZES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20)
GREATEST_BATCH = str(2 << 20)


def warm_up(cluster: Cluster, megabytes: int, warmth: Warmth | None = None) -> None:
    """Lets caches and just-in-time compilers settle; so much is written with each acks and read.

    Again and again, until the cluster has been given what `warmth` asks for.
    """
    warmth = warmth or Warmth()
    while True:
        with WholeTopic(cluster, "warm-up") as topic:
            for acks in ("all", "1"):
                written = produce(cluster, topic, KIBIBYTE, megabytes, acks)
                warmth.note(cluster.name, f"produce acks={acks}", _moved(written))
            read = consume(cluster, topic, written.report["records"])
            warmth.note(cluster.name, "consume", _moved(read))
        if not warmth.lacks_bulk(cluster.name):
            return


def _moved(load: Load) -> Moved:
    return Moved(load.report["bytes"] / MEGABYTE, load.report["seconds"])


def produce_acks_all(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """1 KiB records, batches of 64 KiB, acknowledged by all replicas."""
    return _produce(clusters, options, "produce_acks_all", KIBIBYTE, "all", "goal: at least 1")


def produce_acks_1(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """The same, acknowledged by the leader."""
    return _produce(clusters, options, "produce_acks_1", KIBIBYTE, "1", "goal: at least 1")


def produce_small(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Records of 100 B."""
    return _produce(clusters, options, "produce_small", SMALL, "all", "goal: at least 0.7")


def record_sizes(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """How produce depends on the size of a record."""
    figures: dict[str, Any] = {}
    for size in SIZES:
        figures |= _produce(clusters, options, f"produce_{size}_B", size, "all", "no goal")
    return figures


def _produce(
    clusters: Sequence[Cluster], options: Options, name: str, size: int, acks: str, goal: str
) -> dict[str, Any]:
    def load_of(cluster: Cluster, turn: int) -> Load:
        with WholeTopic(cluster, f"{name}-{turn}") as topic:
            return produce(cluster, topic, size, options.megabytes, acks)

    def measure(cluster: Cluster, turn: int) -> Mapping[str, float]:
        load = load_of(cluster, turn)
        return {
            name: load.report["megabytes_per_s"],
            f"{name}_cpu": load.cpu_ms_per_megabyte,
            f"{name}_client_cpu": load.client_cpu_ms_per_megabyte,
            f"{name}_memory": load.resident_mebibytes,
        }

    quantities = {
        name: Quantity("MB/s", f"{size} B, acks={acks}; {goal}", 1),
        f"{name}_cpu": Quantity("ms/MB", "processor time of all brokers"),
        f"{name}_client_cpu": Quantity("ms/MB", "processor time of the client"),
        f"{name}_memory": Quantity("MiB", "resident, greatest broker; goal: at most 0.4", 1),
    }
    options.warmth.reach(clusters, f"produce acks={acks}", lambda one: _moved(load_of(one, -1)))
    return in_turns(clusters, options.turns, measure, quantities, options.compare)


def consume_cached(
    clusters: Sequence[Cluster], options: Options, consumers: int = 1
) -> dict[str, Any]:
    """What was written just before."""
    return _consume(clusters, options, "consume_cached", consumers, cold=False)


def consume_cold(
    clusters: Sequence[Cluster], options: Options, consumers: int = 1
) -> dict[str, Any]:
    """A log whose pages were dropped, read from its start; and how much came from the disk."""
    return _consume(clusters, options, "consume_cold", consumers, cold=True)


def _consume(
    clusters: Sequence[Cluster], options: Options, what: str, consumers: int, *, cold: bool
) -> dict[str, Any]:
    name = what if consumers == 1 else f"{what}_{consumers}"
    cached = options.cached_megabytes or options.megabytes
    megabytes = options.cold_megabytes if cold else cached
    topics: dict[str, str] = {}
    counts: dict[str, int] = {}

    def measure(cluster: Cluster, _: int) -> Mapping[str, float]:
        topic = topics[cluster.name]
        if cold:
            cluster.evict(topic)
        before = cluster.broker_read_bytes()
        load = consume_together(cluster, topic, counts[cluster.name], consumers)
        return {
            name: load.report["megabytes_per_s"],
            f"{name}_cpu": load.cpu_ms_per_megabyte,
            f"{name}_client_cpu": load.client_cpu_ms_per_megabyte,
            f"{name}_from_disk": (cluster.broker_read_bytes() - before) / MEGABYTE,
        }

    quantities = {
        name: Quantity("MB/s", f"{megabytes} MB to each of {consumers}; goal: at least 1", 1),
        f"{name}_cpu": Quantity("ms/MB", "processor time of all brokers"),
        f"{name}_client_cpu": Quantity("ms/MB", "processor time of the client"),
        f"{name}_from_disk": Quantity("MB", "read from the disk by the brokers", 1),
    }
    with contextlib.ExitStack() as stack:
        for cluster in clusters:
            topic = topics[cluster.name] = stack.enter_context(WholeTopic(cluster, name))
            written = produce(cluster, topic, KIBIBYTE, megabytes, "all")
            counts[cluster.name] = written.report["records"]
        options.warmth.reach(
            clusters,
            "consume",
            lambda one: _moved(consume(one, topics[one.name], counts[one.name])),
        )
        return in_turns(clusters, options.turns, measure, quantities, options.compare)


def latency(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """From the producer's call to the consumer, records at a steady pace, acks=all."""
    pace, seconds = options.latency_rate, options.latency_seconds

    def measure(cluster: Cluster, turn: int) -> Mapping[str, float]:
        rate = [f"--throughput={pace}", f"--num-records={pace * seconds}"]
        with WholeTopic(cluster, f"latency-{turn}") as topic:
            report = run(cluster, "end-to-end", topic, *rate, "--record-size=1024").report
        return {"latency_p50": report["p50_ms"], "latency_p99": report["p99_ms"]}

    goal = f"{pace} records/s, acks=all; goal: below 1"
    quantities = {
        "latency_p50": Quantity("ms", goal, 3),
        "latency_p99": Quantity("ms", goal, 3),
    }
    return in_turns(clusters, options.turns, measure, quantities, options.compare)


class WholeTopic:
    """A topic with all replicas in sync, deleted afterwards."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        # Two may be the same nodes, entered by two listeners.
        self.name = f"{name}-{cluster.name}"
        self._cluster = cluster
        self._admin = cluster.admin()

    def __enter__(self) -> str:
        limits = {"max.message.bytes": GREATEST_BATCH}
        self._cluster.create_topic(self._admin, self.name, PARTITIONS, **limits)
        return self.name

    def __exit__(self, *_: object) -> None:
        self._admin.delete_topics([self.name], operation_timeout=30)[self.name].result(60)
