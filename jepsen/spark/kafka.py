"""The anomalies of logs in SQL, each as `jepsen.checkers.kafka.anomalies` defines it.

From the records three tables are made, once: a row for each place of a log (`places`), a row for
each value of a key with all that is known of it (`values`), and the records with what is known of
their values (`placed`). Each anomaly is then one query over these. Where one has a list of values
that were skipped, it is cut at `SKIPPED_MAX`.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from jepsen.checkers.kafka.check import ALLOWED, ALLOWED_SUBSCRIBED
from jepsen.spark.findings import Findings, kept, refuse
from jepsen.spark.records import records_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.spark.loading import Histories

SKIPPED_MAX = 100


def check_log(histories: Histories, scratch: Path) -> Findings:
    """All anomalies of logs but cycles and commits. Raises InputError for other operations."""
    tables = _tables(histories, scratch)
    spark = histories.operations.sparkSession
    found = reduce(
        lambda one, other: one.unionByName(other),
        (spark.sql(query, **tables) for query in (*_QUERIES, *_STEP_QUERIES)),
    )
    told = spark.sql(_HISTORIES, operations=histories.operations, **tables)
    allowed, moved = _texts(ALLOWED), _texts(ALLOWED_SUBSCRIBED)
    anomalies = spark.sql(
        f"""SELECT found.*, name IN ({allowed}) OR (subscribed AND name IN ({moved})) AS allowed
        FROM {{found}} found JOIN {{told}} told ON found.history = told.history""",
        found=found,
        told=told,
    )
    anomalies = kept(anomalies, scratch / "found")
    verdicts = spark.sql(_VERDICTS, anomalies=anomalies, told=told, **tables)
    return Findings(verdicts, anomalies)


def _texts(words: frozenset[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def _tables(histories: Histories, scratch: Path) -> dict[str, DataFrame]:
    spark = histories.operations.sparkSession

    tables = {"records": kept(records_of(histories.operations), scratch / "records")}
    refused = tables["records"].where("kind = 'refused'")
    refuse(refused.selectExpr("history", "value AS refused"))
    for name, query in (("values", _VALUES), ("places", _PLACES), ("placed", _PLACED)):
        tables[name] = kept(spark.sql(query, **tables), scratch / name)
    for name, query in (("polled", _POLLED_STEPS), ("sent", _SENT_STEPS)):
        tables[name] = kept(spark.sql(query, **tables), scratch / name)
    return tables


def _shown(column: str) -> str:
    """The text of a value as JSON, also if it is EDN."""
    quoted = f"to_json(named_struct('v', {column}))"
    text = f"substring({quoted}, 6, length({quoted}) - 6)"
    return f"CASE WHEN {column} LIKE '#%' THEN {text} ELSE {column} END"


def _detail(**fields: str) -> str:
    """A JSON object whose fields are SQL expressions of JSON texts or numbers."""
    parts = [f"""'"{name.replace("_", "-")}": ', {sql}""" for name, sql in fields.items()]
    inside = ", ', ', ".join(parts)
    return f"concat('{{{{', {inside}, '}}}}')"


def _list(column: str) -> str:
    """A JSON array of an SQL array of texts or numbers."""
    return f"concat('[', array_join({column}, ', '), ']')"


_KEY, _VALUE = _shown("key"), _shown("value")

# --- the tables -----------------------------------------------------------------------------------

_VALUES = """
WITH seen AS (
    SELECT DISTINCT history, key, value FROM {records} WHERE kind = 'poll' AND type = 'ok'
), unknown AS (
    SELECT * FROM {records} WHERE kind = 'send' AND type = 'info'
), committed AS (
    SELECT DISTINCT history, call, true AS committed FROM unknown LEFT SEMI JOIN seen
    USING (history, key, value)
), mine AS (
    SELECT records.*, kind = 'poll' OR type = 'ok' OR coalesce(committed, false) AS counts
    FROM (SELECT * FROM {records} WHERE kind IN ('send', 'poll')) records
    LEFT JOIN committed USING (history, call)
)
SELECT history, key, value,
    bool_or(kind = 'poll' AND type = 'ok') AS seen,
    min(call) FILTER (WHERE kind = 'poll' AND type = 'ok') AS first_seen,
    min(call) FILTER (WHERE kind = 'send') AS writer,
    min_by(type, call) FILTER (WHERE kind = 'send') AS writer_type,
    min_by(invoked, call) FILTER (WHERE kind = 'send') AS writer_invoked,
    bool_or(kind = 'poll') AS polled,
    bool_or(kind = 'poll' AND coalesce(offset = 0, false)) AS polled_at_zero,
    sort_array(collect_set(offset) FILTER (WHERE counts AND offset >= 0)) AS offsets,
    sort_array(collect_set(call) FILTER (WHERE kind = 'send' AND counts)) AS certain_sends
