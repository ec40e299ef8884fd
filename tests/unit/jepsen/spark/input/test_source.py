"""A history that grows: what a micro-batch has of it and what it shows, without Spark running."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.errors import InputError
from jepsen.history import HistoryError, Op, OpType, ended_operations
from jepsen.history.formats import read_history, to_json
from tests.unit.jepsen.histories import history

source = pytest.importorskip("jepsen.spark.input._source", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.req("J7")

LINES = history(
    (0, "invoke", "write", 1),
    (1, "invoke", "read", None),
    ("nemesis", "info", "kill", None),
    (0, "ok", "write", 1),
    (0, "invoke", "write", 2),
    (1, "info", "read", None),
    (0, "ok", "write", 2),
)


def _append(path: Path, lines: list[Op], rest: str = "") -> None:
    with path.open("a") as file:
        file.write("".join(to_json(op) + "\n" for op in lines) + rest)


def _reader(path: Path, **options: str) -> Any:
    return source.HistorySource({"path": str(path), **options}).streamReader(None)


def _rows(reader: Any, start: Any, end: Any) -> list[tuple[int, int | None, str]]:
    return [
        (row["invoke_index"], row["complete_index"], row["type"])
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_an_operation_comes_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    reader, with_open = _reader(path), _reader(path, open="true")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start
    assert reader.partitions(start, start) == []
    _append(path, LINES[:5], to_json(LINES[5])[:10])
    middle = reader.latestOffset(start)
    assert _rows(reader, start, middle) == [(0, 3, "ok")]
    assert _rows(with_open, start, middle) == [(0, 3, "ok"), (1, None, "info"), (4, None, "info")]
    assert reader.latestOffset(middle) == middle
    _append(path, [], to_json(LINES[5])[10:] + "\n")
    _append(path, LINES[6:])
    end = reader.latestOffset(middle)
    assert _rows(_reader(path), middle, end) == [(1, 5, "info"), (4, 6, "ok")]
    assert _rows(with_open, middle, end) == [(1, 5, "info"), (4, 6, "ok")]
    assert _rows(reader, start, end) == [(0, 3, "ok"), (1, 5, "info"), (4, 6, "ok")]
    assert end["open"] == {}


VALUES = [None, 0, -5, 10**30, True, 1.0, "x", 'a"b', "ü\n", [1, None], [[1, [2]]], {"a": [1]}, []]


@pytest.mark.parametrize("spelled", [to_json, lambda op: json.dumps(json.loads(to_json(op)))])
def test_values_of_all_kinds_come_as_they_do_from_a_whole_history(
    spelled: Callable[[Op], str], tmp_path: Path
) -> None:
    from jepsen.history.table import batch_of, row_of

    lines: list[Op] = []
    for number, value in enumerate(VALUES):
        key = VALUES[-number]
        for kind in (OpType.INVOKE, OpType.OK if number % 3 else OpType.INFO):
            error = value if kind is OpType.INFO else None
            lines.append(Op(len(lines), len(lines), number, kind, "f", value, key, error))
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f"{spelled(op)}\n" for op in lines))
    reader = _reader(path)
    (partition,) = reader.partitions(start := reader.initialOffset(), reader.latestOffset(start))
    wanted = [row_of(str(path), False, one) for one in ended_operations(read_history(path))]
    found = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    assert found == batch_of(wanted).to_pylist()


def test_a_micro_batch_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_BYTES", 1)
    _append(tmp_path / "history.jsonl", LINES)
    reader = _reader(tmp_path)  # a run folder
    offsets = [reader.initialOffset()]
    while (end := reader.latestOffset(offsets[-1])) != offsets[-1]:
        offsets.append(end)
    assert len(offsets) == 1 + len(LINES)
    found = [row for turn in range(len(LINES)) for row in _rows(reader, *offsets[turn : turn + 2])]
    assert found == [(0, 3, "ok"), (1, 5, "info"), (4, 6, "ok")]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([LINES[3]], "line 1 has index 3"),
        (history((0, "ok", "write", 1)), "op 0: process 0 has begun nothing"),
        (history(*[(0, "invoke", "write", 1)] * 2), "op 1: process 0 has not finished another"),
        (history((2**70, "invoke", "write", 1)), "between bytes 0 and 0: .*too large"),
    ],
)
def test_what_is_no_history_is_refused(tmp_path: Path, lines: list[Op], why: str) -> None:
    _append(tmp_path / "bad", lines)
    reader = _reader(tmp_path / "bad")
    with pytest.raises(HistoryError, match=why):
        reader.latestOffset(reader.initialOffset())


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LINE_BYTES_MAX", 100)
    path = tmp_path / "history.jsonl"
    _append(path, LINES[:1], "{" * 99)
    reader = _reader(path)
    first = reader.latestOffset(reader.initialOffset())
    assert first["index"] == 1
    _append(path, [], "{")
    with pytest.raises(HistoryError, match="longer than 100 bytes"):
        reader.latestOffset(first)


def test_a_history_has_a_path() -> None:
    with pytest.raises(InputError, match="name the history in load"):
        source.HistorySource({}).streamReader(None)


def test_what_may_still_come_is_not_missing() -> None:
    from jepsen.spark.live import so_far

    unseen, lost = Anomaly("unseen"), Anomaly("lost-write")
    dark = Verdict("unknown", why_unknown="nothing")
    assert so_far(Verdict(False, (unseen,))) == Verdict(True)
    assert so_far(Verdict(False, (lost, unseen))) == Verdict(False, (lost,))
    for as_it_is in (dark, Verdict(False), Verdict(True)):
        assert so_far(as_it_is) == as_it_is


class _Stream:
    """What Spark says of a query each time it is asked, and how late it is then."""

    def __init__(self, judging: SimpleNamespace) -> None:
        self.asked = 0
        self._judging = judging
        self._told = [
            *[("Initializing sources", False, False)] * 9,
            *[("Getting offsets", False, True)] * 9,
            *[("Waiting for next trigger", False, False)] * 3,
            *[("Processing new data", True, True)] * 9,
        ]

    def monotonic(self) -> float:
        return float(self.asked)

    def awaitTermination(self, seconds: float) -> None:
        self.asked += 1
        if self.asked == len(self._told):
            self._judging.last_s = self.monotonic()

    @property
    def status(self) -> dict[str, Any]:
        told = self._told[self.asked : self.asked + 1] or [("Waiting for data", False, False)]
        return dict(zip(("message", "isDataAvailable", "isTriggerActive"), told[0], strict=True))


def test_a_stream_that_is_slow_to_start_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from jepsen.spark import live as watch

    judging = SimpleNamespace(goes_on=True, last_s=0.0)
    stream = _Stream(judging)
    monkeypatch.setattr(watch, "time", stream)
    watch._follow(cast("Any", stream), cast("Any", judging), 4.0)
    assert stream.asked == 30 + 5
