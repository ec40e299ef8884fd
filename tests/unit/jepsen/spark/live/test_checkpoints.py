"""What is known of keys from micro-batch to micro-batch, without Spark running."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.checkers.linearizable import check_linearizable, quiescence
from jepsen.checkers.registry import LINEARIZABLE, model_named
from jepsen.history import Op, OpType
from jepsen.history.formats import to_json
from tests.kit.spark.equality import random_history

pytest.importorskip("pyspark", reason="needs raftctl[spark]")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J7")


class _Stream:
    """A history that is taken in micro-batches, each of them twice, as after a failure."""

    def __init__(self, folder: Path) -> None:
        from jepsen.spark.input import HistorySource

        folder.mkdir()
        self._folder = folder
        self._path = folder / "history.jsonl"
        self._reader = HistorySource({"path": str(self._path), "open": "true"}).streamReader(None)
        self._offset = self._reader.initialOffset()
        self._taken = 0
        self.kept: list[int] = []
        """The micro-batches whose folders are needed."""

    def shows(self, lines: list[Op]) -> dict[str, Any]:
        """What is known when these have been written, too."""
        import pyarrow as pa

        from jepsen.history.table import READ_COLUMNS
        from jepsen.spark.check import Question
        from jepsen.spark.live import NEEDED, Asked, taken

        with self._path.open("a") as file:
            file.writelines(to_json(op) + "\n" for op in lines)
        end = self._reader.latestOffset(self._offset)
        (partition,) = self._reader.partitions(self._offset, end)
        rows = pa.Table.from_batches(self._reader.read(partition)).select(READ_COLUMNS)
        before = self._taken - 1 if self._taken else None
        asked = Asked(Question(LINEARIZABLE), self._folder, before, self._taken, 100)
        found = [taken(rows.cast(NEEDED), asked, 0, attempt).to_pylist() for attempt in (1, 2)]
        assert found[0] == found[1]
        row: dict[str, Any] = found[0][0]
        self.kept = json.loads(row["kept"])
        for number in range(self._taken):
            if number not in self.kept:
                shutil.rmtree(asked.folder(number), ignore_errors=True)
        self._offset, self._taken = end, self._taken + 1
        return row | {"anomalies": json.loads(row["anomalies"])}


@pytest.mark.parametrize(("compiled_min", "live_share_min"), [(1, 0.25), (1_000_000, 0.9)])
def test_each_micro_batch_shows_what_one_process_finds_up_to_there(
    compiled_min: int, live_share_min: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jepsen.spark import live

    monkeypatch.setattr(quiescence, "RECHECKED_OPERATIONS", 3)
    monkeypatch.setattr(live, "RECHECKED_OPERATIONS", 3)
    monkeypatch.setattr(live, "COMPILED_MIN", compiled_min)
    monkeypatch.setattr(live, "LIVE_SHARE_MIN", live_share_min)
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


def test_what_keys_without_news_need_stays_where_it_is_until_the_rest_there_is_old(
    tmp_path: Path,
) -> None:
    stream, index, kept = _Stream(tmp_path / "stream"), 0, []
    for keys in (range(40), range(40), [7] * 40, [*range(35), *[7] * 5]):
        lines = []
        for key in keys:
            for kind in (OpType.INVOKE, OpType.OK):
                lines.append(Op(index, index, key, kind, "write", key, key))
                index += 1
        assert stream.shows(lines)["operations"] == index // 2
        kept.append(stream.kept)
    assert kept == [[0], [1], [1, 2], [3]]
