"""Snapshot files: whole or not there, checked in full, fetched in pieces, deleted by retention."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from raftctl.raft.batch import HEADER_BYTES, decode_batches, encode_batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.storage.snapshots import (
    CorruptSnapshotError,
    RetentionPolicy,
    SnapshotFile,
    SnapshotStore,
    grouped,
    state_hash_of,
)
from raftctl.storage.snapshots import _store as snapshots_module
from tests.kit.disk import Crash, FakeDisk

DIRECTORY = "/data/__cluster_metadata-0"
ID = OffsetAndEpoch(Offset(42), Epoch(7))
RECORDS = [b"record %d" % number for number in range(5)]


def new_store(disk: FakeDisk | None = None) -> SnapshotStore:
    disk = disk or FakeDisk()
    disk.make_directories(DIRECTORY)
    return SnapshotStore(disk, DIRECTORY)


def records(store: SnapshotStore, snapshot_id: OffsetAndEpoch = ID) -> bytes:
    return b"".join(batch.payload for batch in store.read(snapshot_id).batches)


@pytest.mark.req("Q6")
def test_a_snapshot_reads_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "BATCH_RECORDS_BYTES", 20)
    disk = FakeDisk()
    store = new_store(disk)
    file, state_hash = store.write(ID, 1234, grouped(RECORDS))
    assert disk.names(DIRECTORY) == ["00000000000000000042-0000000007.checkpoint"]
    assert store.ids() == [ID]
    snapshot = store.read(ID)
    assert [batch.count for batch in snapshot.batches] == [3, 2]
    assert records(store) == b"".join(RECORDS)
    assert snapshot.timestamp_ms == 1234
    assert snapshot.state_hash == state_hash == state_hash_of([b"".join(RECORDS)])
    assert store.stat(ID) == file == SnapshotFile(ID, file.size, 1234)


@pytest.mark.req("Q13")
def test_records_that_are_not_those_that_were_hashed_are_found() -> None:
    disk = FakeDisk()
    store = new_store(disk)
    store.write(ID, 0, grouped(RECORDS))
    batches = [one for _, one in decode_batches(bytes(disk.file(store.path(ID)).seen))]
    changed = replace(batches[1], payload=batches[1].payload.replace(b"3", b"8"))
    batches[1] = changed  # with a right CRC of its own
    disk.file(store.path(ID)).seen = bytearray(b"".join(map(encode_batch, batches)))
    with pytest.raises(
        CorruptSnapshotError, match=r"checkpoint: .*hash to \w{32}, the footer says"
    ):
        store.read(ID)


@pytest.mark.req("Q13")
def test_a_snapshot_with_a_hash_of_another_version_is_read_and_its_hash_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = new_store()
    store.write(ID, 0, grouped(RECORDS))
    monkeypatch.setattr(snapshots_module, "STATE_HASH_VERSION", 99)
    assert store.read(ID).state_hash is None


@pytest.mark.req("Q6")
def test_a_crash_leaves_the_whole_snapshot_or_none() -> None:
    whole = 0
    for operations in range(20):
        for seed in range(5):
            disk = FakeDisk(operations)
            try:
                new_store(disk).write(ID, 0, grouped(RECORDS))
                finished = True
            except Crash:
                finished = False
            after = disk.after_crash(Random(seed))
            store = new_store(after)
            store.remove_unfinished()
            assert store.ids() == [ID] or not finished
            for snapshot_id in store.ids():
                assert records(store, snapshot_id) == b"".join(RECORDS)
                whole += 1
            assert len(after.names(DIRECTORY)) == len(store.ids())
    assert whole > 0


@pytest.mark.req("Q12")
def test_every_flipped_bit_and_every_missing_end_is_found() -> None:
    disk = FakeDisk()
    store = new_store(disk)
    store.write(ID, 0, grouped(RECORDS))
    content = disk.file(store.path(ID)).seen
    for bit in range(len(content) * 8):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError, match=r"checkpoint: corrupt at byte \d+"):
            store.read(ID)
        content[bit // 8] ^= 1 << bit % 8
    whole = bytes(content)
    for size in reversed(range(len(whole))):
        content[:] = whole[:size]
        with pytest.raises(CorruptSnapshotError):
            store.read(ID)
    with pytest.raises(CorruptSnapshotError):
        store.stat(ID)


@pytest.mark.req("Q6")
def test_a_deleted_snapshot_does_not_come_back() -> None:
    later = OffsetAndEpoch(Offset(50), Epoch(7))
    for seed in range(20):
        disk = FakeDisk()
        store = new_store(disk)
        for snapshot_id in (ID, later):
            store.write(snapshot_id, 0, grouped(RECORDS))
        store.remove([ID])
        assert store.ids() == [later]
        assert new_store(disk.after_crash(Random(seed))).ids() == [later]


@pytest.mark.req("Q6")
def test_a_snapshot_whose_footer_counts_other_records_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FakeDisk()
    store = new_store(disk)
    store.write(ID, 0, grouped(RECORDS))
    monkeypatch.setattr(snapshots_module, "STATE_HASH_VERSION", 99)
    batches = [one for _, one in decode_batches(bytes(disk.file(store.path(ID)).seen))]
    batches[1:] = [replace(batches[2], base_offset=Offset(1))]
    disk.file(store.path(ID)).seen = bytearray(b"".join(map(encode_batch, batches)))
    with pytest.raises(CorruptSnapshotError, match="the end is missing"):
        store.read(ID)


@pytest.mark.req("Q12")
def test_a_snapshot_under_another_name_is_refused() -> None:
    disk = FakeDisk()
    store = new_store(disk)
    store.write(ID, 0, grouped(RECORDS))
    other = OffsetAndEpoch(Offset(43), Epoch(7))
    disk.rename(store.path(ID), store.path(other))
    with pytest.raises(CorruptSnapshotError, match="another snapshot's"):
        store.read(other)


@pytest.mark.req("Q6")
@pytest.mark.parametrize("piece", [1, 7, HEADER_BYTES, 10_000])
def test_a_snapshot_fetched_in_pieces_is_the_same(piece: int) -> None:
    source, target = new_store(), new_store()
    size = source.write(ID, 99, grouped(RECORDS)).file.size
    position = 0
    while position < size:
        chunk = source.read_chunk(ID, position, piece)
        assert chunk is not None
        assert chunk[0] == size
        target.write_chunk(ID, position, chunk[1])
        # The same piece again, as after an answer that was lost, changes nothing.
        target.write_chunk(ID, position, chunk[1])
        position += len(chunk[1])
        assert target.ids() == []
    assert target.finish_fetched(ID) == source.read(ID) == target.read(ID)
    assert source.read_chunk(OffsetAndEpoch(Offset(1), Epoch(1)), 0, 10) is None


@pytest.mark.req("Q12")
@pytest.mark.parametrize("piece", [7, 10_000])
def test_no_piece_of_a_snapshot_has_a_bit_that_was_flipped(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_module, "BATCH_RECORDS_BYTES", 20)
    disk = FakeDisk()
    store = new_store(disk)
    size = store.write(ID, 0, grouped(RECORDS)).file.size
    content = disk.file(store.path(ID)).seen
    whole = bytes(content)

    def read(reader: SnapshotStore) -> bytes:
        chunks = [reader.read_chunk(ID, position, piece) for position in range(0, size, piece)]
        return b"".join([data for _, data in filter(None, chunks)])

    assert read(store) == whole
    for bit in range(0, len(content) * 8, 11):
        content[bit // 8] ^= 1 << bit % 8
        for reader in (store, new_store(disk)):  # one that knows the file and one that does not
            with pytest.raises(CorruptSnapshotError, match=r"checkpoint: corrupt at byte \d+"):
                read(reader)
        content[bit // 8] ^= 1 << bit % 8
    for cut in range(size):
        content[:] = whole[:cut]
        with pytest.raises(CorruptSnapshotError):
            read(store)
    content[:] = whole
    assert read(store) == whole
    past = store.read_chunk(ID, size, piece)
    assert past == (size, b"")


@pytest.mark.req("Q12")
def test_a_damaged_fetched_snapshot_never_gets_its_name() -> None:
    source, target = new_store(), new_store()
    size = source.write(ID, 0, grouped(RECORDS)).file.size
    chunk = source.read_chunk(ID, 0, size)
    assert chunk is not None
    target.write_chunk(ID, 0, chunk[1][:-1] + b"?")
    with pytest.raises(CorruptSnapshotError, match=r"checkpoint\.part: corrupt at byte \d+: CRC"):
        target.finish_fetched(ID)
    assert target.ids() == []
    target.write_chunk(ID, 0, chunk[1])
    assert target.finish_fetched(ID) == source.read(ID)


@pytest.mark.req("Q6")
def test_a_piece_that_nothing_is_there_for_is_refused() -> None:
    """Another snapshot was begun meanwhile, and with it the other one was given up."""
    store = new_store()
    store.write_chunk(ID, 0, b"abcd")
    with pytest.raises(CorruptSnapshotError, match="byte 4: less than 5 bytes"):
        store.write_chunk(ID, 5, b"f")
    store.write(OffsetAndEpoch(Offset(9), Epoch(1)), 0, grouped(RECORDS))
    with pytest.raises(CorruptSnapshotError, match="the first 4 bytes are gone"):
        store.write_chunk(ID, 4, b"e")


@pytest.mark.req("Q6")
def test_a_crash_leaves_a_fetched_snapshot_whole_or_not_at_all() -> None:
    source = new_store()
    size = source.write(ID, 0, grouped(RECORDS)).file.size
    whole = 0
    for operations in range(20):
        disk = FakeDisk(operations)
        try:
            target, position = new_store(disk), 0
            while position < size:
                chunk = source.read_chunk(ID, position, size // 3 + 1)
                assert chunk is not None
                target.write_chunk(ID, position, chunk[1])
                position += len(chunk[1])
            target.finish_fetched(ID)
            finished = True
        except Crash:
            finished = False
        for seed in range(5):
            store = new_store(disk.after_crash(Random(seed)))
            store.remove_unfinished()
            assert store.ids() == [ID] or not finished
            assert all(store.read(one) == source.read(ID) for one in store.ids())
            whole += len(store.ids())
    assert whole > 0


def _file(offset: int, size: int, timestamp_ms: int) -> SnapshotFile:
    return SnapshotFile(OffsetAndEpoch(Offset(offset), Epoch(1)), size, timestamp_ms)


@pytest.mark.req("Q6")
@pytest.mark.parametrize(
    ("max_bytes", "max_ms", "gone"),
    [
        (-1, -1, 0),
        (10_000, -1, 0),
        (330, -1, 0),
        (329, -1, 1),
        (300, -1, 1),
        (125, -1, 1),
        (150, -1, 1),
        (120, -1, 1),
        (119, -1, 2),
        (-1, 800, 0),
        (0, -1, 2),
        (-1, 1_000, 0),
        (-1, 799, 1),
    ],
)
def test_retention_deletes_the_oldest_and_never_the_newest(
    max_bytes: int, max_ms: int, gone: int
) -> None:
    files = [_file(100, 10, 200), _file(200, 10, 500), _file(300, 10, 900)]
    policy = RetentionPolicy(max_bytes, max_ms)
    expired = policy.expired(files, lambda offset: 300 - offset, wall_ms=1_000)
    assert expired == files[:gone]
    assert policy.expired(files[2:], lambda _: 300, wall_ms=10_000_000) == []


def test_the_name_of_a_snapshots_file_says_which_it_is() -> None:
    store = new_store()
    for snapshot_id in (ID, OffsetAndEpoch(Offset(10**18), Epoch(2**31 - 1))):
        name = store.path(snapshot_id).rpartition("/")[2]
        assert store.find(name) == snapshot_id
        assert store.find(name + ".part") is None
        assert store.find("0" + name) is None


@pytest.mark.req("Q6")
def test_a_piece_outside_the_file_is_nothing() -> None:
    store = new_store()
    size = store.write(ID, 5, [(1, b"\x01")]).file.size
    for position in (-1, size, size + 1):
        assert store.read_chunk(ID, position, 10) == (size, b"")
    assert store.read_chunk(ID, 0, 0) == (size, b"")
    whole = store.read_chunk(ID, 0, size)
    assert whole is not None
    for position in (1, size - 1):
        assert store.read_chunk(ID, position, size) == (size, whole[1][position:])


@pytest.mark.req("Q6", "Q11")
def test_a_snapshot_of_a_later_version_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    with monkeypatch.context() as later:
        later.setattr(snapshots_module, "VERSION", snapshots_module.VERSION + 1)
        store.write(ID, 5, [(1, b"\x01")])
    with pytest.raises(CorruptSnapshotError, match="no header that is known"):
        store.read(ID)


def test_records_share_a_batch_until_it_is_large_enough() -> None:
    record = b"x" * (snapshots_module.BATCH_RECORDS_BYTES // 4)
    pieces = list(grouped([record] * 9))
    assert [(count, len(data)) for count, data in pieces] == [
        (4, 4 * len(record)),
        (4, 4 * len(record)),
        (1, len(record)),
    ]
    assert list(grouped([])) == []
