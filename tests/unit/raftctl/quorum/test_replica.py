"""What a node finds on its disks, and what it refuses to touch."""

from __future__ import annotations

import asyncio
import errno
import io
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from jepsen.simulator.disk import SimDisk
from raftctl.config import make_config
from raftctl.errors import ConfigError, InvariantViolation
from raftctl.ids import uuid_text
from raftctl.node import _node as node_module
from raftctl.node import run_node
from raftctl.quorum import Recovery, open_replica
from raftctl.raft.batch import Batch
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, Offset, OffsetAndEpoch
from raftctl.runtime.real import RealFileSystem, RealRuntime
from raftctl.storage import METADATA_LOG_NAME, MetaProperties
from raftctl.storage._quorum_state import CorruptQuorumStateError, QuorumStateStore
from raftctl.storage.log import RecordLog
from raftctl.storage.snapshots import CorruptSnapshotError, SnapshotStore
from tests.kit.disk import StepWorker
from tests.unit.raftctl.node.nodes import PluginBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.config import NodeConfig
    from raftctl.plugins import BrokerContext

CLUSTER = uuid_text(UUID(int=1))
NODE = 101


@pytest.mark.req("Q1", "Q3")
@pytest.mark.parametrize("seed", range(6))
async def test_what_a_killed_process_wrote_is_durable_before_it_counts(seed: int) -> None:
    """It may be in the page cache only, and the power may fail after the restart."""
    disk = SimDisk(random.Random(seed), lambda detail: None)
    directory = f"/{METADATA_LOG_NAME}"
    log = RecordLog.open(disk, directory)
    worker = StepWorker()

    def killed_before_sync(operation: str, path: str) -> None:
        if operation in ("sync", "sync_directory"):
            raise OSError(errno.EINTR, "killed")

    for base in (0, 1):
        log.append(Batch(Offset(base), Epoch(1), 1, 0, False, b"x" * 100))
        flushed = log.flush(worker)
        await worker.run_all()
        disk.fault = killed_before_sync
    assert isinstance(flushed.exception(), OSError)
    states = QuorumStateStore(disk, directory)
    disk.fault = lambda operation, path: (
        killed_before_sync(operation, path) if operation == "sync_directory" else None
    )
    with pytest.raises(OSError, match="killed"):
        states.save(QuorumState(Epoch(7), NO_NODE, None))
    disk.fault = lambda operation, path: None

    recovered = RecordLog.open(disk, directory)
    state = states.load()
    assert (recovered.end_offset, state) == (2, QuorumState(Epoch(7), NO_NODE, None))
    disk.crash()
    assert RecordLog.open(disk, directory).end_offset == 2
    assert states.load() == state


# --- damage -----------------------------------------------------------------------------------


def with_records(directory: Path) -> Path:
    """Writes two records of epoch 3 into the metadata log below a directory; returns its file."""
    log = RecordLog.open(RealFileSystem(), f"{directory}/{METADATA_LOG_NAME}")
    for base in (0, 1):
        log.append(Batch(Offset(base), Epoch(3), 1, 0, False, b"x" * 100))
    log.flush_now()
    log.close()
    (file,) = (directory / METADATA_LOG_NAME).glob("*.log")
    return file


@pytest.mark.req("Q1", "Q12")
def test_a_vote_that_is_missing_stops_a_replica_that_has_records(
    tmp_path: Path, runtime: RealRuntime, port: int
) -> None:
    """It could vote a second time in an epoch otherwise."""
    directory = formatted(tmp_path / "a")
    config = config_of(port, directory)
    open_replica(config, runtime).release()
    with_records(directory)
    why = "/quorum-state: is missing, though the log has records of epoch 3; restore the disk"
    with pytest.raises(CorruptQuorumStateError, match=why):
        open_replica(config, runtime)
    state = QuorumState(Epoch(4), NO_NODE, None)
    QuorumStateStore(RealFileSystem(), f"{directory}/{METADATA_LOG_NAME}").save(state)
    replica = open_replica(config, runtime)
    assert replica.state == state
    replica.release()


