"""Judges a history while it is being written, again and again.

Each micro-batch is added to what came before, with what is open at its end, and what has come so
far is judged: the verdict is that of `jepsen check` on the lines up to there, but for what may
still come (`NOT_YET`). Where each key is judged by itself only those are that the micro-batch has
touched; a key that was wrong stays wrong, so the history does.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import StreamingQueryException

from jepsen.checkers.verdict import merge_valid
from jepsen.errors import InputError
from jepsen.spark.check import judge
from jepsen.spark.loading import Histories
from jepsen.spark.schema import OPERATIONS, ddl
from jepsen.spark.source import NAME, HistorySource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from jepsen.checkers.verdict import Valid, Verdict
    from jepsen.spark.check import Question

NOT_YET = frozenset({"unseen"})
"""Anomalies that only the end of a history shows."""
_LOOK_S = 0.2
"""How often the file is looked at while nothing is to be judged."""
_STARTING = "Initializing"
"""How the message of a query's status begins until it looks for data."""
_ENDED = "complete_index IS NOT NULL"
_REFUSED = re.compile(r"HistoryError: (.+)")


class Seen(NamedTuple):
    """What was found when so much of the history was there."""

    operations: int
    """That have ended."""
    verdict: Verdict


class _Judge:
    """Takes the micro-batches."""

    def __init__(
        self, history: str, question: Question, scratch: Path, tell: Callable[[Seen], bool]
    ) -> None:
        self._history = history
        self._question = question
        self._scratch = scratch
        self._tell = tell
        self._keys_valid: Valid = True
        """Of all keys so far, where each is judged by itself."""
        self.goes_on = True
        self.refused: InputError | None = None
        """Why there is nothing to be judged."""
        self.last_s = time.monotonic()
        """When the last micro-batch was judged."""

    def take(self, batch: DataFrame, number: int) -> None:
        """Judges all that has come with this micro-batch."""
        # By its number, so that one that comes again after a failure is not there twice.
        batch.write.mode("overwrite").parquet(str(self._scratch / "came" / f"n={number}"))
        try:
            seen = self._judged(batch.sparkSession, number)
        except InputError as error:
            self.refused, self.goes_on = error, False
        else:
            self.goes_on = self._tell(seen)
        self.last_s = time.monotonic()

    def _judged(self, spark: SparkSession, number: int) -> Seen:
        came = spark.read.schema(f"{ddl(OPERATIONS)}, n int")
        rows = came.parquet(str(self._scratch / "came"))
        ended = rows.where(_ENDED).count()
        mine = rows.where(f"{_ENDED} OR n = {number}")
        if self._question.by_key:
            news = rows.where(f"{_ENDED} AND n = {number}").select("key").distinct()
            mine = mine.join(news, "key", "left_semi")
        folder = self._scratch / f"turn-{number}"
        histories = Histories(mine.select(*OPERATIONS.names), (self._history,), ended)
        found = judge(spark, histories, self._question, folder / "kept", folder)
        shutil.rmtree(folder)
        verdict = so_far(found[self._history])
        if self._question.by_key:
            self._keys_valid = merge_valid([self._keys_valid, verdict.valid])
            verdict = replace(verdict, valid=self._keys_valid)
        return Seen(ended, verdict)


def so_far(verdict: Verdict) -> Verdict:
    """The verdict without what only the end can show."""
    found = tuple(one for one in verdict.anomalies if one.name not in NOT_YET)
    if found == verdict.anomalies:
        return verdict  # it may be invalid without a word, where the search for one ran out
    return replace(verdict, anomalies=found, valid=verdict.valid if found else True)


def watch(
    spark: SparkSession,
    history: str,
    failures: str,
    question: Question,
    scratch: Path,
    tell: Callable[[Seen], bool],
    *,
    idle_s: float,
) -> None:
    """Tells what each micro-batch shows, until the history has not grown for so long, or `tell`
    answers that it wants no more.

    `history` is JSON lines or a run folder, and need not be there yet. What is made on the way
    goes below `scratch`, which every worker must see. Raises InputError for what is no history, or
    not of this checker.
    """
    spark.dataSource.register(HistorySource)
    judging = _Judge(history, question, scratch, tell)
    stream = spark.readStream.format(NAME).option("failures", failures).option("open", "true")
    query = (
        stream.load(history)
        .writeStream.foreachBatch(judging.take)
        .trigger(processingTime=f"{_LOOK_S} seconds")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    try:
        _follow(query, judging, idle_s)
    except StreamingQueryException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise InputError(f"{history}: {refused[1]}") from None
    finally:
        query.stop()
    if judging.refused is not None:
        raise judging.refused


def _follow(query: StreamingQuery, judging: _Judge, idle_s: float) -> None:
    """Returns when the judge wants no more, or for so long nothing has come.

    What it takes to start the stream and to look for the first time does not count: that may be
    longer than the time in which a writer has written all.
    """
    started = False
    while judging.goes_on:
        query.awaitTermination(_LOOK_S)
        status = query.status
        busy = status["isDataAvailable"] or status["isTriggerActive"]
        if not started:
            started = not (busy or status["message"].startswith(_STARTING))
            judging.last_s = time.monotonic()
        elif not busy and time.monotonic() - judging.last_s > idle_s:
            return
