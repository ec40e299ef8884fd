"""`format("raftctl-topic")`: topics of a live cluster as a table of Spark, or as a stream.

`spark.dataSource.register(TopicSource)`, then

    spark.read.format("raftctl-topic").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").load()

Options are those of Spark's own source for Kafka: `startingOffsets`, `endingOffsets` (tables only),
`maxOffsetsPerTrigger` (streams only), `failOnDataLoss`, `kafkaConsumer.pollTimeoutMs`, and what
Kafka's client takes, behind `kafka.`. The columns are `RECORDS`.

A task reads a partition. The offset of a stream is what each partition has been read up to, so a
micro-batch has the same records each time it is read, and a stream goes on from its checkpoint.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

NAME = "raftctl-topic"
EARLIEST, LATEST = "earliest", "latest"
_RELATIVE = {EARLIEST: -2, LATEST: -1}
"""As numbers, which is how JSON says it of one partition."""
_CLIENT = "kafka."
_SERVERS = "kafka.bootstrap.servers"
_LIMIT = "maxOffsetsPerTrigger"
_OPTIONS = {
    one.lower(): one
    for one in (
        "subscribe",
        "startingOffsets",
        "endingOffsets",
        _LIMIT,
        "failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs",
    )
}
_OURS = frozenset(
    {
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
    }
)
"""Settings of the client by the source itself, which is in no group."""
_POLL_TIMEOUT_MS = 120_000

Place = tuple[str, int]
"""Topic and partition."""
Bounds = tuple[int, int]
"""The first offset of a log, and the one after its last."""
Wanted = str | dict[Place, int]
"""`earliest`, `latest`, or offsets of which -2 and -1 mean these."""


@dataclass(frozen=True)
class TopicOptions:
    """The options of a table or stream, all of them understood."""

    topics: tuple[str, ...]
    client: tuple[tuple[str, str], ...]
    """Settings of Kafka's client that were asked for, the servers among them."""
    starting: Wanted
    ending: Wanted
    offsets_max: int | None
    """The bound of one micro-batch; None without a bound."""
    fail_on_data_loss: bool
    poll_timeout_s: float
    """The time without a record after which a task fails."""

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool = False) -> TopicOptions:
        """Parse the options of a table or a stream.

        Raises InputError for an option that is unknown, or has no such value.
        """
        options = {key.lower(): value for key, value in given.items()}
        client = {key: options.pop(key) for key in list(options) if _is_clients(key)}
        _refuse_unknown(options, client)
        starting, elsewhere = (LATEST, "endingOffsets") if stream else (EARLIEST, _LIMIT)
        if elsewhere.lower() in options:
            raise _refused(elsewhere, f"says nothing of a {'stream' if stream else 'table'}")
        names = map(str.strip, options.get("subscribe", "").split(","))
        topics = tuple(dict.fromkeys(filter(None, names)))
        if not topics:
            raise _refused("subscribe", "names no topic: give one, or several with commas")
        ending = _wanted("endingOffsets", options.get("endingoffsets", LATEST), topics)
        if ending == EARLIEST:
            raise _refused("endingOffsets", "would leave nothing to read: use latest or offsets")
        most = options.get(_LIMIT.lower())
        wait = options.get("kafkaconsumer.polltimeoutms", str(_POLL_TIMEOUT_MS))
        return cls(
            topics,
            tuple((key.removeprefix(_CLIENT), value) for key, value in sorted(client.items())),
            _wanted("startingOffsets", options.get("startingoffsets", starting), topics),
            ending,
            None if most is None else _positive(_LIMIT, most),
            _flag("failOnDataLoss", options.get("failondataloss", "true")),
            _positive("kafkaConsumer.pollTimeoutMs", wait) / 1000,
        )

    @property
    def servers(self) -> str:
        """Addresses of the cluster."""
        return dict(self.client)["bootstrap.servers"]


def _is_clients(key: str) -> bool:
    return key.startswith(_CLIENT)


def _refused(option: str, why: str) -> InputError:
    return InputError(f"{NAME}: {option} {why}")