@pytest.mark.req("Q12")
@pytest.mark.parametrize("end_offset", [1, 9])
@pytest.mark.parametrize("damaged", ["quorum-state", "snapshot"])
def test_the_log_stays_as_it_is_where_something_else_is_damaged(
    tmp_path: Path, runtime: RealRuntime, port: int, damaged: str, end_offset: int
) -> None:
    """Neither is a torn tail cut, nor the log replaced by a snapshot that goes beyond its end."""
    directory = formatted(tmp_path / "a")
    file = with_records(directory)
    (directory / METADATA_LOG_NAME / "recovery-point").unlink()
    file.write_bytes(file.read_bytes()[:-1])
    content = file.read_bytes()
    metadata = f"{directory}/{METADATA_LOG_NAME}"
    states = QuorumStateStore(RealFileSystem(), metadata)
    states.save(QuorumState(Epoch(4), NO_NODE, None))
    store = SnapshotStore(RealFileSystem(), metadata)
    snapshot_id = OffsetAndEpoch(Offset(end_offset), Epoch(3))
    store.write(snapshot_id, 0, ())
    path = states.path if damaged == "quorum-state" else store.path(snapshot_id)
    flipped = bytearray(Path(path).read_bytes())
    flipped[30] ^= 1
    Path(path).write_bytes(flipped)
    refused = (CorruptQuorumStateError, CorruptSnapshotError)
    with pytest.raises(refused, match=path):
        open_replica(config_of(port, directory), runtime)
    if damaged == "snapshot":
        with pytest.raises(refused, match=path):
            Recovery(RealFileSystem(), str(directory))
    assert file.read_bytes() == content


# --- bad input --------------------------------------------------------------------------------


@pytest.fixture
def runtime() -> Iterator[RealRuntime]:
    real = RealRuntime(io.StringIO())
    yield real
    real.close()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is free, and stays so but for whom the test lets in."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def formatted(path: Path, *, node_id: int = NODE, cluster_id: str = CLUSTER) -> Path:
    path.mkdir()
    directory_id = UUID(bytes=path.name.encode().ljust(16))
    MetaProperties(cluster_id, node_id, directory_id).save(RealFileSystem(), str(path))
    return path


def config_of(port: int, *directories: Path, **more: str) -> NodeConfig:
    values = {
        "process.roles": "controller",
        "node.id": str(NODE),
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "log.dirs": ",".join(map(str, directories)),
        "controller.quorum.election.timeout.ms": "50",
    }
    return make_config(values | {key.replace("_", "."): value for key, value in more.items()})


def everything_below(path: Path) -> dict[str, bytes | None]:
    """All files with their contents, and all directories."""
    return {
        str(one.relative_to(path)): one.read_bytes() if one.is_file() else None
        for one in path.rglob("*")
        if one.name != ".lock"
    }


async def refuse(config: NodeConfig, runtime: RealRuntime, root: Path) -> str:
    """The complaint of a node that must not start, and must not leave a trace."""
    before = everything_below(root)
    with pytest.raises(ConfigError) as refused:
        await asyncio.wait_for(run_node(config, runtime), 10)
    assert everything_below(root) == before
    complaint = str(refused.value)
    assert "\n" not in complaint
    return complaint


async def test_a_directory_that_is_not_formatted(
    tmp_path: Path, runtime: RealRuntime, port: int
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        complaint = await refuse(config_of(port, tmp_path / name), runtime, tmp_path)
        assert complaint == (
            f"log.dirs: {tmp_path / name} is not formatted; run raftctl storage format"
        )


async def test_the_directory_of_another_node(
    tmp_path: Path, runtime: RealRuntime, port: int
) -> None:
    directory = formatted(tmp_path / "data", node_id=5)
    complaint = await refuse(config_of(port, directory), runtime, tmp_path)
    assert complaint == (
        f"node.id: {directory} belongs to node 5, not 101; correct node.id or log.dirs"
    )


async def test_directories_of_two_clusters(tmp_path: Path, runtime: RealRuntime, port: int) -> None:
    one = formatted(tmp_path / "one")
    two = formatted(tmp_path / "two", cluster_id=uuid_text(UUID(int=2)))
    complaint = await refuse(config_of(port, one, two), runtime, tmp_path)
    assert complaint.startswith(f"log.dirs: {two} belongs to cluster {uuid_text(UUID(int=2))}")


async def test_a_directory_in_use(tmp_path: Path, runtime: RealRuntime, port: int) -> None:
    directory = formatted(tmp_path / "data")
    lock = RealFileSystem().lock_directory(str(directory))
    complaint = await refuse(config_of(port, directory), runtime, tmp_path)
    assert complaint.startswith(f"log.dirs: {directory} is in use by another node")
    lock.release()


async def test_a_port_in_use(tmp_path: Path, runtime: RealRuntime, port: int) -> None:
    directory = formatted(tmp_path / "data")
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port):
        complaint = await refuse(config_of(port, directory), runtime, tmp_path)
    assert complaint.startswith(f"listeners: 127.0.0.1:{port} cannot be bound")


