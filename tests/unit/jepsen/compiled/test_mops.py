"""The compiled reader of sends and polls beside the one in Python: the records must be the same."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pa = pytest.importorskip("pyarrow", reason="needs raftctl[spark]")
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
mops = pytest.importorskip("jepsen.compiled.text", reason="needs raftctl[fast]")
records = pytest.importorskip("jepsen.spark.logs._records", reason="needs raftctl[spark]")

BOTH = [
    '[["send","a",1]]',
    '[["send","a",[3,-1]],["poll",{"b":[[0,1],[null,2]],"a":[[5,-1]]}]]',
    '[["poll",{"a":[[1,2],[2,3]]}],["send","a",2],["poll"],["send","b",[null,3]]]',
    '[["poll"]]',
    '[["poll",{}]]',
    '[["poll",{"a":[],"b":[]}]]',
    '[["send",7,[0,5]],["send","7",[0,5]]]',
    '[["send","née",999999999999999999]]',
]
PYTHON_ALONE = [
    "null",
    "[]",
    '[["send", "a", 1]]',
    '[["send","a\\n",1]]',
    '[["send","\\u00e9",1]]',
    '[["send","a",9999999999999999999]]',
    '[["send","a",1.5]]',
    '[["send","a","text"]]',
    '[["send","a",[0,null]]]',
    '[["poll",{"a":[[0,1]],"a":[[0,2]]}]]',
    "#[[:send 1 2]]",
    '[["drain",1]]',
]
REFUSED = ['[["send","a"]]', '[["poll",{"a":[1]}]]', '[["poll",[]]]', '[["send","a",1]', "[1]"]


def _operations(texts: Sequence[str]) -> Any:
    count = len(texts)
    columns = {
        "history": [f"history {number % 3}" for number in range(count)],
        "process": list(range(count)),
        "f": [("txn", "send", "poll")[number % 3] for number in range(count)],
        "type": [("ok", "info", "fail", "ok")[number % 4] for number in range(count)],
        "invoked": list(range(count)),
        "call": list(range(count, 2 * count)),
        "text": list(texts),
    }
    return pa.RecordBatch.from_pydict(columns)


def _rows(
    texts: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, compiled: bool
) -> list[dict[str, Any]]:
    monkeypatch.setattr(records, "COMPILED_MIN", 0 if compiled else len(texts) + 1)
    # As Spark may hand them over, part of something larger.
    batch = _operations(["null", *texts]).slice(1)
    made = [row for part in records._batches([batch]) for row in part.to_pylist()]
    return sorted(made, key=lambda row: (row["kind"], row["history"], row["key"], row["call"] or 0))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _micro(rng: random.Random) -> list[Any]:
    key, value = rng.choice(("a", "b", "ü", 5)), rng.randint(-3, 9)
    choice = rng.random()
    if choice < 0.5:
        return ["send", key, value if rng.random() < 0.5 else [rng.choice((None, 4)), value]]
    pairs = [[rng.randint(0, 5), rng.randint(-3, 9)] for _ in range(rng.randint(0, 3))]
    keys = rng.sample(("a", "b", "ü", "5"), rng.randint(0, 3))
    return ["poll", dict.fromkeys(keys, pairs)] if choice < 0.9 else ["poll"]


@pytest.mark.req("J7")
def test_records_are_those_that_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    made = [_text([_micro(rng) for _ in range(rng.randint(1, 5))]) for _ in range(300)]
    spoiled = [text[: rng.randint(1, len(text))] for text in made[:50]]
    texts = [*BOTH, *PYTHON_ALONE, *REFUSED, *made, *spoiled]
    rng.shuffle(texts)
    found = _rows(texts, monkeypatch, compiled=True)
    assert found == _rows(texts, monkeypatch, compiled=False)
    assert {row["kind"] for row in found} == {"records", "marks", "refused"}
    refused = [row for row in found if row["kind"] == "refused"]
    assert len(refused) >= len(REFUSED)
    assert _text("née") in {row["key"] for row in found}


def test_only_what_is_plain_is_understood() -> None:
    texts = [text.encode() for text in (*BOTH, *PYTHON_ALONE, *REFUSED)]
    ends = np.append(0, np.cumsum([len(text) for text in texts]))
    data = np.frombuffer(b"".join(texts), np.uint8)
    found = mops.read_mops(data, ends, np.ones(len(texts), bool))
    assert found.understood.tolist() == [number < len(BOTH) for number in range(len(texts))]
    unasked = mops.read_mops(data, ends, np.zeros(len(texts), bool))
    assert not len(unasked.records)
