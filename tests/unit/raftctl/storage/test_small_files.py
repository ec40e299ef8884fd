"""quorum-state and meta.properties: round trips, damage and foreign directories."""

from __future__ import annotations

import errno
import json
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import ConfigError
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import Epoch, NodeId, ReplicaKey
from raftctl.runtime.api import read_file, replace_file
from raftctl.storage import MetaProperties, load_directories
from raftctl.storage._quorum_state import CorruptQuorumStateError, QuorumStateStore
from tests.kit.disk import Crash, FakeDisk

if TYPE_CHECKING:
    from raftctl.runtime import MemoryFile

DIRECTORY_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
numbers = st.integers(0, 2**31 - 1)
states = st.builds(
    QuorumState,
    numbers,
    st.just(-1) | numbers,
    st.none() | st.builds(ReplicaKey, numbers, st.none() | st.uuids()),
)


@pytest.mark.req("Q1")
@given(states, states, st.integers(0, 8))
def test_a_saved_vote_survives_a_crash_at_any_operation(
    first: QuorumState, second: QuorumState, operations: int
) -> None:
    disk = FakeDisk()
    QuorumStateStore(disk, "/data").save(first)
    disk.operations_left = operations
    completed = True
    try:
        QuorumStateStore(disk, "/data").save(second)
    except Crash:
        completed = False
    found = QuorumStateStore(disk.after_crash(Random(operations)), "/data").load()
    assert found == second if completed else found in (first, second)


def test_no_file_is_no_state() -> None:
    assert QuorumStateStore(FakeDisk(), "/data").load() is None


@pytest.mark.req("Q12")
def test_any_flipped_bit_is_seen_and_names_the_file() -> None:
    disk = FakeDisk()
    store = QuorumStateStore(disk, "/data")
    store.save(QuorumState(Epoch(7), NodeId(2), ReplicaKey(NodeId(2), DIRECTORY_ID)))
    content = read_file(disk, store.path)
    for bit in range(len(content.rstrip()) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        replace_file(disk, store.path, bytes(damaged))
        with pytest.raises(CorruptQuorumStateError, match="/data/quorum-state"):
            store.load()


def test_state_of_a_later_version_is_not_guessed_at() -> None:
    disk = FakeDisk()
    store = QuorumStateStore(disk, "/data")
    store.save(QuorumState(Epoch(7), NodeId(2), None))
    fields = json.loads(read_file(disk, store.path))
    assert fields["voted_id"] == -1
    replace_file(disk, store.path, json.dumps(fields | {"version": 2}).encode())
    with pytest.raises(CorruptQuorumStateError):
        store.load()


def test_meta_properties_are_apache_kafkas() -> None:
    disk = FakeDisk()
    saved = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, DIRECTORY_ID)
    saved.save(disk, "/data")
    assert read_file(disk, "/data/meta.properties").decode().splitlines() == [
        "version=1",
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        "node.id=3",
        "directory.id=ABEiM0RVZneImaq7zN3u_w",
    ]
    assert MetaProperties.load(disk, "/data") == saved
    written_by_kafka = b"#\n#Sat Nov 21 2026\nnode.id=3\ndirectory.id=ABEiM0RVZneImaq7zN3u_w\n"
    replace_file(disk, "/b/meta.properties", written_by_kafka + b"version=1\ncluster.id=c\n")
    assert MetaProperties.load(disk, "/b") == MetaProperties("c", 3, DIRECTORY_ID)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"version=0\ncluster.id=c\n", "/a/meta.properties: version 0 is not 1"),
        (b"version=1\nnode.id=3\n", "/a/meta.properties: directory.id is missing"),
        (b"version=1\nnode.id=x\ndirectory.id=a\n", "/a/meta.properties: invalid literal"),
        (b"version=1\nnode.id=3\ndirectory.id=a\n", "/a/meta.properties: 'a' is not a base64"),
        (b"\xff\xfe", "/a/meta.properties: not a properties file"),
    ],
)
def test_damaged_meta_properties_name_file_and_key(content: bytes, complaint: str) -> None:
    disk = FakeDisk()
    replace_file(disk, "/a/meta.properties", content)
    with pytest.raises(ConfigError, match=complaint):
        MetaProperties.load(disk, "/a")


def test_directories_must_be_formatted_and_of_one_node_and_cluster() -> None:
    disk = FakeDisk()
    for directory, cluster_id, node_id in (("/a", "c", 1), ("/b", "c", 1), ("/d", "other", 1)):
        MetaProperties(cluster_id, node_id, DIRECTORY_ID).save(disk, directory)
    assert {p: one.cluster_id for p, one in load_directories(disk, ["/a", "/b"], 1).items()} == {
        "/a": "c",
        "/b": "c",
    }
    with pytest.raises(ConfigError, match="/x is not formatted; run raftctl storage format"):
        load_directories(disk, ["/a", "/x"], 1)
    with pytest.raises(ConfigError, match=r"node.id: /a belongs to node 1, not 2"):
        load_directories(disk, ["/a"], 2)
    with pytest.raises(ConfigError, match="/d belongs to cluster other, not c"):
        load_directories(disk, ["/a", "/d"], 1)


def test_a_directory_that_cannot_be_read_is_left_out_unless_the_metadata_log_is_there() -> None:
    class Dying(FakeDisk):
        def open(self, path: str, *, create: bool = False) -> MemoryFile:
            if path.startswith(self.dead):
                raise OSError(errno.EIO, "Input/output error", path)
            return super().open(path, create=create)

        dead = "/nowhere"

    disk = Dying()
    for directory in ("/a", "/b"):
        MetaProperties("c", 1, DIRECTORY_ID).save(disk, directory)
    disk.dead = "/b"
    assert list(load_directories(disk, ["/a", "/b"], 1)) == ["/a"]
    with pytest.raises(OSError, match="/b"):
        load_directories(disk, ["/b", "/a"], 1)


@pytest.mark.req("Q1", "Q11")
def test_the_vote_that_an_earlier_release_wrote_is_read() -> None:
    """To the byte: a vote that the next release cannot read stops the node."""
    disk = FakeDisk()
    disk.make_directories("/data")
    store = QuorumStateStore(disk, "/data")
    voted = ReplicaKey(NodeId(2), UUID(int=7))
    store.save(QuorumState(Epoch(5), NodeId(-1), voted))
    text = (
        '{"version": 1, "epoch": 5, "leader_id": -1, "voted_id": 2, '
        '"voted_directory_id": "AAAAAAAAAAAAAAAAAAAABw", "crc32c": 384460452}\n'
    )
    assert read_file(disk, store.path).decode() == text
    replace_file(disk, store.path, text.encode())
    assert store.load() == QuorumState(Epoch(5), NodeId(-1), voted)
