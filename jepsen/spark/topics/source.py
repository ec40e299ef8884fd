"""`format("raftctl-topic")`: topics of a live cluster as a table of Spark, or as a stream.

`spark.dataSource.register(TopicSource)`, then

    spark.read.format("raftctl-topic").option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders").load()

Options are those of Spark's own source for Kafka: `startingOffsets`, `endingOffsets` (tables only),
`maxOffsetsPerTrigger` (streams only), `failOnDataLoss`, `kafkaConsumer.pollTimeoutMs`, and what
Kafka's client is to be told, behind `kafka.`. The columns are `topic_reads.RECORDS`.

A task reads a partition. The offset of a stream is what each partition has been read up to, so a
micro-batch has the same records each time it is read, and a stream goes on from its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from jepsen.spark.topics._reads import RECORDS_SQL, Piece, bounds_of, ends_of, read_piece
from jepsen.spark.topics.options import (
    NAME,
    TopicOptions,
    as_document,
    end_offsets,
    first_offsets,
    limited,
    of_document,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from jepsen.spark.topics.options import Place

Offset = dict[str, dict[str, int]]
"""By topic and partition, the offset up to which it has been read."""


class TopicSource(DataSource):
    """Topics of a cluster that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return NAME

    def schema(self) -> str:
        """The columns of `RECORDS`."""
        return RECORDS_SQL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of what is there now. Raises InputError."""
        return _Table(TopicOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of what comes. Raises InputError."""
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
                f"{offset}: it has been made anew; begin with a new checkpoint"
            )


def _pieces(begin: Mapping[Place, int], end: Mapping[Place, int]) -> list[InputPartition]:
    return [
        InputPartition(Piece(*place, begin.get(place, 0), last))
        for place, last in sorted(end.items())
        if begin.get(place, 0) < last
    ]
