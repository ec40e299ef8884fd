"""What topics are produced and fetched: Apache Kafka's BrokerTopicMetrics, with a bound (row O1).

A partition holds the `TopicCounts` of its topic, so a request adds to integers that are at hand.

Topics have series of their own while they fit. Beyond that the busiest have, and what the others
count is in one series, whose topic is `(other)`: a name that no topic can have. A topic that gets
its own series begins it at 0, since what it counted before stays with the others. One that loses
it takes its count along, and goes on there if it gets a series again. So no series ever falls, and
nothing is counted in two. The series without a topic is that of the broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, invariant
from raftctl.metrics import Family, Meter, Sample, counter, gauge, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metrics import Metrics
    from raftctl.runtime import Slices

OTHERS = "(other)"
"""The label of what has no series of its own."""
BROKER = ""
"""The label of the broker's own counts; to Prometheus it is none."""
_PREFIX = "kafka_server_brokertopicmetrics"
OF_TOPICS = {
    "messages_in": counter(f"{_PREFIX}_messagesin_total", "Records appended by leaders.", "topic"),
    "bytes_in": counter(f"{_PREFIX}_bytesin_total", "Bytes appended by leaders.", "topic"),
    "bytes_out": counter(f"{_PREFIX}_bytesout_total", "Bytes of records to consumers.", "topic"),
    "bytes_rejected": counter(
        f"{_PREFIX}_bytesrejected_total", "Bytes of batches that were too large.", "topic"
    ),
    "produce_requests": counter(
        f"{_PREFIX}_totalproducerequests_total",
        "Batches to append; a request counts for each of its partitions.",
        "topic",
    ),
    "fetch_requests": counter(
        f"{_PREFIX}_totalfetchrequests_total",
        "Fetches of consumers and followers that were answered; each counts for its partitions.",
        "topic",
    ),
    "failed_produce_requests": counter(
        f"{_PREFIX}_failedproducerequests_total",
        "Batches refused, but for those of another leader or too large, and for failed disks.",
        "topic",
    ),
    "failed_fetch_requests": counter(
        f"{_PREFIX}_failedfetchrequests_total",
        "Reads refused, but for those of another leader or out of range, and for failed disks.",
        "topic",
    ),
}
"""Counts of each topic, by the field that has them."""
OF_BROKER = {
    "replication_bytes_in": counter(
        f"{_PREFIX}_replicationbytesin_total", "Bytes copied from leaders."
    ),
    "replication_bytes_out": counter(
        f"{_PREFIX}_replicationbytesout_total", "Bytes of records to followers."
    ),
}
NEVER = (
    counter(
        f"{_PREFIX}_producemessageconversions_total",
        "Batches converted to another format: there is one format, so it stays 0.",
    ),
    counter(
        f"{_PREFIX}_fetchmessageconversions_total",
        "Batches converted for old consumers: there is one format, so it stays 0.",
    ),
)
RATES = {
    name: gauge(
        f"{metric.name.removesuffix('_total')}persec",
        f"{metric.says[:-1]}: a second, averaged over some minutes.",
        "minutes",
    )
    for name, metric in {**OF_TOPICS, **OF_BROKER}.items()
}
"""Of the broker; those of a topic Prometheus works out."""
LIMITED = gauge("raftctl_metrics_topics_without_series", "Topics that are counted as (other).")

