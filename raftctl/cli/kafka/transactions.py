"""`raftctl transactions`: over the Kafka protocol, with the columns of `kafka-transactions`."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import check_known, not_empty, spelt
from raftctl.cli._options import CommandGroup
from raftctl.cli.kafka.admin import Cluster, no_topic
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.hanging_transactions import OpenTransaction, hanging, may_hang

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

app = CommandGroup("Lists transactions; finds and aborts hanging ones.")

MINUTE_MS = 60_000
_DESCRIBED_AT_ONCE = 500
_NONE = -1
"""What brokers answer where there is no offset or time."""

TopicOption = Annotated[str, typer.Option(metavar="TOPIC", help="The partition's topic.")]
PartitionOption = Annotated[int, typer.Option(metavar="N", help="The partition's number.", min=0)]
_LISTED = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBED = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


# --- list, describe -------------------------------------------------------------------------------


@app.command(name="list")
def list_transactions(
    cluster: Cluster,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only in this state, as Ongoing; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Only of this producer; may be repeated.")
    ] = None,
    duration_filter: Annotated[
        int | None, typer.Option(metavar="MS", help="Only those open for longer.", min=0)
    ] = None,
    transactional_id_pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only ids that the expression matches as a whole."),
    ] = None,
) -> None:
    """Lists transactional ids with their states."""
    states = parse_states(state or ())
    with cluster.open() as client:
        by_broker = cluster.once_loaded(
            partial(
                client.list_transactions,
                producer_id_filters=producer_id,
                state_filters=states or None,
                duration_filter_ms=duration_filter,
                transactional_id_pattern=transactional_id_pattern,
            )
        )
    found = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": broker,
            "producer_id": one.producer_id,
            "state": one.state.value,
        }
        for broker, listed in by_broker.items()
        for one in listed
    ]
    in_order = sorted(found, key=lambda one: str(one["transactional_id"]))
    cluster.show_rows(_LISTED, in_order, "no such transactional id")


def parse_states(texts: Sequence[str]) -> list[str]:
    """The states as brokers write them; ConfigError for what no transaction can be."""
    from kafka.admin import TransactionState

    known = {spelt(one.value): str(one.value) for one in TransactionState}
    for text in texts:
        check_known("--state", text, list(known.values()))
    return [known[spelt(text)] for text in texts]


@app.command()
def describe(
    cluster: Cluster,
    transactional_id: Annotated[
        str,
        typer.Argument(metavar="TRANSACTIONAL-ID", callback=not_empty("TRANSACTIONAL-ID")),
    ],
) -> None:
    """Shows a transactional id and its open transaction."""
    from kafka.errors import TransactionalIdNotFoundError

    with cluster.open() as client:
        try:
            ask = partial(client.describe_transactions, [transactional_id])
            found = cluster.once_loaded(ask)[transactional_id]
        except TransactionalIdNotFoundError:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"no transactional id {transactional_id}; raftctl transactions list shows all",
            ) from None
    started_ms = found.transaction_start_time_ms
    is_open = started_ms != _NONE and found.topic_partitions
    row = {
        "coordinator": found.coordinator_id,
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state.value,
        "timeout_ms": found.transaction_timeout_ms,
        "start_time_ms": started_ms if is_open else None,
        "duration_ms": _now_ms() - started_ms if is_open else None,
        "partitions": [f"{one.topic}-{one.partition}" for one in sorted(found.topic_partitions)],
    }
    cluster.show_rows(_DESCRIBED, [row], "")


@app.command()
def describe_producers(
    cluster: Cluster,
    topic: TopicOption,
    partition: PartitionOption,
) -> None:
    """Shows a partition's producers and open transactions."""
    with cluster.open() as client:
        producers = _producers(client, topic, partition)
    found = [
        {
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "last_sequence": one.last_sequence,
            "last_timestamp": one.last_timestamp,
            "start_offset": None
            if one.current_transaction_start_offset == _NONE
            else one.current_transaction_start_offset,
        }
        for one in producers
    ]
    cluster.show_rows(_PRODUCERS, found, "no producer with an id has written here")


def _producers(client: KafkaAdminClient, topic: str, partition: int) -> Sequence[Any]:
    from kafka import TopicPartition

    where = TopicPartition(topic, partition)
    producers: Sequence[Any] = client.describe_producers([where])[where].active_producers
    return producers


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- find-hanging, abort --------------------------------------------------------------------------


