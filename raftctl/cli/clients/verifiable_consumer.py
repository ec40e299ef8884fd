"""`raftctl verifiable-consumer`: a member of a group that reports its partitions and records.

As `kafka-verifiable-consumer`, whose options and events these are. Without auto-commit it commits
what it has reported, at once and before it gives a partition away.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka import KafkaError as Errors

from raftctl.cli._arguments import check_known, not_empty
from raftctl.cli._options import BootstrapOption, CommandConfigOption, PropertyOption, TopicOption
from raftctl.cli._output import say_event
from raftctl.cli._termination import Ending, counted_signals
from raftctl.cli.clients._librdkafka import kafka_errors, new_client, partitions_of
from raftctl.cli.clients._verifiable_events import FOREVER, POLL_S, MaxMessagesOption, text_of
from raftctl.cli.files import client_settings
from raftctl.errors import ErrorCode, KafkaError, client_error

POLL_RECORDS_MAX = 500
"""As Apache Kafka's max.poll.records."""
MAX_POLL_INTERVAL_MS = 300_000
SESSION_TIMEOUT_MS = 30_000
SESSION_TIMEOUT_MS_MAX = 3_600_000

_JAVA = "org.apache.kafka.clients.consumer."
STRATEGIES = {
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
    f"{_JAVA}RangeAssignor": "range",
    f"{_JAVA}RoundRobinAssignor": "roundrobin",
    f"{_JAVA}CooperativeStickyAssignor": "cooperative-sticky",
}
"""As one may write an assignor -> librdkafka's name of it."""


class GroupProtocol(enum.StrEnum):
    """How the group shares out its partitions."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ResetPolicy(enum.StrEnum):
    """Where a partition without a committed offset is read from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


GroupIdOption = Annotated[
    str, typer.Option(metavar="GROUP", help="Group to join.", callback=not_empty("--group-id"))
]
ProtocolOption = Annotated[
    GroupProtocol,
    typer.Option(
        metavar="classic|consumer",
        case_sensitive=False,
        help="`consumer` is the protocol of KIP-848.",
    ),
]
RemoteAssignorOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Assignor of the brokers; `consumer` only."),
]
SessionTimeoutOption = Annotated[
    int,
    typer.Option(
        metavar="MS",
        min=1,
        max=SESSION_TIMEOUT_MS_MAX,
        help="Time after which a silent member is removed; `classic` only.",
    ),
]
ResetOption = Annotated[
    ResetPolicy,
    typer.Option(metavar="earliest|latest|none", help="Where to begin without a committed offset."),
]
StrategyOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="range, roundrobin, cooperative-sticky, or Java's class; `classic` only.",
    ),
]


