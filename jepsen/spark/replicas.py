"""Replicas compared on Spark: a task reads a dump, SQL finds where two hold other records."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from jepsen.checkers.replication import SHOWN_MAX, diverged, verdict_of
from jepsen.history.table import batches_of, ddl
from jepsen.log_files import read_dump
from jepsen.spark._findings import kept, refused_by_tasks
from jepsen.spark._tuning import tune_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from jepsen.checkers.verdict import Verdict

_HELD = pa.schema(
    [
        pa.field("replica", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("record", pa.string()),
    ]
)
# What is brought to one place by partition and offset needs no further exchange, and of records
# that are the same everywhere nothing is kept.
_PLACES = """
WITH held AS (SELECT * FROM {held} DISTRIBUTE BY partition, offset),
each AS (
    SELECT partition, offset, replica, max(record) AS record FROM held
    GROUP BY partition, offset, replica
)
SELECT partition, offset,
    CASE WHEN min(record) <> max(record) THEN collect_list(struct(replica, record)) END AS records
FROM each GROUP BY partition, offset HAVING count(*) > 1
"""


def check_dumps(spark: SparkSession, files: Sequence[str], scratch: Path) -> Verdict:
    """As `jepsen.checkers.replication._copies.check_replicas`, of a dump of each replica. Every
    worker must see the files and what is below `scratch`. Raises InputError, naming file and line.
    """
    tune_for(spark, map(Path, files))
    numbers = spark.range(0, len(files), numPartitions=len(files))
    held = numbers.mapInArrow(partial(_read, files=tuple(files)), ddl(_HELD))
    with refused_by_tasks():
        places = kept(spark.sql(_PLACES, held=held), scratch / "places")
    (counts,) = places.selectExpr("count(*) AS shared", "count(records) AS wrong").collect()
    wrong = places.where("records IS NOT NULL").orderBy("partition", "offset").limit(SHOWN_MAX)
    found = [
        diverged(row["partition"], row["offset"], {one.replica: one.record for one in row.records})
        for row in wrong.collect()
    ]
    return verdict_of(found, len(files), counts["shared"], counts["wrong"])


def _read(batches: Iterable[pa.RecordBatch], *, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            file = files[number]
            yield from batches_of(((file, *held) for held in read_dump(Path(file))), _HELD)
