"""`raftctl verifiable-producer`: counts up in records and reports the outcome of each.

As `kafka-verifiable-producer`, whose options and events these are. Nothing is sent twice (no
retries), so a record reported as an error may be in the log, and one reported as a success is.
"""

from __future__ import annotations

import enum
import itertools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import KafkaException, Message, Producer

from raftctl.cli._arguments import why_without_key
from raftctl.cli._options import BootstrapOption, CommandConfigOption, PropertyOption, TopicOption
from raftctl.cli._output import say_event
from raftctl.cli._termination import Ending, counted_signals
from raftctl.cli.clients._librdkafka import new_client, partitions_of
from raftctl.cli.clients._verifiable_events import FOREVER, POLL_S, MaxMessagesOption, text_of
from raftctl.cli.files import client_settings
from raftctl.errors import ConfigError, KafkaError, client_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INT_MAX = 2**31 - 1
_UNLIMITED = -1
_NO_OFFSET = -1
DELIVERY_TIMEOUT_MS = 120_000
"""As Apache Kafka's delivery.timeout.ms."""
_HURRIED = 2
"""Signals after which records on their way are given up."""


class Acks(enum.StrEnum):
    """Which replicas must have a record before it is acknowledged."""

    ALL = "-1"
    NONE = "0"
    LEADER = "1"


def verifiable_producer(
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    max_messages: MaxMessagesOption = FOREVER,
    throughput: Annotated[
        int,
        typer.Option(
            metavar="N", min=_UNLIMITED, max=_INT_MAX, help="Records per second; -1 is no limit."
        ),
    ] = _UNLIMITED,
    acks: Annotated[
        Acks,
        typer.Option(metavar="-1|0|1", help="-1: all in-sync replicas, 0: none, 1: the leader."),
    ] = Acks.ALL,
    value_prefix: Annotated[
        int | None, typer.Option(metavar="N", help="Values are N.0, N.1 and so on, not 0, 1.")
    ] = None,
    repeating_keys: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=_INT_MAX, help="Keys repeat from 0 to N - 1; default: null."
        ),
    ] = None,
    command_property: PropertyOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Writes numbers as records, with an event for each. Options and events, a line of JSON each,
    are those of Apache Kafka's tool.

    SIGINT and SIGTERM end it once all records are answered; a second signal ends it at once.
    Exit status 1 if a record was not acknowledged.
    """
    if throughput == 0:
        raise ConfigError("--throughput 0 would send nothing: write a rate, or -1 for no limit")

    defaults = {
        "acks": acks.value,
        "retries": 0,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        # Keys stand in the partitions in which Java's clients put them.
        "partitioner": "murmur2_random",
    }
    settings = client_settings(command_property)
    producer = new_client(Producer, bootstrap_server, defaults, settings, command_config)
    partitions_of(producer, topic)
    with counted_signals() as ending:
        run = _Run(producer, topic, ending)
        run.send_all(_records(max_messages, value_prefix, repeating_keys), throughput)
        run.close(throughput)
    run.check()


def _records(
    count: int, value_prefix: int | None, repeating_keys: int | None
) -> Iterator[tuple[str | None, str]]:
    """Key and value of each record."""
    prefix = "" if value_prefix is None else f"{value_prefix}."
    for number in itertools.count() if count == FOREVER else range(count):
        key = None if repeating_keys is None else str(number % repeating_keys)
        yield key, f"{prefix}{number}"


class _Run:
    """Records under way, and how many were sent and acknowledged."""

    def __init__(self, producer: Producer, topic: str, ending: Ending) -> None:
        self._producer = producer
        self._topic = topic
        self._ending = ending
        self._started_s = time.monotonic()
        self._sent = 0
        self._acked = 0
        self._first_error: Any = None
        self._first_has_key = False

    def send_all(self, records: Iterable[tuple[str | None, str]], throughput: int) -> None:
        """Sends until there are no more, or a signal ends this process."""
        say_event("startup_complete")
        self._started_s = time.monotonic()
        for number, (key, value) in enumerate(records):
            if throughput != _UNLIMITED:
                self._wait_until(self._started_s + number / throughput)
            while not (self._ending.signals or self._took(key, value)):
                self._producer.poll(POLL_S)
            if self._ending.signals:
                return
            self._producer.poll(0)

    def close(self, throughput: int) -> None:
        """Waits for the answers, unless another signal arrives, and sums up."""
        while self._producer.flush(POLL_S) and self._ending.signals < _HURRIED:
            pass
        self._producer.purge()
        self._producer.flush(POLL_S)
        say_event("shutdown_complete")
        seconds = time.monotonic() - self._started_s
        say_event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=throughput,
            avg_throughput=self._acked / seconds,
        )

    def check(self) -> None:
        """KafkaError if a record was not acknowledged."""
        if self._acked < self._sent and self._first_error is not None:
            raised = client_error(self._first_error.code(), self._first_error.str())
            lost = f"{self._sent - self._acked} of {self._sent} records were not acknowledged"
            why = ""
            if not self._first_has_key:
                why = why_without_key(raised.code, self._topic, "--repeating-keys")
            raise KafkaError(raised.code, f"{lost}; the first: {raised.message}{why}")

    def _wait_until(self, due_s: float) -> None:
        while (left := due_s - time.monotonic()) > 0 and not self._ending.signals:
            self._producer.poll(min(left, POLL_S))

    def _took(self, key: str | None, value: str) -> bool:
        """Gives a record to the client; False if its queue is full."""
        try:
            self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
        except BufferError:
            return False
        except KafkaException as error:
            self._refused(key, value, error.args[0])
        self._sent += 1
        return True

    def _delivered(self, error: Any, message: Message) -> None:
        key, value = text_of(message.key()), text_of(message.value())
        if error is not None:
            self._refused(key, value, error)
            return
        self._acked += 1
        offset = message.offset()
        say_event(
            "producer_send_success",
            key=key,
            value=value,
            topic=message.topic(),
            partition=message.partition(),
            # Who waits for no answer learns no offset.
            offset=_NO_OFFSET if offset is None or offset < 0 else offset,
        )

    def _refused(self, key: str | None, value: str | None, error: Any) -> None:
        if self._first_error is None:
            self._first_error, self._first_has_key = error, key is not None
        say_event(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=error.name(),
            message=error.str(),
        )
