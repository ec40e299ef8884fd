"""`jepsen convert`: the same history in every form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.history.formats import read_edn, read_history, to_json
from tests.unit.jepsen.histories import history

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J6")
LINES = history(
    (0, "invoke", "write", 1),
    ("nemesis", "info", "kill", ["broker-1"]),
    (0, "ok", "write", 1),
    (1, "invoke", "cas", [1, 2]),
    (1, "info", "cas", [1, 2]),
)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "history"
    path.write_text("".join(to_json(op) + "\n" for op in LINES))
    return str(path)


def test_it_comes_back_from_edn_as_it_was(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, back = tmp_path / "there.edn", tmp_path / "back.jsonl"
    assert run(["convert", source, str(there)]) == 0
    assert f"{there}: " in capsys.readouterr().err, "it says what it wrote"
    assert read_edn(there.read_text()) == LINES
    assert run(["convert", str(there), str(back)]) == 0
    assert list(read_history(back)) == LINES
    assert run(["check", str(there), str(back), "--model", "cas-register"]) == 0


def test_parquet_keeps_what_clients_did(source: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs raftctl[parquet]")
    there, back = tmp_path / "there.parquet", tmp_path / "back.jsonl"
    assert run(["convert", source, str(there)]) == 0
    assert run(["convert", str(there), str(back)]) == 0
    told = [(op.process, op.type, op.f, op.value) for op in read_history(back)]
    assert told == [(op.process, op.type, op.f, op.value) for op in LINES if op.by_client]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("new.txt", "name it *.edn, *.jsonl, *.parquet"),
        ("old.edn", "exists already"),
        ("no/where.edn", "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_told(
    source: str, tmp_path: Path, target: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.edn").write_text("mine")
    assert run(["convert", source, str(tmp_path / target)]) == 254
    assert told in capsys.readouterr().err
    assert (tmp_path / "old.edn").read_text() == "mine"


def test_what_is_no_history_is_not_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("hello")
    assert run(["convert", str(tmp_path / "text"), str(tmp_path / "new.edn")]) == 254
    assert "not a history" in capsys.readouterr().err
    assert not (tmp_path / "new.edn").exists()
