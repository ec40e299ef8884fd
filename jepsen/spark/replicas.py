"""Replicas compared on Spark: a task reads a dump, SQL finds where two hold other records."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PythonException

from jepsen.checkers.replicas import SHOWN_MAX, diverged, verdict_of
from jepsen.dumps import read_dump
from jepsen.errors import InputError
from jepsen.spark.findings import kept

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
_HELD_SQL = "replica string, partition string, offset long, record string"
_BATCH_ROWS = 10_000
_REFUSED = re.compile(r"InputError: (.+)")
# The records themselves are only looked at where their hashes say that they differ.
_PLACES = """
SELECT partition, offset, min(hash) <> max(hash) AS wrong FROM (
    SELECT partition, offset, replica, sha2(max(record), 256) AS hash FROM {held}
    GROUP BY partition, offset, replica
) GROUP BY partition, offset HAVING count(*) > 1
"""
_WRONG = """
SELECT partition, offset, replica, max(record) AS record
FROM {held} held LEFT SEMI JOIN {first} first USING (partition, offset)
GROUP BY partition, offset, replica
"""


def check_dumps(spark: SparkSession, files: Sequence[str], scratch: Path) -> Verdict:
    """As `jepsen.checkers.replicas.check_replicas`, of a dump of each replica. Every worker must
    see the files and what is below `scratch`.
    """
    names = spark.createDataFrame([(file,) for file in files], "file string")
    rows = names.repartitionByRange(len(files), "file").mapInArrow(_read, _HELD_SQL)
    try:
        held = kept(rows, scratch / "held")
    except PythonException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise InputError(refused[1]) from None
    places = kept(spark.sql(_PLACES, held=held), scratch / "places")
    wrong = places.where("wrong")
    first = wrong.orderBy("partition", "offset").limit(SHOWN_MAX)
    records: dict[tuple[str, int], dict[str, str]] = {}
    for row in spark.sql(_WRONG, held=held, first=first).collect():
        records.setdefault((row["partition"], row["offset"]), {})[row["replica"]] = row["record"]
    found = [diverged(*place, known) for place, known in sorted(records.items())]
    return verdict_of(found, len(files), places.count(), wrong.count())


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.column("file").to_pylist():
            records = read_dump(Path(file))
            while chunk := list(islice(records, _BATCH_ROWS)):
                partitions, offsets, texts = (list(column) for column in zip(*chunk, strict=True))
                columns = [[file] * len(chunk), partitions, offsets, texts]
                arrays = [
                    pa.array(one, kind.type) for one, kind in zip(columns, _HELD, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=_HELD)
