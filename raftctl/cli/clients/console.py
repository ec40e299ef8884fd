"""`raftctl console produce|consume`: records as lines, of any Kafka cluster.

As `kafka-console-producer` and `kafka-console-consumer`, whose options these are where they mean
the same. Clients are librdkafka's: acks=all and idempotent unless a property says otherwise.
"""

from __future__ import annotations

import enum
import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from raftctl.cli._arguments import why_without_key
from raftctl.cli._options import (
    BootstrapOption,
    CommandConfigOption,
    CommandGroup,
    Printer,
    PropertyOption,
    TopicOption,
)
from raftctl.cli._output import Output, counted, say, say_progress
from raftctl.cli._termination import terminate_as_interrupt
from raftctl.cli.clients._librdkafka import (
    assign_to_end,
    kafka_errors,
    new_client,
    partitions_of,
    topics_of,
)
from raftctl.cli.files import client_settings
from raftctl.errors import ConfigError, ErrorCode, KafkaError, client_error
from raftctl.integers import LONG_MAX
from raftctl.json_values import value_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Headers = list[tuple[str, str | bytes | None]]

app = CommandGroup("Writes lines as records, and shows records as lines.")

AT_ONCE = 500
"""Records that the client hands over at once."""
POLL_S = 0.2
OFFSETS_TIMEOUT_S = 10.0
_ANY_PARTITION = -1
"""To librdkafka: chosen by key, or by chance."""
PARTITION_MAX = 2**31 - 1
TIMEOUT_MS_MAX = 86_400_000


HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header of each record; repeatable."),
]


class Isolation(enum.StrEnum):
    """Which records of transactions are shown."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


IsolationOption = Annotated[
    Isolation,
    typer.Option(
        metavar="read_committed|read_uncommitted", help="Records of transactions to show."
    ),
]


# --- produce --------------------------------------------------------------------------------------


@app.command()
def produce(
    printer: Printer,
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    partition: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=PARTITION_MAX,
            help="Partition to write to; default: by key, or random.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text after the key in each line; default: no keys."),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text of a null value, that is of a tombstone."),
    ] = None,
    header: HeaderOption = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Longest wait for an acknowledgement.", min=0.1, max=3600
        ),
    ] = 30.0,
    command_property: PropertyOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Writes each line of standard input as a record. Prints their number and offsets.

    Exit status 1 if a record was not acknowledged: the lines before it are written, the lines
    after it may be.
    """
    if key_separator == "":
        raise ConfigError("--key-separator is empty: write the text between key and value")
    headers = _headers(header or ())
    defaults = {"enable.idempotence": True, "message.timeout.ms": int(timeout * 1000)}
    settings = client_settings(command_property)
    if settings.get("acks", "all") not in ("all", "-1"):
        defaults["enable.idempotence"] = False
    producer = new_client(Producer, bootstrap_server, defaults, settings, command_config)
    with kafka_errors():
        is_new = topic not in topics_of(producer)
    known = partitions_of(producer, topic)
    if is_new:
        say_progress(f"created topic {topic}: {counted(len(known), 'partition')}")
    if partition is not None and partition not in known:
        raise _no_such_partition(topic, partition, known)
    writing = _Writing(producer, topic, partition, headers)
    separator = None if key_separator is None else key_separator.encode()
    marker = None if null_marker is None else null_marker.encode()
    lines = typer.get_binary_stream("stdin")
    written = writing.write(_records(lines, separator, marker), timeout)
    document = {"topic": topic, "records": writing.acknowledged, "partitions": written}
    printer.show(document, f"wrote {counted(writing.acknowledged, 'record')} to {topic}")


def _headers(items: Iterable[str]) -> Headers:
    """In the order given; a name may come more than once, as in Kafka's records."""
    headers: Headers = []
    for item in items:
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise ConfigError(f"--header {item!a}: write NAME=VALUE")
        if any("\udc80" <= one <= "\udcff" for one in name):
            raise ConfigError(f"--header {item!a}: the name is not UTF-8")
        headers.append((name, value.encode(errors="surrogateescape")))
    return headers


