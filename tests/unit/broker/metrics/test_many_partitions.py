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

from broker.metrics import RequestTimes, TopicMetrics
from broker.protocol.versions import SERVED
from broker.replication import ReplicaMetrics
from broker.replication.partition import Condition, Conditions, Partition, PartitionState
from broker.request_context import RequestContext
from broker.types import TopicPartition
from raftctl.metadata.image import PartitionImage
from raftctl.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = 5_000
PARTITIONS = 2
"""Of a topic."""
SERIES_MAX = 1_500
TURN_S = 0.03
"""Thrice the goal of a turn, in processor time: other work shares the caches."""
SCRAPE_S = 0.15
"""Thrice the goal of all turns of a scrape."""


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


@pytest.fixture
def no_collection() -> Iterator[None]:
    """A node collects in steps of its own (`make_collector`); the tests' heap takes its time."""
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


@pytest.mark.req("O1")
@pytest.mark.usefixtures("no_collection")
async def test_many_topics_and_partitions_have_few_series_and_leave_the_loop_its_turns() -> None:
    replicas: Any = ManyReplicas()
    metrics = Metrics(SERIES_MAX)
    times = RequestTimes(metrics, structlog.get_logger(), 1_000)
    ReplicaMetrics(replicas, "problem", metrics)
    for key in sorted(SERVED)[:10]:
        context = RequestContext(size=10)
        context.identify(key, SERVED[key][0], 1, "c")
        times.sent(context)
    # The first scrape of a process loads a library.
    await measured(Metrics())
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