def verifiable_consumer(
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    group_id: GroupIdOption,
    group_protocol: ProtocolOption = GroupProtocol.CLASSIC,
    group_remote_assignor: RemoteAssignorOption = None,
    group_instance_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Makes it a static member.")
    ] = None,
    max_messages: MaxMessagesOption = FOREVER,
    session_timeout: SessionTimeoutOption = SESSION_TIMEOUT_MS,
    enable_autocommit: Annotated[
        bool, typer.Option("--enable-autocommit", help="Commits periodically, in the client.")
    ] = False,
    reset_policy: ResetOption = ResetPolicy.EARLIEST,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Prints an event for each record as well.")
    ] = False,
    assignment_strategy: StrategyOption = "range",
    command_property: PropertyOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Reads as a group's member, with an event for each step. Options and events, a line of JSON
    each, are those of Apache Kafka's tool.

    SIGINT and SIGTERM end it after a last commit. Exit status 1 if an error ends it.
    """

    if group_protocol is GroupProtocol.CLASSIC:
        place = _classic(assignment_strategy, session_timeout)
    else:
        place = _kip_848(group_remote_assignor)
    reset = "error" if reset_policy is ResetPolicy.NONE else reset_policy.value
    defaults = {
        **place,
        **({} if group_instance_id is None else {"group.instance.id": group_instance_id}),
        "group.id": group_id,
        "enable.auto.commit": enable_autocommit,
        "auto.offset.reset": reset,
        # As Java's clients; librdkafka's default is the other.
        "isolation.level": "read_uncommitted",
    }
    settings = client_settings(command_property)
    consumer = new_client(Consumer, bootstrap_server, defaults, settings, command_config)
    partitions_of(consumer, topic)
    member = _Member(consumer, max_messages, commits=not enable_autocommit, verbose=verbose)
    with counted_signals() as ending:
        try:
            member.run(topic, ending)
        finally:
            member.close()


def _classic(strategy: str, session_timeout_ms: int) -> dict[str, Any]:
    check_known("--assignment-strategy", strategy, list(STRATEGIES))
    return {
        "partition.assignment.strategy": STRATEGIES[strategy],
        "session.timeout.ms": session_timeout_ms,
        # A client may not be given less time for its work than to be heard of.
        "max.poll.interval.ms": max(session_timeout_ms, MAX_POLL_INTERVAL_MS),
    }


def _kip_848(assignor: str | None) -> dict[str, Any]:
    settings = {"group.protocol": GroupProtocol.CONSUMER.value}
    return settings if assignor is None else {**settings, "group.remote.assignor": assignor}


class _Member:
    """One consumer, and the records that it has yet to tell of."""

    def __init__(self, consumer: Consumer, count: int, *, commits: bool, verbose: bool) -> None:
        self._consumer = consumer
        self._left = None if count == FOREVER else count
        self._commits = commits
        self._verbose = verbose
        self._records: list[Message] = []

    def run(self, topic: str, ending: Ending) -> None:
        """Reads until it has all, or a signal ends this process. KafkaError if an error ends
        it.
        """

        say_event("startup_complete")
        with kafka_errors():
            self._consumer.subscribe([topic], on_assign=_tell_assigned, on_revoke=self._revoked)
            while self._left != 0 and not ending.signals:
                self._poll()
                self._hand_over()

    def close(self) -> None:
        """Leaves the group, which takes its partitions."""
        self._consumer.close()
        say_event("shutdown_complete")

    def _poll(self) -> None:
        """Takes what is there already, once there is something."""
        wait_s = POLL_S
        limit = POLL_RECORDS_MAX if self._left is None else min(POLL_RECORDS_MAX, self._left)
        while len(self._records) < limit and (message := self._consumer.poll(wait_s)) is not None:
            wait_s = 0
            if (error := message.error()) is None:
                self._records.append(message)
            elif not _is_harmless(error):
                self._hand_over()
                raise _ended_by(error)

    def _hand_over(self) -> None:
        """Reports the records that came, and commits them."""
        records, self._records = self._records, []
        if not records:
            return
        by_partition: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for one in records:
            by_partition[str(one.topic()), int(one.partition() or 0)].append(one)
        self._left = None if self._left is None else self._left - len(records)
        if self._verbose:
            for one in records:
                _tell_record(one)
        summaries = [_summary(*place, found) for place, found in by_partition.items()]
        say_event("records_consumed", count=len(records), partitions=summaries)
        if self._commits:
            self._commit(summaries)

    def _commit(self, summaries: list[dict[str, Any]]) -> None:
        places = [(one["topic"], one["partition"], one["maxOffset"] + 1) for one in summaries]
        wanted = [TopicPartition(*place) for place in places]
        error = None
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
            error = next((one.error for one in done or () if one.error is not None), None)
        except KafkaException as failure:
            error = failure.args[0]
        outcome = {} if error is None else {"error": error.str()}
        offsets = [{"topic": t, "partition": p, "offset": offset} for t, p, offset in places]
        say_event("offsets_committed", offsets=offsets, **outcome, success=error is None)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Before another member reads on from what is committed.
        self._hand_over()
        say_event("partitions_revoked", partitions=_places(partitions))


def _tell_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    say_event("partitions_assigned", partitions=_places(partitions))


def _tell_record(message: Message) -> None:
    say_event(
        "record_data",
        key=text_of(message.key()),
        value=text_of(message.value()),
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
    )


def _summary(topic: str, partition: int, records: list[Message]) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "count": len(records),
        "minOffset": records[0].offset(),
        "maxOffset": records[-1].offset(),
    }


def _places(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]


def _is_harmless(error: Any) -> bool:
    """Whether the client goes on by itself: it was paused for long, or is at the end."""
    return error.code() in (Errors._MAX_POLL_EXCEEDED, Errors._PARTITION_EOF)


def _ended_by(error: Any) -> KafkaError:
    if error.code() == Errors._AUTO_OFFSET_RESET:
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{error.str()}; see --reset-policy")
    return client_error(error.code(), error.str())