def _records(
    lines: Iterable[bytes], separator: bytes | None, null_marker: bytes | None
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each line. KafkaError for a line without the separator."""
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        value: bytes | None = text
        if separator is not None:
            key, found, value = text.partition(separator)
            if not found:
                why = f"standard input, line {number} has no --key-separator; what comes before "
                raise KafkaError(ErrorCode.INVALID_RECORD, f"{why}it is written")
        yield key, None if value == null_marker else value


class _Writing:
    """Records under way, and what became of them."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        headers: Headers,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = _ANY_PARTITION if partition is None else partition
        self._headers = headers
        self._refused: Any = None
        self._has_keys = False
        self._written: dict[int, dict[str, int]] = {}
        self.acknowledged = 0

    def write(
        self, records: Iterable[tuple[bytes | None, bytes | None]], timeout_s: float
    ) -> list[dict[str, int]]:
        """The partitions, each with the first and last offset written. KafkaError for the first
        record that was refused.
        """
        try:
            with kafka_errors():
                for key, value in records:
                    self._give(key, value)
                    self._check()
        finally:
            # Also what was read before a line that is wrong.
            left = self._producer.flush(timeout_s + 1)
        self._check()
        if left:
            text = f"{left} records were not acknowledged within --timeout {timeout_s:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        return [
            {"partition": number, "first_offset": ends["first"], "last_offset": ends["last"]}
            for number, ends in sorted(self._written.items())
        ]

    def _give(self, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    partition=self._partition,
                    on_delivery=self._delivered,
                    headers=self._headers,
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(POLL_S)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            if self._refused is None:
                self._refused, self._has_keys = error, message.key() is not None
            return
        self.acknowledged += 1
        offset, partition = int(message.offset() or 0), int(message.partition() or 0)
        ends = self._written.setdefault(partition, {"first": offset, "last": offset})
        ends["first"], ends["last"] = min(ends["first"], offset), max(ends["last"], offset)

    def _check(self) -> None:
        if self._refused is not None:
            raised = client_error(self._refused.code(), self._refused.str())
            why = ""
            if not self._has_keys:
                why = why_without_key(raised.code, self._topic, "--key-separator")
            text = f"{raised.message}; {self.acknowledged} records were acknowledged before{why}"
            raise KafkaError(raised.code, text)


# --- consume --------------------------------------------------------------------------------------


@app.command()
def consume(
    printer: Printer,
    bootstrap_server: BootstrapOption,
    topic: TopicOption,
    partition: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=PARTITION_MAX, help="Partition to read; default: all."
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET", min=0, max=LONG_MAX, help="Offset to begin at; needs --partition."
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begins at the start instead of the end.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Group to read as, committing its offsets."),
    ] = None,
    isolation_level: IsolationOption = Isolation.COMMITTED,
    max_messages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Ends after this many records.")
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            min=1,
            max=TIMEOUT_MS_MAX,
            help="Ends after this time without a record.",
        ),
    ] = None,
    print_key: Annotated[
        bool, typer.Option("--print-key", help="Prints the key and a tab before each value.")
    ] = False,
    command_property: PropertyOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Shows records, a line each, until it is interrupted. JSON has all that is in a record.

    Exit status 1 if --timeout-ms ends it before --max-messages have come.
    """
    _check_place(partition, offset, from_beginning=from_beginning, group=group)
    defaults = {
        "group.id": group or "raftctl-console",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "isolation.level": isolation_level.value,
    }
    settings = client_settings(command_property)
    consumer = new_client(Consumer, bootstrap_server, defaults, settings, command_config)
    shown = 0
    try:
        with terminate_as_interrupt():
            _place(consumer, topic, partition, offset, from_beginning, group)
            for message in _messages(consumer, max_messages, timeout_ms):
                say(_line(message, printer.output, print_key))
                shown += 1
    finally:
        consumer.close()
        say_progress(f"{counted(shown, 'record')} shown")
    if max_messages is not None and shown < max_messages:
        text = f"no record for {timeout_ms} ms after {shown} of {max_messages}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


def _check_place(
    partition: int | None, offset: int | None, *, from_beginning: bool, group: str | None
) -> None:
    if offset is not None and partition is None:
        raise ConfigError("--offset needs --partition: offsets are those of one partition")
    if offset is not None and from_beginning:
        raise ConfigError("give either --offset or --from-beginning")
    if group is not None and partition is not None:
        raise ConfigError("give either --group or --partition: a group is assigned its partitions")
    if group == "":
        raise ConfigError("--group is empty: write a name")


def _place(
    consumer: Consumer,
    topic: str,
    partition: int | None,
    offset: int | None,
    from_beginning: bool,
    group: str | None,
) -> None:
    """Says what is to be read. KafkaError if it is not there."""
    known = partitions_of(consumer, topic)
    if group is not None:
        consumer.subscribe([topic])
        return
    if partition is not None and partition not in known:
        raise _no_such_partition(topic, partition, known)
    wanted = known if partition is None else [partition]
    if offset is None and not from_beginning:
        assign_to_end(consumer, topic, wanted)
        return
    start = OFFSET_BEGINNING if offset is None else offset
    if offset is not None:
        _check_offset(consumer, TopicPartition(topic, wanted[0]), offset)
    consumer.assign([TopicPartition(topic, one, start) for one in wanted])


def _check_offset(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    """KafkaError if no record can be there: the client would begin at the end, without a word."""
    with kafka_errors():
        first, end = consumer.get_watermark_offsets(partition, OFFSETS_TIMEOUT_S)
    if not first <= offset <= end:
        text = f"--offset {offset}: records begin at {first}, and the next one gets {end}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)


def _messages(consumer: Consumer, count: int | None, timeout_ms: int | None) -> Iterator[Message]:
    """The records that come, until there are so many or none for so long."""
    left, last = count, time.monotonic()
    while left is None or left > 0:
        with kafka_errors():
            messages = consumer.consume(AT_ONCE if left is None else min(AT_ONCE, left), POLL_S)
        for message in messages:
            error = message.error()
            if error is not None:
                raise client_error(error.code(), error.str())
            yield message
        now = time.monotonic()
        left = None if left is None else left - len(messages)
        if messages:
            last = now
        elif timeout_ms is not None and (now - last) * 1000 > timeout_ms:
            return


def _line(message: Message, output: Output, print_key: bool) -> str:
    key, value = message.key(), message.value()
    if output is Output.JSON:
        return json.dumps(_document(message))
    text = _text(value)
    return f"{_text(key)}\t{text}" if print_key else text


def _document(message: Message) -> dict[str, Any]:
    _, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms,
        **_fields("key", message.key()),
        **_fields("value", message.value()),
        "headers": [{"name": name, **_fields("value", value)} for name, value in headers],
    }


def _fields(name: str, value: Any) -> dict[str, Any]:
    return {name: None} if value is None else value_fields(bytes(value), name)


def _text(value: Any) -> str:
    return "null" if value is None else bytes(value).decode(errors="backslashreplace")


def _no_such_partition(topic: str, partition: int, known: list[int]) -> KafkaError:
    text = f"--partition {partition}: {topic} has the partitions 0 to {len(known) - 1}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
