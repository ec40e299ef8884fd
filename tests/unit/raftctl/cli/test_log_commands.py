"""The commands that read a metadata log on disk: dump, verify, the shell."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.cli.app import run_app
from raftctl.cli.main import run
from raftctl.cli.offline.log_files import read_batches
from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.cli.offline.verify import replayed
from raftctl.config import load_config
from raftctl.loader._snapshots import id_of, pack_image
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    KvRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.raft.batch import Batch
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, Offset
from raftctl.runtime.real import RealFileSystem, RealWorker
from raftctl.storage._quorum_state import QuorumStateStore
from raftctl.storage.log import RecordLog
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = UUID(int=5)
BATCHES: list[tuple[bool, list[Record]]] = [
    (True, [LeaderChangeRecord(1, (1,), (1,))]),
    (
        False,
        [
            FeatureLevelRecord("metadata.version", 1),
            RegisterBrokerRecord(7, UUID(int=9), (Endpoint("PLAINTEXT", "h", 1),), "r"),
            TopicRecord("a/b", TOPIC),
            PartitionRecord(TOPIC, 0, (7,), (7,), 7, 0, 0),
            ConfigRecord(2, "a/b", "retention.ms", "5"),
            ConfigRecord(4, "", "num.partitions", "3"),
        ],
    ),
    (False, [KvRecord("k", b"v"), KvRecord("bytes", b"\xff")]),
    (False, [NoOpRecord()]),
]
END = 10


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The .properties of a formatted node whose log holds the batches, each in its own segment."""
    path = tmp_path / "node.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        f"listeners=CONTROLLER://:9093\nlog.dirs={tmp_path}/data\n"
    )
    format_storage(load_config(path.read_text(), {}), random_uuid_text())
    asyncio.run(_write_log(str(log_directory(path))))
    return path


def log_directory(node: Path) -> Path:
    return node.parent / "data" / "__cluster_metadata-0"


