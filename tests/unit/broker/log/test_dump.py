"""`raftctl log dump|verify` on the files of a partition."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.log import checkpoints
from broker.log.partition_log import create_log
from broker.types import TopicPartition
from raftctl.cli.app import run_app
from raftctl.cli.main import run
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.real import RealFileSystem
from tests.unit.broker.log.batches import keyed_batch
from tests.unit.broker.log.logs import headers

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = TopicConfig(segment_bytes=2_000, index_interval_bytes=200)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Forty batches in a few segments, closed cleanly."""
    directory = tmp_path / "topic.x-3"
    log = create_log(RealFileSystem(), str(directory), TopicPartition("topic.x", 3), CONFIG)
    for number in range(40):
        pairs: list[tuple[bytes, bytes | None]] = [(b"k%d" % number, b"v" * 40), (b"gone", None)]
        sent = keyed_batch(pairs, timestamp=number, codec=number % 5, producer=(9, 0, 2 * number))
        log.append_as_leader(sent, number // 20, 0)
    assert len(headers(log)) == 40
    plan = log.flush_plan(rolled_only=False, closing=True)
    assert plan is not None
    plan.run()
    log.close()
    return directory


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert run_app(["log", "dump", *arguments, "--output", "json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.req("L10")
def test_everything_of_a_partition_is_shown(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, str(partition))
    batches = [one for one in found if "base_offset" in one]
    assert [one["base_offset"] for one in batches] == list(range(0, 80, 2))
    assert {one["codec"] for one in batches} == {"uncompressed", "gzip", "snappy", "lz4", "zstd"}
    first = batches[0]["records"]
    assert first == [
        {"offset": 0, "timestamp": 0, "key": "k0", "value": "v" * 40},
        {"offset": 1, "timestamp": 1, "key": "gone", "value": None},
    ]
    epochs = [(one["leader_epoch"], one["start_offset"]) for one in found if "start_offset" in one]
    assert epochs == [(0, 0), (1, 40)]
    (producer,) = [one for one in found if "producer_id" in one and "last" in one]
    assert (producer["producer_id"], producer["epoch"]) == (9, 0)
    assert any("entry" in one and "position" in one for one in found)
    assert any("entry" in one and "timestamp" in one for one in found)
    later = printed(capsys, str(partition / f"{0:020d}.log"), "--from", "8", "--no-records")
    assert later[0]["base_offset"] == 8
    assert "records" not in later[0]


@pytest.mark.req("L10")
def test_a_partition_that_was_never_written_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, directory = RealFileSystem(), str(tmp_path / "topic.x-3")
    create_log(files, directory, TopicPartition("topic.x", 3), CONFIG)
    checkpoints.write_topic_ids(files, {directory: UUID(int=7)})
    (shown,) = printed(capsys, directory)
    assert shown["topic_id"] == str(UUID(int=7))
    assert run_app(["log", "verify", directory]) == 0


@pytest.mark.req("L10")
def test_a_whole_partition_verifies(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target in (partition, partition.parent, partition / f"{0:020d}.index"):
        assert run_app(["log", "verify", str(target)]) == 0
        output = capsys.readouterr()
        assert output.out == ""
        assert "0 problems" in output.err


@pytest.mark.req("L10")
@pytest.mark.parametrize(
    ("name", "at", "why"),
    [
        (f"{0:020d}.log", 30, "byte 0: the CRC32C is wrong"),
        (f"{0:020d}.log", 16, "byte 0: magic"),
        (f"{0:020d}.index", 3, "byte 0: (no batch at|entries are out of order)"),
        (f"{0:020d}.timeindex", 5, "byte 0: "),
        (f"{80:020d}.snapshot", 20, "byte 0: .* CRC32C is wrong"),
        ("leader-epoch-checkpoint", 0, "byte 0: .* version or count"),
    ],
)
def test_damage_is_named_by_file_and_byte(
    partition: Path, capsys: pytest.CaptureFixture[str], name: str, at: int, why: str
) -> None:
    path = partition / name
    data = bytearray(path.read_bytes())
    data[at] ^= 0x21
    path.write_bytes(data)
    assert run_app(["log", "verify", str(partition)]) == 1
    output = capsys.readouterr().out
    assert any(line.startswith(f"{path}: ") for line in output.splitlines())
    assert re.search(why, output)


@pytest.mark.req("L10")
def test_what_is_no_partition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["log", "verify", str(tmp_path / "empty")]) == 2
    assert run(["log", "verify", str(tmp_path / "missing")]) == 2