async def test_a_port_in_use_of_a_broker(tmp_path: Path, runtime: RealRuntime, port: int) -> None:
    directory = formatted(tmp_path / "data")
    async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0) as taken:
        its_port = taken.sockets[0].getsockname()[1]
        listeners = f"CONTROLLER://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{its_port}"
        both = {"process_roles": "controller,broker", "listeners": listeners}
        complaint = await refuse(config_of(port, directory, **both), runtime, tmp_path)
    assert complaint.startswith(f"listeners: 127.0.0.1:{its_port} cannot be bound")


async def test_a_broker_that_is_not_installed(
    tmp_path: Path, runtime: RealRuntime, port: int
) -> None:
    directory = formatted(tmp_path / "data")
    config = config_of(
        port,
        directory,
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:9",
        controller_quorum_voters=f"9@127.0.0.1:{port}",
        broker_plugin="nonesuch",
    )
    complaint = await refuse(config, runtime, tmp_path)
    assert complaint.startswith("broker.plugin: no plug-in 'nonesuch'")


# --- a whole life -----------------------------------------------------------------------------


def combined(port: int, directory: Path) -> NodeConfig:
    """A node of both roles."""
    return config_of(
        port,
        directory,
        process_roles="controller,broker",
        listeners=f"CONTROLLER://127.0.0.1:{port},PLAINTEXT://127.0.0.1:9",
        broker_heartbeat_interval_ms="100",
    )


async def test_a_node_of_both_roles_lives_and_stops(
    tmp_path: Path, runtime: RealRuntime, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PluginBroker] = []

    def make(context: BrokerContext) -> PluginBroker:
        made.append(PluginBroker(context))
        return made[-1]

    monkeypatch.setattr(node_module, "load_broker", lambda name: make)
    before = asyncio.all_tasks()
    config = combined(port, formatted(tmp_path / "data"))
    for life in (1, 2):
        running = asyncio.ensure_future(run_node(config, runtime))
        while len(made) < life or not _is_active(made[-1]):
            await asyncio.sleep(0.01)
            assert not running.done(), running.exception()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 10)
        assert made[-1].stopped
        assert made[-1].images[-1].brokers[NODE].fenced  # it was let go
        assert asyncio.all_tasks() == before
    epochs = [broker.images[-1].brokers[NODE].broker_epoch for broker in made]
    assert epochs[0] < epochs[1]


def _is_active(broker: PluginBroker) -> bool:
    known = broker.images[-1].brokers.get(NODE) if broker.images else None
    return known is not None and known.active


async def test_a_broken_invariant_that_nobody_handles_ends_the_node(
    tmp_path: Path, runtime: RealRuntime, port: int
) -> None:
    config = config_of(port, formatted(tmp_path / "data"))
    running = asyncio.ensure_future(run_node(config, runtime, owns_loop=True))
    await asyncio.sleep(0.2)
    bug = InvariantViolation("somewhere in a callback")

    def broken(error: BaseException) -> None:
        raise error

    loop = asyncio.get_running_loop()
    loop.call_soon(broken, ValueError("no reason to stop"))
    await asyncio.sleep(0.05)
    assert not running.done()
    loop.call_soon(broken, bug)
    with pytest.raises(InvariantViolation) as ended:
        await asyncio.wait_for(running, 10)
    assert ended.value is bug
