"""Watchers look into running nodes after each step of their processes, and check the properties.

A watcher belongs to one life of one node. It only reads. To be cheap it first compares the few
numbers that any relevant change moves. Brokers are known by the attributes they show
(`broker.replicas`), since the harness imports no broker.

`nothing_is_left_of_a_node_that_ended`: a node that stopped leaves no running task, open file, held
lock or socket behind. What is released at the end is also released while a node runs: with each
partition that is deleted, each leader that changes, each connection that breaks.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.environments.raftctl import assignment_of
from jepsen.log_files import batch_headers
from jepsen.simulator.network import sockets_of
from jepsen.simulator.properties._committed import Entry
from jepsen.simulator.properties._invariants import (
    NO_VOTE,
    ImageView,
    QuorumChange,
    QuorumHistory,
    QuorumView,
    Violation,
    VoterKey,
    WaitingView,
)
from jepsen.simulator.properties._partition_invariants import PartitionChange, PartitionView
from jepsen.simulator.properties._producer_id_invariants import BrokerLife, ProducerIdsView
from jepsen.simulator.properties._snapshot_invariants import SnapshotReader
from raftctl.errors import InvariantViolation
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import LeaderChangeRecord
from raftctl.raft.batch import HEADER_BYTES, Batch, CorruptBatchError, decode_batches
from raftctl.raft.messages import Offset
from raftctl.raft.voters import decode_voters
from raftctl.storage import METADATA_LOG_NAME, QUORUM_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from jepsen.checkers.replication.metadata import Assignment
    from jepsen.simulator.coverage import Coverage
    from jepsen.simulator.disk import DurableFile, SimDisk
    from jepsen.simulator.kernel.process import Process
    from jepsen.simulator.properties._properties import Properties
    from raftctl.metadata.image import MetadataImage
    from raftctl.node import ControllerService, Node
    from raftctl.quorum import RaftDriver
    from raftctl.raft.voters import VoterSet

READ_BYTES_MAX = 1 << 30
LOG_SUFFIX = ".log"


def quorum_history(
    disks: Mapping[int, SimDisk], data: str, directory_ids: Mapping[int, UUID]
) -> QuorumHistory:
    """Return an empty history of controllers with these disks, each with an id of its own."""
    directory = f"{data}/{METADATA_LOG_NAME}"
    readers = {node_id: _DurableLog(disk, directory) for node_id, disk in disks.items()}

    def durable_entries(voter: VoterKey) -> dict[int, Entry]:
        node_id, directory_id = voter
        # What votes is a disk: another one in the same node is another voter.
        is_there = directory_id in (None, directory_ids.get(node_id))
        return readers[node_id].entries() if is_there else {}

    return QuorumHistory(
        voters=tuple((node_id, None) for node_id in disks),
        durable_entries=durable_entries,
        durable_vote=lambda node_id: _durable_vote(disks[node_id], directory),
        directory_of=directory_ids.get,
    )


def _entry(batch: Batch) -> Entry:
    return Entry(
        batch.base_offset,
        batch.end_offset,
        batch.epoch,
        hash((batch.timestamp_ms, batch.control, batch.payload)),
    )


def _durable_vote(disk: SimDisk, directory: str) -> tuple[int, int]:
    file = disk.durable(directory).get(QUORUM_STATE)
    return NO_VOTE if file is None else _vote_in(bytes(file.durable))


@functools.lru_cache
def _vote_in(state: bytes) -> tuple[int, int]:
    fields = json.loads(state)
    return fields["epoch"], fields["voted_id"]


class _Segment(NamedTuple):
    """A file of the log, and how much of it has been decoded."""

    file: DurableFile
    rewrites: int
    position: int


class _DurableLog:
    """The metadata log on one disk; what was decoded once and still stands is not read again."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._entries: dict[int, Entry] = {}
        self._segments: dict[str, _Segment] = {}

    def entries(self) -> dict[int, Entry]:
        """The whole batches by base offset, in order."""
        found = self._disk.durable(self._directory)
        files = {name: file for name, file in found.items() if name.endswith(LOG_SUFFIX)}
        stands = all(
            files.get(name) is known.file and known.file.rewrites == known.rewrites
            for name, known in self._segments.items()
        )
        if not stands:
            self._entries, self._segments = {}, {}
        for name, file in files.items():
            known = self._segments.get(name)
            position = known.position if known else 0
            if known is None or position < len(file.durable):
                position += self._decode(bytes(file.durable[position:]))
                self._segments[name] = _Segment(file, file.rewrites, position)
        return self._entries

    def _decode(self, data: bytes) -> int:
        """Notes the batches; returns where the last whole one ends."""
        end = 0
        try:
            for at, batch in decode_batches(data):
                self._entries[batch.base_offset] = _entry(batch)
                end = at + HEADER_BYTES + len(batch.payload)
        except CorruptBatchError as error:
            return error.position
        return end


_PartitionState = tuple[bool, int, int, int, tuple[int, ...]]
"""Whether it leads, leader epoch, high watermark, log end, ISR: what moves with all of interest."""


