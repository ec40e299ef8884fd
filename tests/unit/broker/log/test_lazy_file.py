"""An index without entries has a file but holds no descriptor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.log.partition_log import create_log
from broker.log.segments import LazyFile
from broker.types import TopicPartition
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
def test_a_log_that_nothing_was_written_to_holds_one_descriptor(
    tmp_path: Path, files: RealFileSystem
) -> None:
    config = TopicConfig(index_interval_bytes=0)
    log = create_log(files, str(tmp_path / "a-0"), TopicPartition("a", 0), config)
    assert open_below(tmp_path) == ["00000000000000000000.log"]
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
    late = LazyFile(files, str(before))
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


def test_one_that_was_closed_unopened_is_whole(tmp_path: Path, files: RealFileSystem) -> None:
    LazyFile(files, str(tmp_path / "index")).close()
    assert (tmp_path / "index").read_bytes() == b""
    with pytest.raises(FileNotFoundError):
        LazyFile(files, str(tmp_path / "other"), create=False)