@app.command()
def find_hanging(
    cluster: Cluster,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic to search; default: all.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="Partition to search; default: all.", min=0)
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(metavar="MINUTES", help="Transactions open for less time are skipped.", min=0),
    ] = 15,
) -> None:
    """Finds open transactions that no coordinator will end.

    Such a transaction holds up readers of committed records; `abort` ends it.
    """
    if partition is not None and topic is None:
        raise ConfigError("--partition N needs --topic TOPIC")
    with cluster.open() as client:
        suspects = _open_for_long(
            client, _places(client, topic, partition), max_transaction_timeout
        )
        attended = _attended(client, {one.producer_id for one in suspects})
    found = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "start_offset": one.start_offset,
            "last_timestamp": one.last_timestamp_ms,
            "duration_min": (_now_ms() - one.last_timestamp_ms) // MINUTE_MS,
        }
        for one in hanging(suspects, attended)
    ]
    cluster.show_rows(_HANGING, found, "no transaction hangs")


def _places(
    client: KafkaAdminClient, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    from kafka import TopicPartition

    described = client.describe_topics(None if topic is None else [topic])
    found = [
        TopicPartition(one["name"], each["partition_index"])
        for one in described
        for each in one["partitions"]
        if partition is None or each["partition_index"] == partition
    ]
    if topic is not None and not found:
        if partition is None:
            raise no_topic(topic)
        why = f"no partition {topic}-{partition}; raftctl partitions list shows all"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    return found


def _open_for_long(
    client: KafkaAdminClient, places: Sequence[TopicPartition], minutes: int
) -> list[OpenTransaction]:
    """The open transactions into which nothing came for so long."""
    now_ms = _now_ms()
    found: list[OpenTransaction] = []
    for start in range(0, len(places), _DESCRIBED_AT_ONCE):
        described = client.describe_producers(places[start : start + _DESCRIBED_AT_ONCE])
        found += [
            OpenTransaction(
                where.topic,
                where.partition,
                one.producer_id,
                one.producer_epoch,
                one.coordinator_epoch,
                one.current_transaction_start_offset,
                one.last_timestamp,
            )
            for where, producers in described.items()
            for one in producers.active_producers
            if one.current_transaction_start_offset != _NONE
        ]
    return [one for one in found if may_hang(one, now_ms, minutes * MINUTE_MS)]


def _attended(client: KafkaAdminClient, producer_ids: Iterable[int]) -> set[tuple[int, str, int]]:
    """(producer id, topic, partition) of the transactions that a coordinator knows."""
    wanted = list(producer_ids)
    if not wanted:
        return set()
    listed = client.list_transactions(producer_id_filters=wanted)
    names = [one.transactional_id for each in listed.values() for one in each]
    return {
        (one.producer_id, where.topic, where.partition)
        for one in client.describe_transactions(names).values()
        for where in one.topic_partitions
    }


@app.command()
def abort(
    cluster: Cluster,
    topic: TopicOption,
    partition: PartitionOption,
    start_offset: Annotated[
        int,
        typer.Option(metavar="OFFSET", help="Its first offset, as find-hanging shows.", min=0),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Shows the transaction; changes nothing.")
    ] = False,
) -> None:
    """Aborts a transaction in one partition. Its coordinator is not asked.

    A transaction that a coordinator still knows would lose a part: look with `find-hanging` first.
    """
    from kafka import TopicPartition
    from kafka.admin import AbortTransactionSpec

    with cluster.open() as client:
        producers = _producers(client, topic, partition)
        found = [one for one in producers if one.current_transaction_start_offset == start_offset]
        if not found:
            text = f"no transaction that is open in {topic}-{partition} begins at {start_offset}"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        one = found[0]
        # A producer that has had no marker yet has no coordinator's epoch either.
        epoch = max(one.coordinator_epoch, 0)
        where = TopicPartition(topic, partition)
        spec = AbortTransactionSpec(where, one.producer_id, one.producer_epoch, epoch)
        if not dry_run:
            client.abort_transaction(spec)
    document = {
        "topic": topic,
        "partition": partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "start_offset": start_offset,
        "dry_run": dry_run,
    }
    done = "would be" if dry_run else "is"
    text = f"the transaction of producer {one.producer_id} in {topic}-{partition} {done} aborted\n"
    cluster.show(document, text)