class Watcher:
    """Watches one life of a node; call it after each step."""

    def __init__(
        self, properties: Properties, node: Node, life: int, disk: SimDisk, coverage: Coverage
    ) -> None:
        self._properties = properties
        self._coverage = coverage
        self._node = node
        self._life = life
        self._disk = disk
        self._id = node.config.node_id
        self._is_voter = node.config.is_controller
        self._quorum_state: tuple[int, ...] = ()
        self._flushed_end = -1
        self._quorum_view: QuorumView | None = None
        self._voters: VoterSet | None = None
        self._voter_keys: tuple[VoterKey, ...] = ()
        self._image: MetadataImage | None = None
        directory = f"{node.config.metadata_directory}/{METADATA_LOG_NAME}"
        self._snapshots = SnapshotReader(self._id, disk, directory)
        self._producer_ids = (range(0), range(0))
        self._most_waiting = (0, 0, 0)
        """The most that has waited so far; less than what was within bounds needs no look."""
        self._partitions: dict[Any, tuple[_PartitionState, PartitionView]] = {}

    def __call__(self) -> None:
        """Looks, and raises `Violation` if a property does not hold any more."""
        node = self._node
        driver = node.driver
        if driver is None:
            return
        self._coverage.watch(driver)
        if self._is_voter:
            before = self._quorum_state
            self._look_at_quorum(driver)
            if node.service is not None:
                self._look_at_waiting(driver, node.service)
                # All that the controller does stands in its log, or begins with another epoch.
                if self._quorum_state != before:
                    self._look_at_controller(node.service)
        loader = node.loader
        if loader is not None and loader.image is not self._image:
            self._image = loader.image
            if self._image.offset >= 0:
                self._properties.image_published(self._image_view(self._image, driver))
                for snapshot in self._snapshots.new():
                    self._properties.snapshot_found(snapshot)
        if node.broker is not None:
            # Another plug-in than ours may have no replicas.
            replicas = getattr(node.broker, "replicas", None)
            if replicas is not None:
                self._look_at_partitions(replicas)
            producer_ids = getattr(node.broker, "_producer_ids", None)
            if producer_ids is not None:
                self._look_at_producer_ids(producer_ids)

    # --- the quorum -----------------------------------------------------------------------------

    def _look_at_quorum(self, driver: RaftDriver) -> None:
        core = driver.core
        flushed = driver.log.flushed_end_offset
        state = (core.epoch, core.is_leader, core.high_watermark, core.log.end_offset)
        # Of a disk that has never failed nobody asks what the node takes for durable.
        suspect = self._disk.failed_syncs > 0 and flushed != self._flushed_end
        if state == self._quorum_state and not suspect:
            return
        core.invariants()
        self._quorum_state = state
        self._flushed_end = flushed
        before = self._quorum_view
        leads_on = before is not None and before.leads and before.epoch == core.epoch
        view = QuorumView(
            node_id=self._id,
            life=self._life,
            epoch=core.epoch,
            leads=core.is_leader,
            high_watermark=core.high_watermark,
            log_end=core.log.end_offset,
            read=functools.partial(_read_metadata, driver),
            granting=_granting(driver) if core.is_leader and not leads_on else (),
            voters=self._keys(core.voters),
            committed_voters=self._keys(core.voters_at(core.high_watermark)),
            flushed_end=flushed if self._suspects(flushed, driver) else None,
        )
        self._quorum_view = view
        self._properties.quorum_changed(QuorumChange(before, view))

    def _keys(self, voters: VoterSet) -> tuple[VoterKey, ...]:
        if voters is not self._voters:
            self._voters = voters
            keys = (voter.replica for voter in voters.voters)
            self._voter_keys = tuple((key.node_id, key.directory_id) for key in keys)
        return self._voter_keys

    def _suspects(self, flushed: int, driver: RaftDriver) -> bool:
        """Whether the log must be on the disk, which has failed, and no snapshot stands for it."""
        suspect = self._disk.failed_syncs > 0 and not self._disk.lies
        return suspect and flushed > driver.log.start_offset

    def _look_at_controller(self, service: ControllerService) -> None:
        try:
            service.invariants()
        except InvariantViolation as violation:
            # As a `Violation` it accuses the node; raised as it is it would end the simulation.
            raise Violation("controller_is_sound", f"controller {self._id}: {violation}") from None

    def _look_at_waiting(self, driver: RaftDriver, service: ControllerService) -> None:
        waiting = driver.unwritten_bytes, service.waiting, service.waiting_bytes
        most = self._most_waiting
        if waiting[0] > most[0] or waiting[1] > most[1] or waiting[2] > most[2]:
            self._properties.waiting_changed(WaitingView(self._id, *waiting))
            self._most_waiting = (
                max(waiting[0], most[0]),
                max(waiting[1], most[1]),
                max(waiting[2], most[2]),
            )

    def _image_view(self, image: MetadataImage, driver: RaftDriver) -> ImageView:
        return ImageView(
            node_id=self._id,
            life=self._life,
            offset=image.offset,
            image=image,
            high_watermark=driver.high_watermark,
            assignments=lambda: list(_assignments(image)),
            unfenced={b.broker_id: b.broker_epoch for b in image.brokers.values() if not b.fenced},
            next_producer_id=image.next_producer_id,
        )

    def _look_at_producer_ids(self, producer_ids: Any) -> None:
        blocks = producer_ids._current, producer_ids._next
        if blocks != self._producer_ids:
            self._producer_ids = blocks
            owner = BrokerLife(self._id, self._life)
            held = tuple(block for block in blocks if block)
            self._properties.producer_ids_changed(ProducerIdsView(owner, held))

    # --- partitions -----------------------------------------------------------------------------

    def _look_at_partitions(self, replicas: Any) -> None:
        known_partitions = self._partitions
        changed: list[Any] = []
        for replica in replicas.partitions.values():
            core, log = replica.state, replica.log
            state = (
                core.is_leader,
                core.leader_epoch,
                core.high_watermark,
                log.log_end_offset,
                core.isr,
            )
            known = known_partitions.get(replica)
            if known is None or known[0] != state:
                changed.append(replica)
            if known is None:
                self._look_at_partition(replica, state, None)
            elif known[0] != state:
                self._look_at_partition(replica, state, known[1])
        if changed:
            replicas.invariants(changed)

    def _look_at_partition(
        self, replica: Any, state: _PartitionState, before: PartitionView | None
    ) -> None:
        if replica.log.offline is not None:
            return  # Nobody can read it, so nobody is promised anything of it either.
        leads, leader_epoch, high_watermark, log_end, isr = state
        view = PartitionView(
            node_id=self._id,
            life=self._life,
            partition=f"{replica.partition}/{replica.topic_id}",
            leads=leads,
            leader_epoch=leader_epoch,
            high_watermark=high_watermark,
            log_end=log_end,
            isr=isr,
            min_isr=replica.state.effective_min_insync,
            read=functools.partial(_read_partition, replica.log),
        )
        self._partitions[replica] = (state, view)
        self._properties.partition_changed(PartitionChange(before, view))


