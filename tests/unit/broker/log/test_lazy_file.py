"""A file without contents need not exist, and holds no descriptor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.log.partition_log import create_log
from broker.log.segments import LazyFile
from broker.types import TopicPartition
from raftctl.errors import InvariantViolation
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.real import RealFileSystem
from tests.unit.broker.log.batches import make_batch

DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def files() -> RealFileSystem:
    return RealFileSystem()


def open_below(folder: Path) -> list[str]:
    """The names of the files of a folder for which this process has a descriptor."""
    links = [os.readlink(link) for link in DESCRIPTORS.iterdir() if link.exists()]
    return sorted(Path(link).name for link in links if link.startswith(f"{folder}/"))


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs Linux's /proc to count descriptors")
@pytest.mark.req("L1")
def test_a_log_that_nothing_was_written_to_has_no_files(
    tmp_path: Path, files: RealFileSystem
) -> None:
    config = TopicConfig(index_interval_bytes=0)
    log = create_log(files, str(tmp_path / "a-0"), TopicPartition("a", 0), config)
    assert os.listdir(tmp_path / "a-0") == open_below(tmp_path) == []
    for _ in range(3):
        log.append_as_leader(make_batch([b"v"]), 0, 0)
    plan = log.flush_plan(rolled_only=False, closing=True)
    assert plan is not None
    plan.run()
    assert len(open_below(tmp_path)) == 3
    log.close()
    assert open_below(tmp_path) == []


def test_it_is_opened_where_it_was_moved_to(tmp_path: Path, files: RealFileSystem) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.touch()
    late = LazyFile(files, str(before), exists=True)
    assert late.read_at(0, 10) == b""
    late.truncate(0)
    late.sync()
    before.rename(after)
    late.moved(str(after))
    late.append([b"entry"])
    late.sync()
    assert (late.size(), late.read_at(0, 10)) == (5, b"entry")
    late.close()
    assert after.read_bytes() == b"entry"
    assert not before.exists()


def test_one_that_is_not_there_is_like_an_empty_one(tmp_path: Path, files: RealFileSystem) -> None:
    path = tmp_path / "index"
    late = LazyFile(files, str(path), exists=False)
    assert (late.size(), late.read_at(0, 10), late.region(0, 10)) == (0, b"", b"")
    late.truncate(0)
    late.sync()
    with pytest.raises(FileNotFoundError):
        late.append([b"entry"])
    late.create()
    assert late.exists
    assert path.read_bytes() == b""
    late.append([b"entry"])
    late.close()
    assert path.read_bytes() == b"entry"


def test_what_is_not_as_it_was_known_is_refused(tmp_path: Path, files: RealFileSystem) -> None:
    with pytest.raises(FileNotFoundError):
        LazyFile(files, str(tmp_path / "other"), exists=True)
    late = LazyFile(files, str(tmp_path / "index"), exists=False)
    (tmp_path / "index").write_bytes(b"of another")
    with pytest.raises(InvariantViolation, match="a file that is created is empty"):
        late.create()
