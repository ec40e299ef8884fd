"""What `storage verify` and `log dump` say of snapshots and of state hashes in the log."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import run
from raftctl.cli.offline.verify import replayed
from raftctl.loader._snapshots import id_of, pack_image
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import KvRecord, Record, SnapshotMarkRecord, StateHashRecord
from raftctl.raft.batch import Batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.runtime.real import RealFileSystem
from raftctl.storage.snapshots import STATE_HASH_VERSION, SnapshotStore, state_hash_of
from tests.unit.raftctl.cli import test_log_commands
from tests.unit.raftctl.cli.test_log_commands import (
    END,
    _write_log,
    damage,
    log_directory,
    node,
    segments,
    states,
)

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.metadata.image import MetadataImage

__all__ = ["node"]

pytestmark = pytest.mark.req("Q13", "Q12", "L10")

MARK = END
ENDS: list[tuple[bool, list[Record]]] = [
    (False, [SnapshotMarkRecord()]),
    (False, [KvRecord("later", b"")]),
]
MARKED = [*test_log_commands.BATCHES, ENDS[0]]
"""What stands in the log up to the mark."""


def image_at_mark() -> MetadataImage:
    delta, offset = MetadataDelta(EMPTY_IMAGE), 0
    for _, records in MARKED:
        payload = b"".join(pack_records(records))
        batch = Batch(Offset(offset), Epoch(0), len(records), 0, False, payload)
        delta = replayed(delta, batch)
        offset += len(records)
    assert delta.image.offset == MARK
    return delta.image


def rewrite(node: Path, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log again, with a mark and then that hash in it."""
    record: Record = StateHashRecord(MARK, STATE_HASH_VERSION, told)
    batches = [*test_log_commands.BATCHES, *ENDS, (False, [record])]
    monkeypatch.setattr(test_log_commands, "BATCHES", batches)
    for path in [*segments(node), log_directory(node) / "recovery-point"]:
        path.unlink()
    asyncio.run(_write_log(str(log_directory(node))))


def take_snapshot(node: Path) -> Path:
    """A snapshot of the state at the mark."""
    store = SnapshotStore(RealFileSystem(), str(log_directory(node)))
    image = image_at_mark()
    snapshot_id = OffsetAndEpoch(id_of(image).offset, Epoch(2))
    store.write(snapshot_id, 99, pack_image(image))
    return node.parent / store.path(snapshot_id)


def right_hash() -> str:
    return state_hash_of(pack_records(image_at_mark().records()))


def test_a_log_is_verified_against_the_hashes_in_it(
    node: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = right_hash()
    rewrite(node, right, monkeypatch)
    assert states(node, capsys) == (0, ["ok"] * 4)
    assert run(["storage", "verify", "--config", str(node)]) == 0
    assert "1 of 1 state hashes were compared, and are equal" in capsys.readouterr().out


def test_a_hash_that_differs_is_damage(
    node: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = right_hash()
    rewrite(node, "00" * 16, monkeypatch)
    assert states(node, capsys) == (1, ["ok", "ok", "damaged", "ok", "unknown"])
    assert run(["storage", "verify", "--config", str(node)]) == 1
    told = capsys.readouterr().out
    assert f"offset {MARK}" in told
    assert right in told


def test_a_hash_of_a_state_that_is_gone_is_unknown_unless_a_snapshot_has_it(
    node: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(node, right_hash(), monkeypatch)
    for segment in segments(node):
        if int(segment.stem) <= MARK:
            segment.unlink()
    assert states(node, capsys) == (0, ["ok", "ok", "ok", "unknown"])
    path = take_snapshot(node)
    assert states(node, capsys) == (0, ["ok"] * 5)
    damage(path, path.stat().st_size // 2)
    assert states(node, capsys) == (1, ["ok", "ok", "damaged", "ok", "unknown"])


def test_a_snapshot_is_dumped_and_checked(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = take_snapshot(node)
    assert run(["log", "dump", str(path), "--output", "json"]) == 0
    header, *records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (header["end_offset"], header["state_hash"]) == (MARK + 1, right_hash())
    assert records[0] == {
        "offset": 1,
        "type": "FeatureLevelRecord",
        "name": "metadata.version",
        "level": 1,
    }
    assert run(["log", "dump", str(path)]) == 0
    assert "  1: FeatureLevelRecord" in capsys.readouterr().out
    damage(path, path.stat().st_size // 2)
    assert run(["log", "dump", str(path)]) == 1
    assert f"{path}: corrupt at byte " in capsys.readouterr().err
    assert run(["log", "dump", str(path.parent / "other.checkpoint")]) == 2
    assert "no snapshot" in capsys.readouterr().err
