"""Judges a history while it is being written, again and again.

With each micro-batch, and with what is open at its end, what has come so far is judged: the verdict
is that of `jepsen check` on the lines up to there, but for what may still come (`NOT_YET`). Where
each key is judged by itself only those with news are, from what is known of them (`_checkpoints`);
anything else is judged as a whole each time.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import StreamingQueryException

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.errors import InputError
from jepsen.history.table import OPERATIONS, ddl
from jepsen.spark._findings import refusal
from jepsen.spark.check import SHOWN_MAX, judge
from jepsen.spark.input import NAME, Histories, HistorySource
from jepsen.spark.live._checkpoints import Asked, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from jepsen.checkers.verdict import Valid
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


class _Whole:
    """Judges all that has come, again with each micro-batch."""

    def __init__(self, history: str, question: Question, scratch: Path) -> None:
        self._history = history
        self._question = question
        self._scratch = scratch
        self._ended: dict[int, int] = {}
        """By micro-batch, how many operations ended in it."""

    def judge(self, batch: DataFrame, number: int) -> Seen:
        """What has come with this micro-batch and before. Raises InputError."""
        # By its number, so that one that comes again after a failure is not there twice.
        mine = self._scratch / "came" / f"n={number}"
        batch.write.mode("overwrite").parquet(str(mine))
        spark = batch.sparkSession
        table = spark.read.schema(ddl(OPERATIONS))
        self._ended[number] = table.parquet(str(mine)).where(_ENDED).count()
        ended = sum(self._ended.values())
        came = spark.read.schema(f"{ddl(OPERATIONS)}, n int").parquet(str(self._scratch / "came"))
        rows = came.where(f"{_ENDED} OR n = {number}").select(*OPERATIONS.names)
        folder = self._scratch / f"turn-{number}"
        histories = Histories(rows, (self._history,), ended)
        found = judge(spark, histories, self._question, folder / "kept", folder)
        shutil.rmtree(folder)
        return Seen(ended, so_far(found[self._history]))


class _ByKey:
    """Judges the keys that have news, from what is known of them."""

    def __init__(self, history: str, question: Question, partitions: int, scratch: Path) -> None:
        self._history = history
        self._question = question
        self._partitions = partitions
        self._scratch = scratch
        self._known: list[int] = []
        """Micro-batches whose folders are there; the next one goes on from the last of them."""
        self._needed: set[int] = set()
        """Those whose folders the last one left in use, should the next one come again."""

    def judge(self, batch: DataFrame, number: int) -> Seen:
        """What is known with this micro-batch. Raises InputError."""
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")  # nothing to adapt
        earlier = [one for one in self._known if one < number]
        before = earlier[-1] if earlier else None
        asked = Asked(self._question, self._scratch, before, number, SHOWN_MAX)
        parts = judged(batch, self._partitions, asked)
        refused = next(filter(None, (one["refused"] for one in parts)), "")
        if refused:
            raise refusal(self._history, refused)
        needed = {number, *(kept for one in parts for kept in json.loads(one["kept"]))}
        known = {*earlier, number}
        for old in known - needed - self._needed:
            shutil.rmtree(asked.folder(old))
        self._known = sorted(known & (needed | self._needed))
        self._needed = needed
        return _seen(parts)


def _seen(parts: Sequence[dict[str, Any]]) -> Seen:
    """What the tasks say together."""
    names = ("keys", "operations", "keys_invalid", "keys_unknown")
    sums = {name: sum(one[name] for one in parts) for name in names}
    rows = [row for one in parts for row in json.loads(one["anomalies"])]
    rows.sort(key=lambda row: (row["lines"], row["key"]))
    found = [Anomaly(row["name"], json.loads(row["detail"]), tuple(row["lines"])) for row in rows]
    valid: Valid = not sums["keys_invalid"] and (not sums["keys_unknown"] or "unknown")
    why = sorted({why for one in parts for why in json.loads(one["why_unknown"])})
    unknown = "; ".join(why) if valid == "unknown" else ""
    return Seen(sums["operations"], Verdict(valid, tuple(found[:SHOWN_MAX]), (), sums, unknown))


class _Judge:
    """Takes the micro-batches."""

    def __init__(
        self, judge: Callable[[DataFrame, int], Seen], tell: Callable[[Seen], bool]
    ) -> None:
        self._judge = judge
        self._tell = tell
        self.goes_on = True
        self.refused: InputError | None = None
        """Why there is nothing to be judged."""
        self.last_s = time.monotonic()
        """When the last micro-batch was judged."""

    def take(self, batch: DataFrame, number: int) -> None:
        """Judges all that has come with this micro-batch."""
        try:
            seen = self._judge(batch, number)
        except InputError as error:
            self.refused, self.goes_on = error, False
        else:
            self.goes_on = self._tell(seen)
        self.last_s = time.monotonic()


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
    judge_one = (
        _ByKey(history, question, spark.sparkContext.defaultParallelism, scratch).judge
        if question.by_key
        else _Whole(history, question, scratch).judge
    )
    judging = _Judge(judge_one, tell)
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
