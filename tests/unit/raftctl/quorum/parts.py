"""One replica in the hands of a test: real core, log and driver, the disk and peers as it says."""

from __future__ import annotations

import asyncio
import io
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from raftctl.loader import Snapshots
from raftctl.metadata.codec import pack_records
from raftctl.metadata.records import LeaderChangeRecord
from raftctl.quorum import RaftDriver
from raftctl.quorum._replica import open_log
from raftctl.raft import RaftCore, ReplicaLog
from raftctl.raft._config import RaftConfig
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, ReplicaKey
from raftctl.raft.voters import VoterSet
from raftctl.runtime.real import make_log
from raftctl.storage._quorum_state import QuorumStateStore
from raftctl.storage.snapshots import SnapshotStore
from tests.kit.disk import FakeDisk, StepWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import MetadataImage
    from raftctl.raft.messages import Request, Response
    from raftctl.runtime.api import Runtime

DIRECTORY = "/data/log"
ME = NodeId(1)
PATIENCE_S = 5.0
RAFT = RaftConfig(election_timeout_ms=20, fetch_timeout_ms=60_000)


class TestRuntime:
    """What a shell asks of its runtime, apart from the disk."""

    __test__ = False

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.logged = io.StringIO()
        self.log = make_log(self.logged, "info")
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    @property
    def as_runtime(self) -> Runtime:
        """As the parts take it, which use no disk through it."""
        return cast("Runtime", self)


class StaticPeers(dict[int, "FakePeer"]):
    """Peers whose addresses never change."""

    def voters_are(self, voters: object) -> None:
        pass

    def learn_leader(self, message: object) -> None:
        pass

    def unreachable(self, node_id: object) -> None:
        pass

    def with_leader_address(self, response: object) -> object:
        return response

    def with_own_address(self, request: object) -> object:
        return request


class FakePeer:
    """A peer that answers when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Request, asyncio.Future[Response]]] = []

    async def call(self, request: Request, timeout_ms: int) -> Any:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.calls.append((request, answer))
        return await answer

    def ask(self, request: Request, timeout_ms: int, done: Callable[[Any], None]) -> bool:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.calls.append((request, answer))
        answer.add_done_callback(lambda answer: done(answer.exception() or answer.result()))
        return True


@dataclass
class Listener:
    """Notes what the driver tells it."""

    heard: list[tuple[str, int, int]] = field(default_factory=list)

    def on_committed(self, high_watermark: int) -> None:
        self.heard.append(("committed", high_watermark, 0))

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        self.heard.append(("leader", epoch, leader_id))

    def on_snapshot(self, image: MetadataImage) -> None:
        self.heard.append(("snapshot", image.offset, image.epoch))


class Member:
    """One voter of a quorum; alone in it unless told otherwise. `worker` does nothing by itself."""

    def __init__(self, voters: int = 1, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        self.worker = StepWorker()
        self.runtime = TestRuntime()
        self.failures: list[BaseException] = []
        self.log = open_log(self.disk, DIRECTORY, SnapshotStore(self.disk, DIRECTORY), 1 << 30)
        self.states = QuorumStateStore(self.disk, DIRECTORY)
        self.store = SnapshotStore(self.disk, DIRECTORY)
        self.snapshot_worker = StepWorker()
        self.snapshots = Snapshots(self.store, self.snapshot_worker, self.runtime.log)
        ids = self.store.ids()
        self.peers = {number: FakePeer() for number in range(1, voters + 1)}
        keys = [ReplicaKey(NodeId(number), None) for number in self.peers]
        self.core = RaftCore(
            RAFT,
            keys[0],
            VoterSet(keys),
            self.states.load() or QuorumState(Epoch(0), NO_NODE, None),
            ReplicaLog(
                self.log.start_offset,
                self.log.end_offset,
                self.log.epoch_starts,
                self.log.start.epoch,
            ),
            random.Random(1),
            lambda *leader: pack_records([LeaderChangeRecord(*leader)])[0],
            ids[-1] if ids else None,
            self.log.voter_batches,
        )
        self.driver = RaftDriver(
            core=self.core,
            log=self.log,
            states=self.states,
            snapshots=self.snapshots,
            worker=self.worker,
            peers=cast("Any", StaticPeers(self.peers)),
            runtime=self.runtime.as_runtime,
            request_timeout_ms=1_000,
            fail=self.failures.append,
        )
        self.listener = Listener()
        self.driver.add_listener(self.listener)

    async def until(self, holds: Callable[[], object]) -> None:
        """Lets timers fire and the disk work until the condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self.worker.run_all()
                await self.snapshot_worker.run_all()
                await asyncio.sleep(0.001)

    async def lead(self) -> None:
        """Starts if need be, and waits until this member is the established leader."""
        if not self.driver.flight_recorder:
            self.driver.start()
        await self.until(
            lambda: self.driver.is_leader and self.driver.high_watermark == self.log.end_offset
        )

    async def turn(self) -> None:
        """One turn of the event loop, in which the disk does nothing."""
        await asyncio.sleep(0)

    async def stop(self) -> None:
        """Stops the driver, the disk working."""
        stopping = asyncio.ensure_future(self.driver.stop())
        await self.until(stopping.done)
        await stopping
