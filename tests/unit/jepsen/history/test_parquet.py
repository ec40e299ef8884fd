"""Histories as tables: written at the end of a run, judged as the JSON lines beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.history import HistoryError, Op, OpType, parquet
from jepsen.history.edn import Keyword
from jepsen.history.formats import to_json
from jepsen.history.parquet import read_parquet, write_parquet
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J6")

pq = pytest.importorskip("pyarrow.parquet", reason="needs raftctl[parquet]")

STALE = history(
    (0, "invoke", "write", 1),
    (0, "ok", "write", 1),
    (1, "invoke", "read", None),
    (1, "ok", "read", None),
    (2, "invoke", "cas", [1, 2]),
)


def test_what_clients_did_is_read_back(tmp_path: Path) -> None:
    lines = [
        Op(0, 10, 0, OpType.INVOKE, "txn", [["append", "k", 1]], "ü"),
        Op(1, 20, "nemesis", OpType.INFO, "kill", ["a"]),
        Op(2, 30, 1, OpType.INVOKE, "read", None),
        Op(3, 40, 0, OpType.INFO, "txn", [["append", "k", 1]], "ü", Keyword("timed-out")),
    ]
    path = tmp_path / "history.parquet"
    write_parquet(path, "test", lines)
    assert read_parquet(path) == ([lines[0], *lines[2:]], False)


def test_the_verdict_is_that_of_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, text = tmp_path / "table", tmp_path / "text"
    write_parquet(table, "test", STALE)
    text.write_text("".join(to_json(op) + "\n" for op in STALE))
    assert run(["check", str(table), str(text), "--output", "json"]) == 1
    of_table, of_text = json.loads(capsys.readouterr().out)
    assert of_table.pop("file") != of_text.pop("file")
    assert of_table == of_text


def test_a_lenient_history_is_judged_so(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_parquet(path, "test", STALE)
    table = pq.read_table(path)
    place = table.schema.get_field_index("lenient")
    lenient = table.set_column(place, "lenient", [[True] * len(table)])
    pq.write_table(lenient, path)
    assert run(["check", str(path)]) == 0
    assert run(["check", str(path), "--failures", "observe"]) == 1


def test_another_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_parquet(path, "one", STALE)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns("argument"), path)
    with pytest.raises(HistoryError, match="lacks the column argument"):
        read_parquet(path)
    path.write_bytes(parquet.MAGIC + b"damaged")
    with pytest.raises(HistoryError):
        read_parquet(path)


def test_without_pyarrow_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table"
    write_parquet(path, "one", STALE)
    monkeypatch.setattr(parquet, "available", lambda: False)
    assert run(["check", str(path)]) == 254
    assert "pip install '.[parquet]' in a checkout" in capsys.readouterr().err
