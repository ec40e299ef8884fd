"""What the nodes of a cluster have answered, put together: the rows that `raftctl top` shows.

Pure: answers in, rows out. A controller's status has the quorum, the brokers and counts of
partitions; metrics have what each node knows by itself. What nobody has answered is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raftctl.cli.top._scrape import Scrape, rate, rates_by

if TYPE_CHECKING:
    from collections.abc import Sequence


TOPIC_IN, TOPIC_OUT, TOPIC_MESSAGES = (
    f"kafka_server_brokertopicmetrics_{name}_total"
    for name in ("bytesin", "bytesout", "messagesin")
)
REQUESTS = "kafka_network_requestmetrics_requests_total"
CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
LOG_SIZE = "kafka_log_log_size"
LOOP_LAG = "raftctl_event_loop_lag_ms"
MEMORY = "process_resident_memory_bytes"
UNDER_REPLICATED = "kafka_cluster_partition_underreplicated"
UNDER_MIN_ISR = "kafka_cluster_partition_underminisr"
AT_MIN_ISR = "kafka_cluster_partition_atminisr"
GROUP_LAG = "kafka_consumergroup_lag_sum"
GROUP_MEMBERS = "kafka_consumergroup_members"
_FOLDED = "(other)"
"""The topic that stands for those without series of their own."""


@dataclass(frozen=True)
class Node:
    """A node, and where it serves HTTP."""

    node_id: int
    is_controller: bool
    address: str

    @property
    def name(self) -> str:
        """As people are shown it."""
        return f"{'controller' if self.is_controller else 'broker'} {self.node_id} ({self.address})"


@dataclass(frozen=True)
class Answer:
    """What one node has answered; None for what it has not."""

    node: Node
    status: Mapping[str, Any] | None = None
    scrape: Scrape | None = None
    why: str = ""
    """Why something is missing."""


@dataclass(frozen=True)
class QuorumRow:
    """A controller."""

    node_id: int
    role: str
    epoch: int | None
    log_end: int | None
    lag: int | None
    fetched_ms_ago: int | None


@dataclass(frozen=True)
class BrokerRow:
    """A broker; what its metrics would say is None if it serves none."""

    broker_id: int
    state: str
    leaders: int | None
    replicas: int | None
    bytes_in: float | None
    bytes_out: float | None
    requests: float | None
    connections: int | None
    log_size: int | None
    loop_lag_ms: float | None
    memory: int | None
    metadata_lag: int | None


@dataclass(frozen=True)
class TopicRow:
    """A topic with traffic, summed over brokers."""

    name: str
    bytes_in: float
    bytes_out: float
    messages: float
    size: int | None


@dataclass(frozen=True)
class TroubleRow:
    """A partition of which not all replicas are in sync."""

    topic: str
    partition: int
    what: str


@dataclass(frozen=True)
class GroupRow:
    """A group of consumers."""

    name: str
    lag: int
    topics: int
    members: int | None


@dataclass(frozen=True)
class View:
    """All that is shown at one time."""

    cluster_id: str | None = None
    leader_id: int | None = None
    epoch: int | None = None
    high_watermark: int | None = None
    topics: int | None = None
    partitions: int | None = None
    offline: int | None = None
    under_replicated: int | None = None
    quorum: tuple[QuorumRow, ...] = ()
    brokers: tuple[BrokerRow, ...] = ()
    traffic: tuple[TopicRow, ...] = ()
    trouble: tuple[TroubleRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    silent: tuple[str, ...] = field(default=())
    """A sentence for each node that does not answer."""

    @property
    def bytes_in(self) -> float | None:
        """Bytes a second that all brokers append."""
        return _sum([one.bytes_in for one in self.brokers])

    @property
    def bytes_out(self) -> float | None:
        """Bytes a second that consumers get."""
        return _sum([one.bytes_out for one in self.brokers])


def make_view(answers: Sequence[Answer], before: Sequence[Answer] = ()) -> View:
    """Return what two rounds of answers say; without an earlier round rates are not known."""
    statuses = [one.status for one in answers if one.status is not None]
    best = max(statuses, key=_credibility, default={})
    older = {one.node: one.scrape for one in before}
    brokers = [one for one in answers if not one.node.is_controller]
    pairs = [(one.scrape, older.get(one.node)) for one in brokers if one.scrape is not None]
    scrapes = [new for new, _ in pairs]
    leads = best.get("role") == "leader"
    return View(
        cluster_id=best.get("cluster_id"),
        leader_id=best.get("leader_id") if leads else None,
        epoch=best.get("epoch"),
        high_watermark=best.get("high_watermark"),
        topics=best.get("topics"),
        partitions=best.get("partitions"),
        offline=best.get("offline_partitions"),
        under_replicated=best.get("under_replicated_partitions"),
        quorum=_quorum(answers, best),
        brokers=_brokers(brokers, best, older),
        traffic=_traffic(pairs),
        trouble=_trouble(scrapes),
        groups=_groups(scrapes),
        silent=tuple(f"{one.node.name} is silent: {one.why}" for one in answers if one.why),
    )


def _credibility(status: Mapping[str, Any]) -> tuple[int, bool, int]:
    return status["epoch"], status["role"] == "leader", status.get("metadata_offset") or -1


def _quorum(answers: Sequence[Answer], best: Mapping[str, Any]) -> tuple[QuorumRow, ...]:
    seen = {one["node_id"]: one for one in best.get("voters", ())}
    rows = {}
    for answer in answers:
        if not answer.node.is_controller:
            continue
        node_id, status, replica = (
            answer.node.node_id,
            answer.status,
            seen.get(answer.node.node_id, {}),
        )
        rows[node_id] = QuorumRow(
            node_id,
            "silent" if status is None else status["role"],
            None if status is None else status["epoch"],
            replica.get("log_end_offset") if status is None else status["log_end_offset"],
            replica.get("lag"),
            replica.get("last_fetch_age_ms"),
        )
    for node_id, replica in seen.items():
        row = QuorumRow(
            node_id,
            "voter",
            None,
            replica["log_end_offset"],
            replica["lag"],
            replica["last_fetch_age_ms"],
        )
        rows.setdefault(node_id, row)
    return tuple(rows[node_id] for node_id in sorted(rows))


def _brokers(
    answers: Sequence[Answer], best: Mapping[str, Any], older: Mapping[Node, Scrape | None]
) -> tuple[BrokerRow, ...]:
    known = {one["broker_id"]: one for one in best.get("brokers", ())}
    asked = {one.node.node_id: one for one in answers}
    lags = {one["node_id"]: one["lag"] for one in best.get("observers", ())}
    return tuple(
        _broker(number, known.get(number), asked.get(number), older, lags.get(number))
        for number in sorted({*known, *asked})
    )


def _broker(
    number: int,
    known: Mapping[str, Any] | None,
    answer: Answer | None,
    older: Mapping[Node, Scrape | None],
    metadata_lag: int | None,
) -> BrokerRow:
    scrape = None if answer is None else answer.scrape
    before = None if answer is None else older.get(answer.node)
    return BrokerRow(
        number,
        _state(known, answer),
        None if known is None else known["leaders"],
        None if known is None else known["replicas"],
        rate(scrape, before, TOPIC_IN, topic=""),
        rate(scrape, before, TOPIC_OUT, topic=""),
        rate(scrape, before, REQUESTS),
        _whole(_total(scrape, CONNECTIONS)),
        _whole(_total(scrape, LOG_SIZE)),
        _total(scrape, LOOP_LAG, quantile="0.99"),
        _whole(_total(scrape, MEMORY)),
        metadata_lag,
    )


def _state(known: Mapping[str, Any] | None, answer: Answer | None) -> str:
    if known is None:
        return "silent" if answer is not None and answer.why else "unknown"
    if known["fenced"]:
        return "fenced"
    if known["in_controlled_shutdown"]:
        return "leaving"
    return "silent" if answer is not None and answer.why else "active"


def _traffic(pairs: Sequence[tuple[Scrape, Scrape | None]]) -> tuple[TopicRow, ...]:
    given, taken, messages = (
        rates_by(pairs, name, "topic") for name in (TOPIC_IN, TOPIC_OUT, TOPIC_MESSAGES)
    )
    sizes: defaultdict[str, float] = defaultdict(float)
    for scrape, _ in pairs:
        for (topic,), size in scrape.by(LOG_SIZE, "topic").items():
            sizes[topic] += size
    names = {*given, *taken, *sizes} - {_FOLDED}
    return tuple(
        TopicRow(
            name,
            given.get(name, 0.0),
            taken.get(name, 0.0),
            messages.get(name, 0.0),
            _whole(sizes.get(name)),
        )
        for name in sorted(names)
    )


def _trouble(scrapes: Sequence[Scrape]) -> tuple[TroubleRow, ...]:
    found: dict[tuple[str, int], str] = {}
    # The worst last: it is the one that is shown.
    for name, what in (
        (UNDER_REPLICATED, "under-replicated"),
        (AT_MIN_ISR, "at min.insync.replicas"),
        (UNDER_MIN_ISR, "under min.insync.replicas"),
    ):
        for scrape in scrapes:
            for (topic, partition), value in scrape.by(name, "topic", "partition").items():
                key = (topic, int(partition)) if partition.isdigit() else None
                # At the minimum with all replicas in sync is how the topic is meant to be.
                if value and key and (name != AT_MIN_ISR or key in found):
                    found[key] = what
    return tuple(TroubleRow(topic, number, found[topic, number]) for topic, number in sorted(found))


def _groups(scrapes: Sequence[Scrape]) -> tuple[GroupRow, ...]:
    lags: defaultdict[str, float] = defaultdict(float)
    topics: defaultdict[str, set[str]] = defaultdict(set)
    members: dict[str, float] = {}
    for scrape in scrapes:
        for (group, topic), lag in scrape.by(GROUP_LAG, "consumergroup", "topic").items():
            lags[group] += max(lag, 0.0)
            topics[group].add(topic)
        for (group,), count in scrape.by(GROUP_MEMBERS, "consumergroup").items():
            members[group] = max(count, members.get(group, 0.0))
    return tuple(
        GroupRow(name, int(lags.get(name, 0.0)), len(topics[name]), _whole(members.get(name)))
        for name in sorted({*lags, *members} - {_FOLDED})
    )


def _total(scrape: Scrape | None, name: str, **labels: str) -> float | None:
    return None if scrape is None else scrape.total(name, **labels)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
