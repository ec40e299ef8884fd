"""What replicas hold, from dumps of their logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jepsen.checkers.replication import check_replicas
from jepsen.cli.main import run
from jepsen.log_files import Held, read_dump

pytestmark = pytest.mark.req("J4")

KAFKA = """Dumping /data/orders-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 partitionLeaderEpoch: 3 position: 0 crc: 77
| offset: 0 CreateTime: 17 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: a
| offset: 1 CreateTime: 17 keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: {value}
"""


def _batch(offset: int, *values: str, epoch: int = 0, directory: str = "b-1/orders-0") -> str:
    document: dict[str, Any] = {
        "file": f"/{directory}/00000000000000000000.log",
        "base_offset": offset,
        "last_offset": offset + len(values) - 1,
        "leader_epoch": epoch,
        "control": False,
        "crc": sum(map(len, values)),
    }
    document["records"] = [
        {"offset": offset + number, "timestamp": 5, "key": None, "value": value}
        for number, value in enumerate(values)
    ]
    return json.dumps(document)


def _dump(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_a_record_that_differs_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = '{"file": "/b-1/orders-0/00000000000000000000.index", "entries": 0}'
    one = _dump(tmp_path / "1", _batch(0, "a", "b"), index, _batch(2, "c", epoch=1))
    same = _dump(tmp_path / "2", _batch(1, "b", directory="b-2/orders-0"))
    other = _dump(tmp_path / "3", _batch(0, "a", "x", "c"), _batch(0, "y", directory="b-3/more-1"))
    assert run(["replicas", one, same]) == 0
    assert capsys.readouterr().out == "2 replicas valid\n"
    assert run(["replicas", one, same, other, "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["statistics"] == {"replicas": 3, "shared": 3, "diverged": 2}
    assert [(wrong["partition"], wrong["offset"]) for wrong in found["anomalies"]] == [
        ("orders-0", 1),
        ("orders-0", 2),
    ]
    assert '"value": "x"' in found["anomalies"][0]["records"][other]
    assert sorted(found["anomalies"][1]["records"]) == [one, other]


def test_dumps_of_kafkas_tool_are_read(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "xyz"]
    for path, value in zip(paths, "bbc", strict=True):
        path.write_text(KAFKA.replace("{value}", value))
    held = list(read_dump(paths[0]))
    assert [one[:2] for one in held] == [("orders-0", 0), ("orders-0", 1)]
    assert held[1].record.startswith("epoch 3 ")
    assert held[1].record.endswith("payload: b")
    verdicts = [check_replicas({str(one): read_dump(one) for one in paths[:n]}) for n in (2, 3)]
    assert [one.valid for one in verdicts] == [True, False]


def test_nothing_in_common_is_unknown_and_what_is_no_dump_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, whole = _dump(tmp_path / "empty"), _dump(tmp_path / "whole", _batch(0, "a"))
    assert run(["replicas", empty, whole]) == 2
    capsys.readouterr()
    bad = _dump(tmp_path / "bad", _batch(0, "a"), "{")
    early = _dump(tmp_path / "early", "| offset: 0 payload: a")
    for dumps, why in (
        ([whole, bad], f"{bad}: line 2: not a dump of a log"),
        ([whole, early], "a record before the name of its file"),
        ([whole, str(tmp_path / "absent")], "cannot be read: No such file"),
        ([whole], "two at least"),
        ([whole, whole], "none twice"),
    ):
        assert run(["replicas", *dumps]) == 254
        assert why in capsys.readouterr().err


def test_batches_without_records_are_compared_by_their_sums(tmp_path: Path) -> None:
    document = json.loads(_batch(0, "a", "b", epoch=2))
    del document["records"]
    dump = Path(_dump(tmp_path / "dump", json.dumps(document)))
    assert list(read_dump(dump)) == [Held("orders-0", 0, "epoch 2 to 1 crc 2")]


def test_the_metadata_log_of_a_data_directory_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = json.dumps({"file": "/b-1/__cluster_metadata-0/0.log", "base_offset": 0, "epoch": 1})
    one = _dump(tmp_path / "1", metadata, _batch(0, "a"))
    two = _dump(tmp_path / "2", metadata, _batch(0, "a"))
    assert run(["replicas", one, two]) == 0
    assert capsys.readouterr().out == "2 replicas valid\n"
    for line, named in (
        ('{"entries": 1}', "`file`"),
        ('{"file": "/b-1/t-0/0.log"}', "`leader_epoch`"),
    ):
        assert run(["replicas", one, _dump(tmp_path / "3", line)]) == 254
        assert named in capsys.readouterr().err