async def _write_log(directory: str) -> None:
    files, worker = RealFileSystem(), RealWorker("log")
    log = RecordLog.open(files, directory, segment_bytes=150)
    offset = 0
    for number, (control, records) in enumerate(BATCHES):
        payload = b"".join(pack_records(records))
        batch = Batch(Offset(offset), Epoch(1 + number // 2), len(records), 99, control, payload)
        log.append(batch)
        offset += len(records)
    await log.flush(worker)
    log.close()
    worker.close()
    QuorumStateStore(files, directory).save(QuorumState(Epoch(2), NO_NODE, None))


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def segments(node: Path) -> list[Path]:
    return sorted(log_directory(node).glob("*.log"))


# --- dump -----------------------------------------------------------------------------------------


@pytest.mark.req("L10")
def test_a_log_is_dumped_as_json(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(segments(node)) > 1
    for target in (log_directory(node), log_directory(node).parent):
        assert run(["log", "dump", str(target), "--output", "json"]) == 0
        batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [batch["base_offset"] for batch in batches] == [0, 1, 7, 9]
        assert [batch["epoch"] for batch in batches] == [1, 1, 2, 2]
        assert [batch["control"] for batch in batches] == [True, False, False, False]
        assert batches[2]["records"] == [
            {"offset": 7, "type": "KvRecord", "key": "k", "value": "v", "version": -1},
            {
                "offset": 8,
                "type": "KvRecord",
                "key": "bytes",
                "value": {"value_base64": "/w=="},
                "version": -1,
            },
        ]


@pytest.mark.req("L10")
def test_a_log_is_dumped_in_part(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(log_directory(node)), "--from", "8", "--no-records"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "base_offset 7, last_offset 8, epoch 2" in first
    assert "base_offset 9" in last
    assert run(["log", "dump", str(segments(node)[0])]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == '  0: LeaderChangeRecord {"leader_id": 1, "voters": [1], ' + (
        '"granting_voters": [1]}'
    )


@pytest.mark.req("L10", "Q12")
@pytest.mark.parametrize("position", [5, 30, 45])
def test_the_dump_ends_where_the_log_is_damaged(
    node: Path, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(segments(node)[1], position)
    assert run(["log", "dump", str(log_directory(node)), "--output", "json"]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 1
    assert f"{segments(node)[1]}: byte 0: " in told.err
    assert "(corrupt)" in told.err


def test_where_no_log_is_there_is_nothing_to_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(tmp_path)]) == 2
    assert "no metadata log there" in capsys.readouterr().err


# --- verify ---------------------------------------------------------------------------------------


def states(node: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = run(["storage", "verify", "--config", str(node), "--output", "json"])
    findings = json.loads(capsys.readouterr().out)
    return status, [finding["state"] for finding in findings]


@pytest.mark.req("Q12", "A1")
def test_a_whole_node_is_verified_and_nothing_changes(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in segments(node)}
    assert states(node, capsys) == (0, ["ok", "ok", "ok"])
    assert {path: path.read_bytes() for path in segments(node)} == before
    assert run(["storage", "verify", "--config", str(node)]) == 0
    assert f"{END} records in 4 batches, to offset {END}" in capsys.readouterr().out


@pytest.mark.req("Q12")
def test_a_torn_tail_is_told_from_damage(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = segments(node)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    size = last.stat().st_size
    assert states(node, capsys) == (1, ["ok", "ok", "damaged", "ok"])
    (log_directory(node) / "recovery-point").unlink()
    assert states(node, capsys) == (0, ["ok", "ok", "torn tail", "ok"])
    assert last.stat().st_size == size
    damage(segments(node)[0], 20)
    status, found = states(node, capsys)
    assert (status, found[2]) == (1, "damaged")


@pytest.mark.req("Q12")
def test_a_missing_segment_is_found(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segments(node)[1].unlink()
    status, found = states(node, capsys)
    assert (status, found[2]) == (1, "damaged")


@pytest.mark.req("Q12")
def test_a_missing_end_and_a_flipped_bit_in_the_last_batch_are_found(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = segments(node)[-1]
    damage(last, 20)
    for _ in range(2):
        assert run(["log", "dump", str(log_directory(node))]) == 1
        assert "(corrupt)" in capsys.readouterr().err
        assert states(node, capsys) == (1, ["ok", "ok", "damaged", "ok"])
        last.write_bytes(b"")


@pytest.mark.req("Q12")
def test_a_damaged_note_of_what_was_durable_is_found(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(log_directory(node) / "recovery-point", 3)
    assert states(node, capsys) == (0, ["ok", "ok", "unknown", "ok"])


@pytest.mark.req("Q1", "Q12")
def test_a_damaged_vote_is_found(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log_directory(node) / "quorum-state"
    path.write_text(path.read_text().replace('"epoch": 2', '"epoch": 3'))
    assert states(node, capsys) == (1, ["ok", "damaged", "ok"])
    path.unlink()
    assert states(node, capsys) == (1, ["ok", "damaged", "ok"])


def test_records_that_cannot_be_replayed_are_found(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "BATCHES", [(False, [TopicRecord("a", TOPIC)] * 2)])
    for path in [*segments(node), log_directory(node) / "recovery-point"]:
        path.unlink()
    asyncio.run(_write_log(str(log_directory(node))))
    assert states(node, capsys) == (1, ["ok", "ok", "damaged"])


def test_a_directory_that_is_not_formatted_is_damaged(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node.parent / "data" / "meta.properties").unlink()
    assert states(node, capsys) == (1, ["damaged", "ok", "ok"])


# --- the shell ------------------------------------------------------------------------------------


def shell(node: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    where = ("--directory", str(log_directory(node)))
    assert run_app(["metadata", "shell", *words, *where]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.req("A1")
def test_the_shell_shows_a_log(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(node, ["ls", "/topics"], capsys) == ["a%2Fb/"]
    assert shell(node, ["ls", "topics/a%2Fb"], capsys) == ["id", "0"]
    (partition,) = shell(node, ["cat", "/topics/a%2Fb/0"], capsys)
    assert json.loads(partition)["replicas"] == [7]
    assert shell(node, ["cat", "configs/topics/a%2Fb/retention.ms"], capsys) == ["5"]
    assert shell(node, ["tree", "configs/brokers"], capsys) == [
        "brokers/",
        "  default/",
        "    num.partitions: 3",
    ]
    (broker,) = shell(node, ["cat", "brokers/7"], capsys)
    assert json.loads(broker)["rack"] == "r"
    assert shell(node, ["find", "/kv", "version"], capsys) == [
        "/kv/bytes/version",
        "/kv/k/version",
    ]
    assert shell(node, ["cat", "provenance/offset"], capsys) == [str(END - 1)]


@pytest.mark.req("A1")
def test_the_shell_reads_commands(
    node: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "cd kv/k\npwd\n\ncat value\ncat ..\ncat nothing\nfly\nls ../..\nexit\npwd\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run_app(["metadata", "shell", "--directory", str(log_directory(node))]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:2] == ["/kv/k", "v"]
    assert told.out.splitlines()[2:4] == ["brokers/", "configs/"]
    assert len(told.out.splitlines()) == 12
    directory, missing, unknown = told.err.splitlines()
    assert "/kv is a directory" in directory
    assert "there is no nothing" in missing
    assert "fly: write ls" in unknown


def take_snapshot(node: Path, last_segment: int) -> Path:
    """Of what the segments up to that one hold; returns its file."""
    directory = log_directory(node)
    delta = MetadataDelta(EMPTY_IMAGE)
    for _, batch in read_batches([str(path) for path in segments(node)[: last_segment + 1]]):
        delta = replayed(delta, batch)
    image = delta.image
    store = SnapshotStore(RealFileSystem(), str(directory))
    store.write(id_of(image), 99, pack_image(image))
    return Path(store.path(id_of(image)))


@pytest.mark.req("A1", "Q6")
def test_the_shell_goes_on_from_the_snapshot_when_the_log_before_it_is_gone(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = shell(node, ["find"], capsys)
    contents = [shell(node, ["cat", path], capsys) for path in ("kv/k/value", "brokers/7")]
    older, snapshot = take_snapshot(node, 0), take_snapshot(node, 1)
    for path in segments(node)[:2]:
        path.unlink()
    assert shell(node, ["find"], capsys) == whole
    assert [shell(node, ["cat", p], capsys) for p in ("kv/k/value", "brokers/7")] == contents
    assert shell(node, ["cat", "provenance/offset"], capsys) == [str(END - 1)]
    snapshot.rename(snapshot.with_suffix(".away"))
    assert run(["metadata", "shell", "ls", "--directory", str(log_directory(node))]) == 2
    assert f"begins with offset 7, not with {int(older.name[:20])}" in capsys.readouterr().err
    snapshot.with_suffix(".away").rename(snapshot)
    for path in log_directory(node).glob("*.log"):
        path.unlink()
    assert shell(node, ["ls", "kv"], capsys) == []
    damage(snapshot, 100)
    assert run(["metadata", "shell", "ls", "--directory", str(log_directory(node))]) == 1
    assert f"raftctl: {snapshot}: corrupt at byte " in capsys.readouterr().err


@pytest.mark.req("A1", "Q6")
def test_the_shell_shows_a_snapshot(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = take_snapshot(node, 2)

    def look(*words: str) -> list[str]:
        assert run_app(["metadata", "shell", *words, "--snapshot", str(snapshot)]) == 0
        return capsys.readouterr().out.splitlines()

    assert look("cat", "kv/k/value") == ["v"]
    assert look("ls", "topics") == ["a%2Fb/"]
    assert look("find", "/", "7") == ["/brokers/7"]
    assert look("tree", "features") == ["features/", "  metadata.version: 1"]
    assert run(["metadata", "shell", "ls", "--snapshot", str(segments(node)[0])]) == 2
    assert "no snapshot; name one that is there" in capsys.readouterr().err


@pytest.mark.req("A1", "Q12")
def test_the_shell_leaves_a_torn_tail_out_and_names_damage(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = segments(node)[-1]
    content = newest.read_bytes()
    (log_directory(node) / "recovery-point").unlink()
    newest.write_bytes(content[:-3])
    assert shell(node, ["cat", "provenance/offset"], capsys) == [str(END - 2)]
    damage(segments(node)[1], 70)
    assert run(["metadata", "shell", "ls", "--directory", str(log_directory(node))]) == 1
    assert f"raftctl: {segments(node)[1]}: byte 0: " in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--controllers", "h:1", "--directory", "/"]])
def test_the_shell_looks_at_one_thing(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metadata", "shell", "ls", *options]) == 2
    assert "give one of" in capsys.readouterr().err
