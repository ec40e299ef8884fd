"""A scrape of a broker with ten thousand partitions: few series, and no long turn of the loop."""

from __future__ import annotations

import asyncio
import gc
from time import thread_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import structlog

from broker.lag import GroupLag, PartitionOffsets
from broker.metrics import RequestTimes, TopicMetrics
from broker.protocol.versions import SERVED
from broker.replication import ReplicaMetrics
from broker.replication.partition import Condition, Conditions, Partition, PartitionState
from broker.request_context import RequestContext
from broker.types import TopicPartition
from raftctl.metadata.image import PartitionImage
from raftctl.metrics import Metrics
from raftctl.node._process_metrics import ProcessMetrics
from raftctl.runtime import _slices
from raftctl.runtime.real import RealRuntime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

TOPICS = 5_000
PARTITIONS = 2
"""Of a topic."""
GROUPS = 200
OFFSETS = 20
"""Of a group."""
SERIES_MAX = 1_500
TURN_S = 0.01
"""The goal of a turn, in processor time; it takes a third of it."""
SCRAPE_S = 0.1
"""Twice the goal of all turns of a scrape: other work shares the caches."""


class ManyReplicas:
    """What the metrics ask of a ReplicaManager; its logs have sizes and nothing else."""

    refused = 0
    isr = SimpleNamespace(shrinks=0, expansions=0, refused=0)

    def __init__(self) -> None:
        self.topics = TopicMetrics()
        self.conditions = Conditions()
        self.fetchers = SimpleNamespace(lag_of=lambda _partition: None)
        self.waiting: dict[str, Any] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        for number in range(TOPICS):
            for partition in range(PARTITIONS):
                self._lead(TopicPartition(f"topic-{number}", partition))

    def _lead(self, partition: TopicPartition) -> None:
        log: Any = SimpleNamespace(
            size=7,
            segment_count=1,
            producers=(),
            log_start_offset=0,
            log_end_offset=1,
            last_stable_offset=1,
            offline=None,
        )
        state = PartitionState(
            1, high_watermark=1, lag_time_max_ms=10, may_join=lambda _id, _epoch: True
        )
        counts = self.topics.hosted(partition.topic)
        replica = Partition(partition, UUID(int=1), state, log, counts)
        self.partitions[partition] = replica
        self.lead(replica, 0, (1, 2))
        counts.appended(1, 100 * partition.partition + len(self.partitions))

    def lead(self, replica: Partition, epoch: int, isr: tuple[int, ...]) -> None:
        """As an image has it."""
        image = PartitionImage((1, 2), isr, 1, 0, epoch)
        replica.state.become_leader(image, log_end_offset=1, now_ms=0)
        self.conditions.note(replica)


_begin_slice = _slices._begin_slice


@pytest.fixture
def as_in_a_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slices end by time; a node collects in steps of its own (`make_collector`)."""
    monkeypatch.setattr(_slices, "_begin_slice", _begin_slice)
    gc.disable()
    yield
    gc.enable()


async def measured(metrics: Metrics) -> tuple[float, float, list[bytes]]:
    """Processor seconds of the longest turn of a scrape, those of all, and its lines."""
    text: list[bytes] = []
    longest, began = 0.0, thread_time()

    async def scrape() -> None:
        text.extend([piece async for piece in metrics.text()])

    task = asyncio.ensure_future(scrape())
    while not task.done():
        before = thread_time()
        await asyncio.sleep(0)
        longest = max(longest, thread_time() - before)
    whole = thread_time() - began
    lines = [line for line in b"".join(text).splitlines() if not line.startswith(b"#")]
    return longest, whole, lines


class ManyGroups:
    """Groups that have committed offsets in many partitions."""

    def group_ids(self) -> list[str]:
        """All of them."""
        return [f"group-{number}" for number in range(GROUPS)]

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Of the first partitions."""
        return {TopicPartition(f"topic-{number}", 0): number for number in range(OFFSETS)}

    def member_count(self, group_id: str) -> int:
        """As many as all have."""
        return 3


async def lag_of_groups() -> GroupLag:
    """Computed once."""

    async def ends(partitions: Collection[TopicPartition], _s: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def failed(error: BaseException) -> None:
        raise error

    lag = GroupLag(lambda: [ManyGroups()], lambda _: True, lambda _: True, ends, 1, failed)
    await lag.refresh()
    return lag


def request(key: int, version: int, number: int = 0) -> RequestContext:
    """One that was answered, with an error."""
    context = RequestContext(size=10 + number, errors={1 + number % 100: 1})
    context.identify(key, version, 1, "c")
    return context


async def broker_of(replicas: Any, metrics: Metrics) -> RequestTimes:
    """All metrics of a broker that may be many."""
    runtime = RealRuntime()
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    ReplicaMetrics(replicas, "problem", metrics)
    ProcessMetrics(runtime.usage, runtime.idle_s, metrics)
    topic = SimpleNamespace(partitions=range(PARTITIONS))
    image: Any = SimpleNamespace(topics=SimpleNamespace(by_name=lambda _name: topic))
    metrics.add_details(PartitionOffsets(replicas.partitions, replicas.conditions, lambda: image))
    metrics.add_details(await lag_of_groups())
    # As a node does before its first scrape, on a worker.
    metrics.load()
    runtime.usage()
    runtime.close()
    return times


@pytest.mark.req("O1")
@pytest.mark.usefixtures("as_in_a_node")
async def test_many_topics_and_partitions_have_few_series_and_leave_the_loop_its_turns() -> None:
    replicas: Any = ManyReplicas()
    metrics = Metrics(SERIES_MAX)
    times = await broker_of(replicas, metrics)
    for key in sorted(SERVED)[:10]:
        times.sent(request(key, SERVED[key][0]))
    for trouble in (0, TOPICS):
        for replica in list(replicas.partitions.values())[:trouble]:
            replicas.lead(replica, 1, (1,))
        assert replicas.conditions.count(Condition.UNDER_REPLICATED) == trouble
        longest, whole, lines = await measured(metrics)
        assert len(lines) <= SERIES_MAX
        assert len(set(lines)) == len(lines)
        assert any(b'topic="(other)"' in line for line in lines)
        assert longest < TURN_S
        assert whole < SCRAPE_S


@pytest.mark.req("O1")
async def test_a_client_of_every_api_version_and_error_makes_no_more_series_than_is_bounded() -> (
    None
):
    metrics = Metrics(SERIES_MAX)
    times = await broker_of(ManyReplicas(), metrics)
    for key, versions in sorted(SERVED.items(), reverse=True):
        for number, version in enumerate([*versions, *versions]):
            times.sent(request(key, version, number))
    _, _, lines = await measured(metrics)
    assert len(lines) <= SERIES_MAX
    requests = [line for line in lines if b"_requests_total{" in line]
    sent = sum(2 * len(versions) for versions in SERVED.values())
    assert sum(float(line.rpartition(b" ")[2]) for line in requests) == sent
    assert any(b'request="(other)"' in line for line in requests)
    # Whatever came before.
    assert any(b'request="Produce"' in line for line in requests)
    assert any(b'topic="topic-' in line for line in lines)