FROM mine GROUP BY history, key, value
"""

_PLACES = f"""
WITH exploded AS (
    SELECT history, key, value, writer, explode(offsets) AS offset FROM {{values}}
), grouped AS (
    SELECT history, key, offset, sort_array(collect_list(struct(
        CASE WHEN value RLIKE '^-?[0-9]+$' THEN 'int' WHEN value LIKE '"%' THEN 'str' ELSE 'other'
            END AS kind,
        try_cast(value AS decimal(38, 0)) AS number, {_VALUE} AS text, writer))) AS values
    FROM exploded GROUP BY history, key, offset
)
SELECT *, row_number() OVER (PARTITION BY history, key ORDER BY offset) - 1 AS index FROM grouped
"""

_PLACED = """
WITH known AS (
    SELECT of_value.*, places.index FROM {values} of_value LEFT JOIN {places} places
    ON of_value.history = places.history AND of_value.key = places.key
        AND element_at(nullif(offsets, array()), -1) = places.offset
)
SELECT records.*, known.* EXCEPT (history, key, value, offsets, certain_sends),
    array_contains(certain_sends, call) AS certain
FROM (SELECT * FROM {records} WHERE kind IN ('send', 'poll')) records JOIN known
ON records.history = known.history AND records.key = known.key AND records.value = known.value
"""

# --- anomalies of single records ------------------------------------------------------------------

_QUERIES = (
    f"""SELECT history, key, 'duplicate' AS name,
        {_detail(key=_KEY, value=_VALUE, count="size(offsets)", offsets=_list("offsets"))}
            AS detail,
        filter(array(writer), x -> x IS NOT NULL) AS lines
    FROM {{values}} WHERE size(offsets) > 1""",
    f"""SELECT history, key, 'inconsistent-offsets' AS name,
        {_detail(key=_KEY, offset="offset", index="index", values=_list("values.text"))} AS detail,
        filter(values.writer, x -> x IS NOT NULL) AS lines
    FROM {{places}} WHERE size(values) > 1""",
    f"""SELECT history, key, 'spurious-zero-offset' AS name,
        {_detail(key=_KEY, value=_VALUE)} AS detail, array(call) AS lines
    FROM {{placed}}
    WHERE kind = 'send' AND type = 'ok' AND offset = 0 AND polled AND NOT polled_at_zero""",
    f"""SELECT history, key, 'G1a' AS name,
        {_detail(key=_KEY, value=_VALUE, writer="writer", reader="call")} AS detail,
        array(writer, call) AS lines
    FROM {{placed}} WHERE kind = 'poll' AND type = 'ok' AND writer_type = 'fail'""",
    f"""SELECT history, key, 'unexpected' AS name,
        {_detail(key=_KEY, value=_VALUE, offset="coalesce(string(offset), 'null')")} AS detail,
        array(call) AS lines
    FROM {{placed}} WHERE kind = 'poll' AND writer IS NULL
        AND history IN (SELECT history FROM {{records}} WHERE kind = 'send')""",
    f"""SELECT history, key, 'precommitted-read' AS name,
        {_detail(key=_KEY, value=_VALUE)} AS detail, array(call) AS lines
    FROM {{placed}} WHERE kind = 'poll' AND type = 'ok' AND own""",
    f"""WITH furthest AS (
        SELECT history, key, max(index) AS max_index,
            min(call) FILTER (WHERE index = high) AS reader
        FROM (SELECT *, max(index) OVER (PARTITION BY history, key) AS high FROM {{placed}}
            WHERE kind = 'poll' AND type = 'ok' AND index IS NOT NULL)
        GROUP BY history, key
    )
    SELECT lost.history, lost.key, 'lost-write' AS name,
        {
        _detail(
            key=_shown("lost.key"),
            value=_VALUE,
            index="index",
            max_read_index="max_index",
            writer="call",
            max_read="reader",
        )
    } AS detail, array(call, reader) AS lines
    FROM {{placed}} lost JOIN furthest
    ON lost.history = furthest.history AND lost.key = furthest.key
    WHERE kind = 'send' AND certain AND NOT seen AND index <= max_index""",
    f"""WITH newest AS (
        SELECT history, key, max(writer_invoked) AS last_sent FROM {{placed}}
        WHERE kind = 'poll' AND type = 'ok' GROUP BY history, key
    ), parts AS (
        SELECT *, min(first_seen) OVER (PARTITION BY history, call) AS shown FROM {{placed}}
        WHERE kind = 'send' AND f = 'txn' AND type <> 'fail'
    )
    SELECT parts.history, parts.key, 'torn-transaction' AS name,
        {_detail(key=_shown("parts.key"), value=_VALUE)} AS detail, array(call, shown) AS lines
    FROM parts JOIN newest ON parts.history = newest.history AND parts.key = newest.key
    WHERE first_seen IS NULL AND last_sent > shown""",
    f"""WITH missing AS (
        SELECT history, key,
            sort_array(collect_list(struct(call, place, {_VALUE} AS text))) AS sends
        FROM {{placed}} WHERE kind = 'send' AND type = 'ok' AND NOT seen GROUP BY history, key
    )
    SELECT history, key, 'unseen' AS name,
        {_detail(key=_KEY, count="size(sends)", messages=_list("sends.text"))} AS detail,
        sends.call AS lines
    FROM missing""",
)

# --- anomalies of steps from one record to the next -----------------------------------------------

# Within a call from record to record; from call to call, from where the process stood (`moves`
# says which calls move it) to the first record, unless an assignment or a final poll came between.
_STEPS = """
WITH mine AS (
    SELECT * FROM {{placed}} WHERE kind = '{kind}' AND index IS NOT NULL
), inside AS (
    SELECT history, key, call, call AS earlier, true AS internal,
        lag(index) OVER same AS before, lag(value) OVER same AS value, index, value AS next_value
    FROM mine WINDOW same AS (PARTITION BY history, call, key ORDER BY place)
), calls AS (
    SELECT history, process, key, call, {moves} AS moves,
        min_by(struct(index, value), place) AS first, max_by(struct(index, value), place) AS last
    FROM mine GROUP BY history, process, key, call, type
), resets AS (
    SELECT history, process, call, kind,
        collect_list(key) FILTER (WHERE place >= 0) AS keys
    FROM {{records}} WHERE (kind = 'assign' AND type <> 'fail') OR kind = 'final-poll'
    GROUP BY history, process, call, kind
), cuts AS (
    SELECT tracks.history, tracks.process, tracks.key, call FROM resets JOIN (
        SELECT DISTINCT history, process, key FROM calls
    ) tracks ON tracks.history = resets.history AND tracks.process = resets.process
    WHERE kind = 'final-poll' OR NOT array_contains(keys, tracks.key)
), events AS (
    SELECT history, process, key, call, 1 AS turn, moves, first, last FROM calls
    UNION ALL
    SELECT history, process, key, call, 0, NULL, NULL, NULL FROM cuts
), parts AS (
    SELECT *, count_if(turn = 0) OVER (
        PARTITION BY history, process, key ORDER BY call, turn
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS part
    FROM events
), outside AS (
    SELECT *, last(CASE WHEN moves THEN struct(call, last.index, last.value) END, true) OVER (
        PARTITION BY history, process, key, part ORDER BY call
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS stood
    FROM parts WHERE turn = 1
)
SELECT history, key, call, earlier, internal, before, value, next_value, index - before AS delta
FROM inside WHERE before IS NOT NULL AND index - before <> 1
UNION ALL
SELECT history, key, call, stood.call, false, stood.index, stood.value, first.value,
    first.index - stood.index
FROM outside WHERE stood IS NOT NULL AND first.index - stood.index <> 1
"""
_POLLED_STEPS = _STEPS.format(kind="poll", moves="type = 'ok'")
_SENT_STEPS = _STEPS.format(kind="send", moves="type <> 'fail'")

_VALUES_SHOWN = f"concat('[', {_shown('value')}, ', ', {_shown('next_value')}, ']')"
_STEP_QUERIES = (
    f"""WITH gaps AS (
        SELECT * FROM {{polled}} WHERE delta > 1
    ), leaps AS (
        SELECT history, key, before, delta,
            explode(sequence(before + 1, least(before + delta - 1, before + {SKIPPED_MAX}))) AS at
        FROM (SELECT DISTINCT history, key, before, delta FROM gaps)
    ), skipped AS (
        SELECT leaps.history, leaps.key, before, delta, transform(
            sort_array(collect_list(struct(at, array_min(values.text) AS text))), x -> x.text
        ) AS skipped
        FROM leaps JOIN {{places}} places ON leaps.history = places.history
            AND leaps.key = places.key AND leaps.at = places.index
        GROUP BY leaps.history, leaps.key, before, delta
    )
    SELECT history, key, CASE WHEN internal THEN 'int-poll-skip' ELSE 'poll-skip' END AS name,
        CASE WHEN internal THEN {
        _detail(key=_KEY, values=_VALUES_SHOWN, delta="delta", op="call", skipped=_list("skipped"))
    }
        ELSE {
        _detail(
            key=_KEY, delta="delta", ops=_list("array(earlier, call)"), skipped=_list("skipped")
        )
    } END AS detail,
        CASE WHEN internal THEN array(call) ELSE array(earlier, call) END AS lines
    FROM gaps JOIN skipped USING (history, key, before, delta)""",
    f"""SELECT history, key,
        CASE WHEN internal THEN 'int-nonmonotonic-poll' ELSE 'nonmonotonic-poll' END AS name,
        CASE WHEN internal THEN {_detail(key=_KEY, values=_VALUES_SHOWN, delta="delta", op="call")}
        ELSE {
        _detail(key=_KEY, delta="delta", ops=_list("array(earlier, call)"), values=_VALUES_SHOWN)
    } END AS detail,
        CASE WHEN internal THEN array(call) ELSE array(earlier, call) END AS lines
    FROM {{polled}} WHERE delta < 1""",
    f"""SELECT history, key, CASE WHEN NOT internal THEN 'nonmonotonic-send'
        WHEN delta > 1 THEN 'int-send-skip' ELSE 'int-nonmonotonic-send' END AS name,
        CASE WHEN internal THEN {_detail(key=_KEY, values=_VALUES_SHOWN, delta="delta", op="call")}
        ELSE {
        _detail(key=_KEY, values=_VALUES_SHOWN, delta="delta", ops=_list("array(earlier, call)"))
    } END AS detail,
        CASE WHEN internal THEN array(call) ELSE array(earlier, call) END AS lines
    FROM {{sent}} WHERE internal OR delta < 1""",
)

_HISTORIES = """
WITH told AS (
    SELECT history, bool_or(f = 'subscribe') AS subscribed,
        bool_or(kind = 'send' AND type = 'ok') AS sent,
        bool_or(kind = 'poll' AND type = 'ok') AS polled
    FROM {records} GROUP BY history
)
SELECT every.history, coalesce(subscribed, false) AS subscribed,
    CASE WHEN NOT coalesce(sent, false) THEN 'no send has succeeded'
        WHEN NOT polled THEN 'no poll has returned anything' ELSE '' END AS why_unknown
FROM (SELECT DISTINCT history FROM {operations}) every LEFT JOIN told
ON every.history = told.history
"""

_VERDICTS = """
WITH keys AS (
    SELECT history, key, count(DISTINCT call) AS operations FROM {placed} GROUP BY history, key
), wrong AS (
    SELECT DISTINCT history, key, true AS wrong FROM {anomalies} WHERE NOT allowed
)
SELECT told.history, coalesce(keys.key, 'null') AS key,
    CASE WHEN coalesce(wrong, false) THEN 'false' WHEN why_unknown <> '' THEN 'unknown'
        ELSE 'true' END AS valid,
    coalesce(operations, 0L) AS operations, 'sql' AS method,
    CASE WHEN coalesce(wrong, false) THEN '' ELSE why_unknown END AS why_unknown
FROM {told} told LEFT JOIN keys ON told.history = keys.history
LEFT JOIN wrong ON keys.history = wrong.history AND keys.key = wrong.key
"""
