"""Logs judged in blocks of keys, without Spark, beside the checker of one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.kafka import WRONG
from jepsen.errors import InputError
from jepsen.history import Op, OpType, ended_operations
from tests.kit.spark import logs as spark_logs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

pytestmark = pytest.mark.req("J7")
pytest.importorskip("pyspark", reason="needs raftctl[spark]")
pa = pytest.importorskip("pyarrow", reason="needs raftctl[spark]")
kafka = pytest.importorskip("jepsen.spark.logs._kafka", reason="needs raftctl[spark]")
records = pytest.importorskip("jepsen.spark.logs._records", reason="needs raftctl[spark]")
schema = pytest.importorskip("jepsen.history.table", reason="needs raftctl[spark]")

ACROSS = (*WRONG, "torn-transaction", "committed-offset-regression")
"""Take a look at several keys or other operations, for which Spark is needed."""
COLUMNS = ("history", "process", "f", "type", "invoked", "call", "text")


def _selected(histories: Mapping[str, Sequence[Op]]) -> Any:
    """The operations as `packed_of` has Spark select them."""
    rows = []
    for name, history in histories.items():
        for operation in ended_operations(history):
            invoke, end = operation.invoke, operation.completion
            value = invoke.value if end is None or end.value is None else end.value
            call = invoke.index if end is None else end.index
            head = (name, invoke.process, invoke.f, str(operation.type), invoke.index, call)
            rows.append((*head, schema.text_of(value)))
    return pa.RecordBatch.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def _found(histories: Mapping[str, Sequence[Op]]) -> dict[str, spark_logs.Found]:
    """By history all anomalies but those that are `ACROSS`."""
    packed = pa.Table.from_batches(records._batches([_selected(histories)]))
    rows = packed.to_pylist()
    about = kafka.about_of(row for row in rows if row["kind"] != records.RECORDS)
    order = sorted(
        (row["history"], row["key"], number)
        for number, row in enumerate(rows)
        if row["kind"] == records.RECORDS
    )
    mine = packed.take([number for *_, number in order])
    batches = mine.select(["history", "key", "texts", "records"]).to_batches()
    for batch in kafka._shown(batches):
        for row in batch.to_pylist():
            about[row["history"]].committed.append(row["call"])
    found: dict[str, spark_logs.Found] = {name: [] for name in histories}
    for batch in kafka._judged(batches, about=about):
        for row in batch.to_pylist():
            for one in row["anomalies"]:
                fields = {**json.loads(one["detail"]), "lines": one["lines"]}
                detail = json.dumps(fields, sort_keys=True)
                found[row["history"]].append((one["name"], detail, one["allowed"]))
    return {name: sorted(mine) for name, mine in found.items()}


def _wanted(histories: Mapping[str, Sequence[Op]]) -> dict[str, spark_logs.Found]:
    return {
        name: [one for one in spark_logs.found_in_one_process(history)[0] if one[0] not in ACROSS]
        for name, history in histories.items()
    }


@pytest.mark.parametrize("at_a_time", [40, 1_000_000])
def test_random_logs_have_the_anomalies_of_one_process(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(kafka, "BLOCK_RECORDS", at_a_time)
    monkeypatch.setattr(records, "PIECE_BYTES", 10 * at_a_time)
    monkeypatch.setattr(records, "COMPILED_MIN", 100)
    histories = spark_logs.random_logs(80, at_a_time)
    assert _found(histories) == _wanted(histories)


def _polls(f: str) -> list[Op]:
    """A process that polls the first and the third of three records."""
    lines: list[tuple[str, Any, Any]] = [
        ("send", [["send", "x", value]], [["send", "x", [value, value]]]) for value in range(3)
    ]
    lines += [(f, [["poll"]], [["poll", {"x": [[value, value]]}]]) for value in (0, 2)]
    lines += [("assign", [], []), ("poll", [["poll"]], [["poll", {"x": [[1, 1]]}]])]
    return [
        Op(2 * number + at, 0, 0, kind, name, value)
        for number, (name, asked, done) in enumerate(lines)
        for at, kind, value in ((0, OpType.INVOKE, asked), (1, OpType.OK, done))
    ]


def test_who_drains_is_in_a_group_and_may_be_moved() -> None:
    histories = {f: _polls(f) for f in ("poll", "drain")}
    found = _found(histories)
    assert found == _wanted(histories)
    allowed = {f: [allowed for name, _, allowed in mine] for f, mine in found.items()}
    assert allowed == {"poll": [False], "drain": [True]}


def test_an_offset_that_is_no_number_is_refused() -> None:
    send = [["send", "x", ["first", 1]]]
    history = [Op(0, 0, 0, OpType.INVOKE, "send", send), Op(1, 1, 0, OpType.OK, "send", send)]
    with pytest.raises(InputError, match="the offset first is no number of 64 bits"):
        _found({"one": history})


def test_numbers_as_far_apart_as_they_can_be_keep_their_order() -> None:
    np = pytest.importorskip("numpy")
    block = pytest.importorskip("jepsen.spark.logs._records")
    ends = np.array([2**63 - 1, -(2**63), 0, -(2**63)])
    code = block.order_of(np.array([0, 1, 1, 1]), ends, ends[::-1])
    assert np.argsort(code).tolist() == [0, 1, 3, 2]