def _read_metadata(driver: RaftDriver, begin: int, end: int) -> list[Entry]:
    """What stands in the log; a snapshot may have taken the place of the beginning."""
    found: list[Entry] = []
    begin = max(begin, driver.log.start_offset)
    while begin < end:
        batches = driver.log.batches(Offset(begin), READ_BYTES_MAX)
        found += [_entry(batch) for batch in batches if batch.base_offset < end]
        if not batches:
            break
        begin = batches[-1].end_offset
    return found


def _granting(driver: RaftDriver) -> tuple[int, ...]:
    """The voters that the leader's first record of the epoch names."""
    epoch, start = driver.core.log.epoch_starts[-1]
    if epoch != driver.core.epoch:
        return ()
    batch = driver.log.batches(start, 1)[0]
    if decode_voters(batch.payload) is not None:
        return ()  # a snapshot has taken the place of the first
    record = unpack_records(batch.payload, batch.count)[0]
    return record.granting_voters if isinstance(record, LeaderChangeRecord) else ()


def _assignments(image: MetadataImage) -> Iterator[Assignment]:
    for topic in image.topics.in_order():
        for number in range(len(topic.partitions)):
            yield assignment_of(topic, number)


def _read_partition(log: Any, begin: int, end: int) -> list[Entry]:
    """The batches of a partition's log, taken from the bytes that a reader would get."""
    found: list[Entry] = []
    begin = max(begin, log.log_start_offset)
    while begin < end:
        buffers = log.read(begin, max_bytes=READ_BYTES_MAX, up_to_offset=end, min_one=True)
        entries = [entry for buffer in buffers for entry in _kafka_entries(bytes(buffer))]
        if not entries:
            break
        found += entries
        begin = entries[-1].end_offset
    return found


def _kafka_entries(data: bytes) -> Iterator[Entry]:
    for one in batch_headers(data):
        yield Entry(one.base_offset, one.end_offset, one.epoch, one.crc)


SHOWN_CHARS = 200


def check_left_behind(process: Process) -> None:
    """Raise `Violation` with what is left of a process whose main coroutine has ended."""
    left = list(_left(process))
    if left:
        complaint = f"{process.node.name}: {'; '.join(left)}"
        raise Violation("nothing_is_left_of_a_node_that_ended", complaint)


def _left(process: Process) -> Iterator[str]:
    disk = process.node.disk
    yield from sorted(f"{file.path} is open" for file in disk.open_files)
    yield from sorted(f"{path} is locked" for path in disk.locked)
    sockets = sockets_of(process)
    yield from sorted(f"port {port} is listened on" for port in sockets.listeners)
    yield from sorted(f"port {port} is connected" for port in sockets.endpoints)
    tasks = (task for task in process.tasks if not task.done())
    yield from sorted(repr(task)[:SHOWN_CHARS] for task in tasks)
