"""What is known of keys from micro-batch to micro-batch, without Spark running."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers import standing
from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.registry import LINEARIZABLE, model_named
from jepsen.history import to_json
from tests.spark_equality import random_history

pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.history import Op

pytestmark = pytest.mark.req("J7")


class _Stream:
    """A history that is taken in micro-batches, each of them twice, as after a failure."""

    def __init__(self, folder: Path) -> None:
        from jepsen.spark.source import HistorySource

        folder.mkdir()
        self._folder = folder
        self._path = folder / "history.jsonl"
        self._reader = HistorySource({"path": str(self._path), "open": "true"}).streamReader(None)
        self._offset = self._reader.initialOffset()
        self._taken = 0

    def shows(self, lines: list[Op]) -> dict[str, Any]:
        """What is known when these have been written, too."""
        import pyarrow as pa

        from jepsen.spark.check import Question
        from jepsen.spark.schema import READ_COLUMNS
        from jepsen.spark.standings import NEEDED, Asked, taken

        with self._path.open("a") as file:
            file.writelines(to_json(op) + "\n" for op in lines)
        end = self._reader.latestOffset(self._offset)
        (partition,) = self._reader.partitions(self._offset, end)
        rows = pa.Table.from_batches(self._reader.read(partition)).select(READ_COLUMNS)
        before = self._folder / f"{self._taken - 1}" if self._taken else None
        asked = Asked(Question(LINEARIZABLE), before, self._folder / str(self._taken), 100)
        found = [taken(rows.cast(NEEDED), asked, 0, attempt).to_pylist() for attempt in (1, 2)]
        assert found[0] == found[1]
        self._offset, self._taken = end, self._taken + 1
        row: dict[str, Any] = found[0][0]
        return row | {"anomalies": json.loads(row["anomalies"])}


@pytest.mark.parametrize("compiled_min", [1, 1_000_000])
def test_each_micro_batch_shows_what_one_process_finds_up_to_there(
    compiled_min: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jepsen.spark import standings

    monkeypatch.setattr(standing, "SETTLE_OPERATIONS", 3)
    monkeypatch.setattr(standings, "SETTLE_OPERATIONS", 3)
    monkeypatch.setattr(standings, "COMPILED_MIN", compiled_min)
    model, seen = model_named("cas-register"), Counter[bool]()
    for seed in range(12):
        rng = random.Random(seed)
        lines = random_history(rng)
        stream, length = _Stream(tmp_path / str(seed)), 0
        wrong: set[str] = set()
        while length < len(lines):
            begin, length = length, length + rng.randint(1, 40)
            found = stream.shows(lines[begin:length])
            keys = check_linearizable(lines[:length], model).keys
            ended = Counter(op.key for op in lines[:length] if op.type != "invoke")
            assert found["operations"] == ended.total()
            assert found["keys"] == len(ended)
            assert found["keys_invalid"] == sum(key.valid is False for key in keys)
            wrong |= {one["key"] for one in found["anomalies"]}
            assert wrong == {json.dumps(key.key) for key in keys if key.valid is False}
            seen[not wrong] += 1
    assert min(seen[True], seen[False]) > 10