_ELSEWHERE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_NO_FAILED_PRODUCE = frozenset({*_ELSEWHERE, *_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE})
_NO_FAILED_FETCH = frozenset(
    {
        *_ELSEWHERE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that a client gets in the normal course of things: no failure, as in Apache Kafka."""

RANKED_TICKS = 60
"""Five minutes: after so long topics are compared again."""
RANKED_MAX = 1_000
"""Before the first scrape nobody knows how many fit."""
_AT_ONCE = 500
"""Topics that are compared: a fraction of a millisecond."""
_NOTHING = (0,) * len(OF_TOPICS)


@dataclass(slots=True, eq=False)
class Counts:
    """Totals since the start of the process."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0

    @property
    def of_topics(self) -> tuple[int, ...]:
        """The counts of `OF_TOPICS`, in its order."""
        return (
            self.messages_in,
            self.bytes_in,
            self.bytes_out,
            self.bytes_rejected,
            self.produce_requests,
            self.fetch_requests,
            self.failed_produce_requests,
            self.failed_fetch_requests,
        )


@dataclass(slots=True, eq=False)
class TopicCounts(Counts):
    """The counts of one topic; what is added here is added to the broker's, too."""

    broker: Counts = field(default_factory=Counts)
    partitions: int = 0
    """On this broker."""
    ranked_bytes: int = 0
    """In and out, when topics were last compared."""

    def appended(self, messages: int, size: int) -> None:
        """Count a produced batch that is in the log; a repeated one has no messages."""
        broker = self.broker
        self.produce_requests += 1
        broker.produce_requests += 1
        self.messages_in += messages
        broker.messages_in += messages
        self.bytes_in += size
        broker.bytes_in += size

    def refused(self, error: ErrorCode) -> None:
        """Count a produced batch that was not appended."""
        self.produce_requests += 1
        self.broker.produce_requests += 1
        if error not in _NO_FAILED_PRODUCE:
            self.failed_produce_requests += 1
            self.broker.failed_produce_requests += 1

    def checked(self, error: ErrorCode, size: int) -> None:
        """Count the bytes of a produced batch that is too large."""
        if error in _TOO_LARGE:
            self.bytes_rejected += size
            self.broker.bytes_rejected += size

    def read(self, error: ErrorCode, size: int, *, to_follower: bool) -> None:
        """Count a partition of an answer to a fetch, with the bytes of its records."""
        broker = self.broker
        self.fetch_requests += 1
        broker.fetch_requests += 1
        if to_follower:
            broker.replication_bytes_out += size
        else:
            self.bytes_out += size
            broker.bytes_out += size
        if error and error not in _NO_FAILED_FETCH:
            self.failed_fetch_requests += 1
            broker.failed_fetch_requests += 1


class TopicMetrics:
    """The counts of all topics with replicas on this broker; see `raftctl.metrics.Details`."""

    series_min = 2 * len(OF_TOPICS) + 1

    def __init__(self) -> None:
        self.broker = Counts()
        """Of all topics, also of those that do not exist."""
        self._topics: dict[str, TopicCounts] = {}
        self._others: dict[str, tuple[int, ...]] = {}
        """Topics with a series to what each counted while it had none."""
        self._own: dict[str, tuple[int, ...]] = {}
        """Topics that had a series, and have none now, to what it showed last."""
        self._past = _NOTHING
        """The sum of what series showed last that are not there now, also of deleted topics."""
        self._born: set[str] = set()
        """Topics since the last scrape: the others' series has nothing of theirs yet."""
        self._ranked: list[str] = []
        """Topics to have series, the busiest first; empty unless they were compared just now."""
        self._limit = RANKED_MAX
        self._ticks = 0
        self._meters = {name: Meter() for name in RATES}

    def __len__(self) -> int:
        return len(self._topics)

    def invariants(self) -> None:
        """Check that what series show adds up to what topics count."""
        invariant(not self._others.keys() & self._own.keys(), "a topic has a series or has none")
        known = self._others.keys() | self._own.keys() | self._born
        invariant(known <= self._topics.keys(), "a topic that is gone has no series")
        invariant(min(self._rest()) >= 0, "what topics count, the broker counts")

    def hosted(self, topic: str) -> TopicCounts:
        """Return the counts of a topic, for one more of its partitions."""
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts(broker=self.broker)
            self._born.add(topic)
        counts.partitions += 1
        return counts

    def dropped(self, topic: str) -> None:
        """Forget a topic with its last partition here; the broker keeps what it counted."""
        counts = self._topics[topic]
        counts.partitions -= 1
        if counts.partitions:
            return
        if topic in self._others:
            self._hide(topic)
        self._own.pop(topic, None)
        self._born.discard(topic)
        del self._topics[topic]

    def register(self, metrics: Metrics) -> None:
        """Be scraped, and have rates, from now on."""
        metrics.keep(self)
        metrics.add(self._of_broker)
        metrics.add_details(self)

    def tick(self) -> None:
        """Take what was counted since the last tick into the rates."""
        self._ticks += 1
        for name, meter in self._meters.items():
            meter.count = getattr(self.broker, name)
            meter.tick()

    # --- which topics have series -----------------------------------------------------------------

    async def prepare(self, slices: Slices) -> None:
        """Compare the topics, unless all have series, or those that have were chosen lately."""
        missing = len(self._topics) - len(self._others)
        is_full = len(self._others) >= self._limit
        if not missing or (is_full and self._ticks < RANKED_TICKS):
            return
        self._ticks = 0
        grown: dict[str, int] = {}
        topics = list(self._topics.items())
        for first in range(0, len(topics), _AT_ONCE):
            for topic, counts in topics[first : first + _AT_ONCE]:
                total = counts.bytes_in + counts.bytes_out
                grown[topic] = total - counts.ranked_bytes
                counts.ranked_bytes = total
            await slices.rest()
        # To rank thousands is a slice of its own.
        await asyncio.sleep(0)
        self._ranked = nlargest(2 * self._limit, grown, key=grown.__getitem__)

    def _choose(self, room: int) -> None:
        """Give series to the topics that have them, unless others are much busier."""
        fit = room // len(OF_TOPICS)
        # If not all fit, the others have a series.
        limit = self._limit = fit if fit >= len(self._topics) else max(fit - 1, 0)
        # A topic with a series keeps it unless twice as many are busier: else two that are nearly
        # alike would take turns.
        staying = set(self._ranked[: 2 * limit]) or self._others.keys()
        for topic in [one for one in self._others if one not in staying]:
            self._hide(topic)
        for topic in list(self._others)[limit:]:
            self._hide(topic)
        for topic in self._topics if limit >= len(self._topics) else self._ranked:
            if len(self._others) == limit:
                break
            if topic in self._topics and topic not in self._others:
                self._show(topic)
        self._ranked = []
        self._born.clear()

    def _show(self, topic: str) -> None:
        own = self._own.pop(topic, _NOTHING)
        self._past = _minus(self._past, own)
        # The others' series has not shown what a new topic counted.
        is_new = topic in self._born
        self._others[topic] = _NOTHING if is_new else _minus(self._topics[topic].of_topics, own)

    def _hide(self, topic: str) -> None:
        own = self._own[topic] = self._shown(topic)
        del self._others[topic]
        self._past = _plus(self._past, own)

    def _shown(self, topic: str) -> tuple[int, ...]:
        return _minus(self._topics[topic].of_topics, self._others[topic])

    def _rest(self) -> tuple[int, ...]:
        """What has no series of a topic."""
        rest = _minus(self.broker.of_topics, self._past)
        for topic in self._others:
            rest = _minus(rest, self._shown(topic))
        return rest

    # --- the scrape -------------------------------------------------------------------------------

    def _of_broker(self) -> Iterator[Family]:
        for name, metric in OF_BROKER.items():
            yield single(metric, getattr(self.broker, name))
        for metric in NEVER:
            yield single(metric, 0)
        for name, metric in RATES.items():
            rates = self._meters[name].rates
            yield Family(metric, [Sample((str(minutes),), rate) for minutes, rate in rates.items()])

    def collect(self, room: int) -> Iterator[Family]:
        """Yield the broker's series, and those of topics that fit into half of the room."""
        self._choose(max(room // 2 - len(OF_TOPICS), 0))
        yield single(LIMITED, len(self._topics) - len(self._others))
        shown = {topic: self._shown(topic) for topic in self._others}
        rest = self._rest()
        if any(rest) or len(shown) < len(self._topics):
            shown[OTHERS] = rest
        total = self.broker.of_topics
        for index, metric in enumerate(OF_TOPICS.values()):
            samples = [Sample((topic,), counts[index]) for topic, counts in shown.items()]
            yield Family(metric, [Sample((BROKER,), total[index]), *samples])


def _plus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _minus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(one, other, strict=True))