def _refuse_unknown(options: Mapping[str, str], client: Mapping[str, str]) -> None:
    for key in options.keys() - _OPTIONS.keys():
        known = ", ".join([*_OPTIONS.values(), _CLIENT + "*"])
        raise _refused(key, f"is no option: use {known}")
    for key in client:
        if key.removeprefix(_CLIENT) in _OURS:
            raise _refused(key, "is what the source decides: leave it out")
    if not client.get(_SERVERS, "").strip():
        raise _refused(_SERVERS, "is missing: give it as host:port,host:port")


def _positive(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise _refused(option, f"{text!r} is no number above 0")
    return int(text)


def _flag(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _refused(option, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _wanted(option: str, text: str, topics: tuple[str, ...]) -> Wanted:
    if text.lower() in _RELATIVE:
        return text.lower()
    shape = '{"TOPIC": {"PARTITION": OFFSET}}'
    try:
        by_topic = json.loads(text)
        wanted = {
            (str(topic), int(partition)): offset
            for topic, offsets in by_topic.items()
            for partition, offset in offsets.items()
        }
    except (ValueError, AttributeError):
        raise _refused(option, f"is neither earliest nor latest nor {shape}") from None
    for (topic, partition), offset in wanted.items():
        if topic not in topics:
            raise _refused(option, f"names the topic {topic}, which subscribe does not")
        if type(offset) is not int or offset < -2:
            raise _refused(option, f"{topic}/{partition}: {offset!r} is no offset, -1 or -2")
    return wanted


def first_offsets(wanted: Wanted, bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """Return the begin in each log; unnamed ones begin at their first record."""
    return _absolute("startingOffsets", wanted, _RELATIVE[EARLIEST], bounds)


def end_offsets(wanted: Wanted, bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """Return the end in each log; unnamed ones end at their end."""
    return _absolute("endingOffsets", wanted, _RELATIVE[LATEST], bounds)


def _absolute(
    option: str, wanted: Wanted, otherwise: int, bounds: Mapping[Place, Bounds]
) -> dict[Place, int]:
    if isinstance(wanted, str):
        return _absolute(option, {}, _RELATIVE[wanted], bounds)
    for topic, partition in wanted.keys() - bounds.keys():
        raise _refused(option, f"names partition {partition}, which {topic} does not have")
    found = {}
    for place, (first, end) in bounds.items():
        asked = wanted.get(place, otherwise)
        found[place] = {_RELATIVE[EARLIEST]: first, _RELATIVE[LATEST]: end}.get(asked, asked)
        if found[place] > end:
            where = f"{place[0]}/{place[1]}"
            raise _refused(option, f"{asked} of {where} is beyond the end of the log, {end}")
    return found


def limited(
    begin: Mapping[Place, int], end: Mapping[Place, int], most: int | None
) -> dict[Place, int]:
    """Return offsets that are `most` in all ahead of `begin`, on the way to `end`.

    All logs get their share, and the rest of a short one goes to longer ones. None: no bound.
    """
    lags = {place: max(0, to - begin.get(place, 0)) for place, to in end.items()}
    left = sum(lags.values()) if most is None else most
    found = {}
    for number, place in enumerate(sorted(lags, key=lambda one: (lags[one], one))):
        share = min(lags[place], left // (len(lags) - number))
        left -= share
        found[place] = begin.get(place, 0) + share
    return found


def as_document(offsets: Mapping[Place, int]) -> dict[str, Any]:
    """Return offsets by topic and partition, as a checkpoint keeps and `startingOffsets` takes
    them.
    """
    document: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def of_document(document: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """Return the offsets that `as_document` has written."""
    return {
        (topic, int(partition)): offset
        for topic, offsets in document.items()
        for partition, offset in offsets.items()
    }


_KINDS: Any = OffsetSpec
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
RECORDS = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER))),
    ]
)
RECORDS_SQL = (
    "topic string NOT NULL, partition int NOT NULL, offset long NOT NULL, timestamp timestamp, "
    "key binary, value binary, headers array<struct<key: string, value: binary>>"
)
ASKED_S = 30.0
"""The time a cluster may take to answer."""
BATCH_RECORDS = 500
"""The records of a batch: of a megabyte each they still fit into a task's memory."""
_AGAIN_S = 0.1
_POLL_S = 0.1
"""What a task may wait at most once it has its last record."""
_PASSING = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""What a cluster answers while a partition gets a new leader (KIP-207)."""
_LOST = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_QUIET = {"log_level": "2"}
"""What is wrong is raised."""


class Piece(NamedTuple):
    """Piece that a task reads: the offsets from `begin` up to `end`."""

    topic: str
    partition: int
    begin: int
    end: int


def bounds_of(options: TopicOptions) -> dict[Place, Bounds]:
    """Return the first offset and the end of each partition. Raises InputError."""
    firsts = _offsets(options, _KINDS.earliest())
    return {place: (firsts.get(place, 0), end) for place, end in ends_of(options).items()}


def ends_of(options: TopicOptions) -> dict[Place, int]:
    """Return the end of each partition: of what a consumer may read. Raises InputError."""
    return _offsets(options, _KINDS.latest())


def _offsets(options: TopicOptions, which: Any) -> dict[Place, int]:
    admin = _admin(options.client)
    committed = dict(options.client).get("isolation.level") == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    deadline_s = time.monotonic() + ASKED_S
    while True:
        try:
            asked = {TopicPartition(*place): which for place in _places(admin, options)}
            futures = admin.list_offsets(asked, isolation_level=level, request_timeout=ASKED_S)
            return {(at.topic, at.partition): one.result().offset for at, one in futures.items()}
        except KafkaException as error:
            passing = error.args[0].code() in _PASSING
            if not passing or time.monotonic() > deadline_s:
                raise _no_answer(options, error) from None
            time.sleep(_AGAIN_S)


def _places(admin: AdminClient, options: TopicOptions) -> list[Place]:
    topics = TopicCollection(list(options.topics))
    places = []
    for name, one in admin.describe_topics(topics, request_timeout=ASKED_S).items():
        try:
            places += [(name, partition.id) for partition in one.result().partitions]
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:
                raise InputError(
                    f"{NAME}: subscribe names the topic {name}, which the cluster does not have"
                ) from None
            raise
    return places


def _no_answer(options: TopicOptions, error: KafkaException) -> InputError:
    return InputError(
        f"{NAME}: kafka.bootstrap.servers {options.servers}: {error.args[0].str()}: name brokers "
        "that can be reached, give what they ask of clients as kafka.* options, and see that each "
        "partition has a leader"
    )


@lru_cache(maxsize=8)
def _admin(client: tuple[tuple[str, str], ...]) -> AdminClient:
    """Kept between micro-batches. Raises InputError."""
    mine = {key: value for key, value in client if key != "isolation.level"}
    admin: AdminClient = _made(AdminClient, {**mine, **_QUIET})
    return admin


def _made(kind: type[Any], settings: dict[str, Any]) -> Any:
    try:
        return kind(settings)
    except KafkaException as error:
        raise InputError(f"{NAME}: kafka.*: {error.args[0].str()}") from None


def read_piece(options: TopicOptions, piece: Piece) -> Iterator[pa.RecordBatch]:
    """Return the records of a piece. Raises InputError if it can no longer be read."""
    settings = {
        "isolation.level": "read_uncommitted",
        **dict(options.client),
        **_QUIET,
        "group.id": NAME,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error" if options.fail_on_data_loss else "earliest",
    }
    consumer = _made(Consumer, settings)
    try:
        consumer.assign([TopicPartition(piece.topic, piece.partition, piece.begin)])
        yield from _batches(consumer, piece, options.poll_timeout_s)
    finally:
        consumer.close()


def _batches(consumer: Consumer, piece: Piece, wait_s: float) -> Iterator[pa.RecordBatch]:
    position, deadline_s = piece.begin, time.monotonic() + wait_s
    while position < piece.end:
        messages = consumer.consume(BATCH_RECORDS, _POLL_S)
        reached = max((_after(one, piece) for one in messages), default=position)
        if reached > position:
            position, deadline_s = reached, time.monotonic() + wait_s
        elif time.monotonic() > deadline_s:
            raise _unreadable(piece, f"no record after {position} within {wait_s:g} s")
        mine = [one for one in messages if _belongs(one, piece)]
        if mine:
            yield batch_of(mine)


def _after(message: Any, piece: Piece) -> int:
    """Where the log goes on behind what was heard: a record, or that here is its end."""
    error = message.error()
    if error is None:
        return int(message.offset()) + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.code() in _LOST:
        why = "these records are gone; read what is left with failOnDataLoss=false"
        raise _unreadable(piece, why)
    raise _unreadable(piece, error.str())


def _belongs(message: Any, piece: Piece) -> bool:
    return message.error() is None and piece.begin <= message.offset() < piece.end


def _unreadable(piece: Piece, why: str) -> InputError:
    at = f"{piece.topic}/{piece.partition} from {piece.begin} to {piece.end}"
    return InputError(f"{NAME}: {at}: {why}")


def batch_of(messages: Sequence[Any]) -> pa.RecordBatch:
    """Return records as a batch of `RECORDS`."""
    columns = zip(*map(_row, messages), strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(column), type=field.type)
            for column, field in zip(columns, RECORDS, strict=True)
        ],
        schema=RECORDS,
    )


def _row(message: Any) -> tuple[Any, ...]:
    kind, time_ms = message.timestamp()
    headers = message.headers()
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else time_ms * 1000,
        message.key(),
        message.value(),
        None if headers is None else [{"key": key, "value": value} for key, value in headers],
    )


Offset = dict[str, dict[str, int]]
"""The offset up to which each partition has been read, by topic and number."""


class TopicSource(DataSource):
    """Topics of a cluster that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns of `RECORDS`."""
        return RECORDS_SQL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of present records. Raises InputError."""
        return _Table(TopicOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of records that come. Raises InputError."""
        return _Stream(TopicOptions.of(self.options, stream=True))


class _Reader:
    """What a task does."""

    def __init__(self, options: TopicOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one piece. Raises InputError."""
        if partition.value is not None:  # Spark asks for it if there is nothing to read
            yield from read_piece(self._options, partition.value)


class _Table(_Reader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        """One a partition that has records. Raises InputError."""
        bounds = bounds_of(self._options)
        begin = first_offsets(self._options.starting, bounds)
        return _pieces(begin, end_offsets(self._options.ending, bounds))


class _Stream(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: TopicOptions) -> None:
        super().__init__(options)
        self._last: dict[Place, int] | None = None
        """Where the stream ends, if it is to."""

    def initialOffset(self) -> Offset:
        """What `startingOffsets` says. Raises InputError."""
        return as_document(first_offsets(self._options.starting, bounds_of(self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `maxOffsetsPerTrigger` says."""
        most = self._options.offsets_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on what comes is left to the next query."""
        self._last = ends_of(self._options)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next micro-batch reaches. Raises InputError if a log has become shorter."""
        begin = of_document(start)
        end = ends_of(self._options) if self._last is None else self._last
        if self._options.fail_on_data_loss:
            _refuse_shorter(begin, end)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return as_document(begin | limited(begin, end, most))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One a partition that has new records; a new one is read from its first."""
        return _pieces(of_document(start), of_document(end))


def _refuse_shorter(begin: Mapping[Place, int], end: Mapping[Place, int]) -> None:
    for place, offset in begin.items():
        if end.get(place, 0) < offset:
            topic, partition = place
            raise InputError(
                f"{NAME}: {topic}/{partition} ends at {end.get(place, 0)} but was read up to "
                f"{offset}: it has been made again; begin with a new checkpoint"
            )


def _pieces(begin: Mapping[Place, int], end: Mapping[Place, int]) -> list[InputPartition]:
    return [
        InputPartition(Piece(*place, begin.get(place, 0), last))
        for place, last in sorted(end.items())
        if begin.get(place, 0) < last
    ]
