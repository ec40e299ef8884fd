"""The compiled reader of lines beside the one in Python: the columns must be the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from jepsen.history import HistoryError, Op, OpType
from jepsen.history.formats import to_json

pytest.importorskip("pyarrow", reason="needs raftctl[spark]")
np = pytest.importorskip("numpy", reason="needs raftctl[fast]")
compiled = pytest.importorskip("jepsen.compiled.text", reason="needs raftctl[fast]")
lines = pytest.importorskip("jepsen.spark.input._source", reason="needs raftctl[spark]")

pytestmark = pytest.mark.req("J7")

BEGIN = '{"index":0,"time":1,"process":2,"type":"ok","f":"txn","value":'
UNDERSTOOD = [
    *("null", "true", "0", "-7", "1" * 100, '""', '"née"', "[]", "{}", "[[]]", '[{},{"":[]}]'),
    *('[["send","a",1]]', '[["poll",{"a":[[0,1],[null,-2]],"b":[]}]]', '{"a":{"a":1},"b":{"a":2}}'),
    *('5,"key":"k"', 'null,"key":[1,{"a":2}]', '5,"error":"lost"', '1,"key":2,"error":["a",{}]'),
    *('1,"key":null', '1,"error":null'),
]
PYTHON_ALONE = [
    *("1.0", "1e3", "NaN", "-0", "1" * 101, '"\\n"', '"\\u00e9"', "[1, 2]", " 1", '{"a": 1}'),
    *('{"a":1,"a":2}', '{"b":[],"a":1,"b":2}', "[" * 60 + "]" * 60, '1,"error":2,"key":3'),
    *('1,"x":2', "1 ", '{"' + '":1,"'.join(map(str, range(70))) + '":1}'),
]
REFUSED = [
    *("", "[1", "[1,]", "[,1]", "{,}", '{"a"}', '{"a":}', '{"a":1', '{"a":1,}', "{1:2}", '"a'),
    *("[1}", '{"a":1]', "nul", "-", "01", "1,", '"a\x01"', '1}{"a":2'),
]
OTHER_LINES = [
    '{"index":0,"time":1,"process":"nemesis","type":"info","f":"kill","value":null}',
    '{"time":1,"index":0,"process":2,"type":"ok","f":"read","value":1}',
    '{"index":0,"time":-1,"process":-2,"type":"ok","f":"read","value":1}',
    '{"index":0,"time":1,"process":2,"type":"ok","f":"","value":1}',
    '{"index":0,"time":1,"process":2,"type":"ok","f":"a\\tb","value":1}',
]


def _columns(
    data: bytes, monkeypatch: pytest.MonkeyPatch, *, compiled_min: int
) -> list[dict[str, Any]]:
    monkeypatch.setattr(lines, "COMPILED_MIN", compiled_min)
    begins = np.cumsum([0, *map(len, data.splitlines(keepends=True))][:-1]) + 1000
    found: list[dict[str, Any]] = lines.lines_of(data, begins).to_pylist()
    return found


def _same(data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many lines the compiled reader understands."""
    wanted = _columns(data, monkeypatch, compiled_min=1 << 60)
    assert _columns(data, monkeypatch, compiled_min=0) == wanted
    ends = np.cumsum([len(line) for line in data.splitlines(keepends=True)])
    found = compiled.find_fields(np.frombuffer(data, np.uint8), ends)
    return int(np.count_nonzero(found[:, compiled.TYPE] >= 0))


def test_columns_are_those_of_the_reader_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = "".join(f"{BEGIN}{one}}}\n" for one in UNDERSTOOD).encode()
    assert _same(plain, monkeypatch) == len(UNDERSTOOD)
    others = "".join(f"{BEGIN}{one}}}\n" for one in PYTHON_ALONE) + "".join(
        f"{one}\n" for one in OTHER_LINES
    )
    assert _same(others.encode(), monkeypatch) == 0
    assert _same(plain + others.encode() + plain, monkeypatch) == 2 * len(UNDERSTOOD)


@pytest.mark.parametrize("value", REFUSED)
def test_what_is_no_operation_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{BEGIN}1}}\n{BEGIN}{value}}}\n".encode()
    with pytest.raises(HistoryError, match="no operation"):
        _columns(data, monkeypatch, compiled_min=0)


def test_bytes_that_are_no_text_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (BEGIN + '"').encode() + b'\xff"}\n' + f"{BEGIN}1}}\n".encode()
    found = _columns(data, monkeypatch, compiled_min=0)
    assert [row["value"] for row in found] == ['"\ufffd"', "1"]


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return (
            None,
            rng.random() < 0.5,
            rng.randint(-3, 10**18),
            rng.choice(("", "ü", 'a"')),
            0.5,
        )[kind]
    some = [_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return some if kind < 7 else {rng.choice("abcd\n"): one for one in some}


@pytest.mark.parametrize("spaces", [False, True])
def test_random_lines_are_read_alike(spaces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    written = []
    for index in range(500):
        kind = rng.choice(list(OpType))
        op = Op(index, index, rng.randint(0, 9), kind, "f", *(_value(rng) for _ in range(3)))
        line = to_json(op)
        written.append(json.dumps(json.loads(line)) if spaces else line)
    understood = _same("".join(f"{line}\n" for line in written).encode(), monkeypatch)
    assert understood == 0 if spaces else 100 < understood < 490
