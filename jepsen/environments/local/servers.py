"""Checks of the disks that the nodes of a cluster left, whatever clients saw.

Disks are only read, and only while no node runs.

Replicas that have yet to catch up are not judged: where the cluster was not in sync at its end, a
log may be behind, or end in batches that a deposed leader has never committed. Then only batches of
one epoch are compared, which are equal at any time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jepsen.checkers.replication import Copy, HeldBatch, check_copies
from jepsen.checkers.replication.metadata import (
    LeadershipClaim,
    MetadataStep,
    check_leaders,
    check_metadata,
)
from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.environments.raftctl import assignment_of
from jepsen.errors import InputError
from jepsen.log_files import batch_headers, held_of
from raftctl.cli.files import read_config_file
from raftctl.cli.offline.log_files import DamagedLogError, read_batches, records_of, segments
from raftctl.cli.offline.verify import replayed
from raftctl.codec import CodecError
from raftctl.errors import ConfigError, DiskError, InvariantViolation
from raftctl.ids import uuid_text
from raftctl.loader import image_of
from raftctl.localcluster.layout import LocalNode, layout_from_json
from raftctl.localcluster.processes import load_process
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import TOPIC_RESOURCE, LeaderChangeRecord
from raftctl.plugins import LogProblem, log_tools
from raftctl.raft.batch import encode_batch
from raftctl.raft.voters import VotersRecord
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import METADATA_LOG_NAME
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.checkers.replication import Compared
    from jepsen.checkers.replication.metadata import Assignment
    from raftctl.metadata.image import MetadataImage, TopicImage
    from raftctl.raft.messages import OffsetAndEpoch
    from raftctl.storage.snapshots import Snapshot

LAYOUT = "cluster.json"
READ_BYTES = 1024 * 1024
HIGH_WATERMARKS = "replication-offset-checkpoint"
"""Apache Kafka's name for the file: a line each of topic, partition and offset, below two."""
PARTITION_METADATA = "partition.metadata"
_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """The directories of a node."""

    node: LocalNode
    metadata: str
    """The directory of its metadata log."""
    directories: tuple[Path, ...]
    """The directories of its partitions."""


def node_disks(cluster: Path) -> list[NodeDisk]:
    """Return the disks of a cluster that `raftctl up` or the harness has made.

    Raises InputError if it is no cluster's directory.
    """
    try:
        layout = layout_from_json(json.loads((cluster / LAYOUT).read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError) as error:
        raise InputError(f"{cluster}: not the directory of a cluster: {error}") from None
    return [_disk(node, cluster / node.name / "node.properties") for node in layout.nodes]


def check_stopped(cluster: Path) -> None:
    """Raise InputError if the cluster runs, since its files change while they are read."""
    running = [one for one in cluster.glob("*/process.json") if _is_alive(one)]
    if running:
        raise InputError(f"{cluster}: {running[0].parent.name} is running; stop the cluster first")


def _is_alive(process: Path) -> bool:
    found = load_process(process)
    return found is not None and found.is_alive()


def _disk(node: LocalNode, properties: Path) -> NodeDisk:
    try:
        config = read_config_file(str(properties))
    except ConfigError as error:
        raise InputError(str(error)) from None
    metadata = f"{config.metadata_directory}/{METADATA_LOG_NAME}"
    return NodeDisk(node, metadata, tuple(Path(one) for one in config.log_dirs))


# --- the metadata ---------------------------------------------------------------------------------


class LogSummary(NamedTuple):
    """The facts about the quorum in a node's metadata log."""

    start: int
    end: int
    epoch: int
    """The epoch of its last batch."""
    claims: tuple[LeadershipClaim, ...]
    """The nodes that began to lead, as far back as the log goes."""
    voters: tuple[int, ...]
    """The voters of the last record that names them; empty if there is none."""


def metadata_batches(disk: NodeDisk) -> Iterator[HeldBatch]:
    """Yield the batches of a node's log, without a torn tail.

    Raises DamagedLogError.
    """
    paths = segments(disk.metadata)
    try:
        for place, batch in read_batches(paths) if paths else ():
            where = f"{place.path}: byte {place.position}"
            base, end = batch.base_offset, batch.end_offset
            yield HeldBatch(base, end, batch.epoch, encode_batch(batch), where)
    except DamagedLogError as error:
        if not error.torn:
            raise


def summary_of(disk: NodeDisk) -> LogSummary:
    """Read the node's log once. DamagedLogError."""
    paths = segments(disk.metadata)
    start = end = int(Path(paths[0]).stem) if paths else 0
    epoch, claims, voters = 0, list[LeadershipClaim](), tuple[int, ...]()
    try:
        for _, batch in read_batches(paths) if paths else ():
            end, epoch = batch.end_offset, batch.epoch
            for record in records_of(batch) if batch.control else ():
                if isinstance(record, LeaderChangeRecord):
                    claims.append(LeadershipClaim(epoch, record.leader_id, disk.node.name))
                elif isinstance(record, VotersRecord):
                    voters = tuple(voter.replica.node_id for voter in record.voters)
    except DamagedLogError as error:
        if not error.torn:
            raise
    return LogSummary(start, end, epoch, tuple(claims), voters)


def snapshots_of(disk: NodeDisk) -> list[Snapshot]:
    """Return the whole snapshots on the node's disk, the oldest first.

    Raises CorruptSnapshotError.
    """
    store = SnapshotStore(RealFileSystem(), disk.metadata)
    return [store.read(snapshot_id) for snapshot_id in store.ids()]


class MetadataReplay:
    """Replays the metadata of a node, from its first snapshot if its log has no beginning."""

    def __init__(self, disk: NodeDisk, start: int) -> None:
        """`start`: where its log does."""
        self._disk = disk
        self.image = EMPTY_IMAGE
        """The image as of the last step that was replayed."""
        if start > 0:
            whole = [one for one in snapshots_of(disk) if one.snapshot_id.offset >= start]
            self.image = image_of(whole[0]) if whole else EMPTY_IMAGE

    def steps(self) -> Iterator[MetadataStep]:
        """Yield a step for each batch that changes the image.

        Raises DamagedLogError, and the errors of replaying.
        """
        yield _step(EMPTY_IMAGE, self.image)
        paths = segments(self._disk.metadata)
        delta = MetadataDelta(self.image)
        try:
            for _, batch in read_batches(paths) if paths else ():
                if batch.base_offset <= self.image.offset:
                    continue
                delta = replayed(delta, batch)
                before, self.image = self.image, delta.image
                yield _step(before, self.image)
        except DamagedLogError as error:
            if not error.torn:
                raise


def _step(before: MetadataImage, after: MetadataImage) -> MetadataStep:
    brokers = {one.broker_id: (one.broker_epoch, one.fenced) for one in after.brokers.values()}
    moved = [] if after.topics is before.topics else [*_moved(before, after)]
    return MetadataStep(after.offset, moved, brokers)


def _moved(
    before: MetadataImage, after: MetadataImage
) -> Iterator[tuple[Assignment | None, Assignment]]:
    for topic in after.topics.in_order():
        known = before.topics.by_id(topic.topic_id)
        if known is topic:
            continue
        for number, one in topic.items():
            old = None if known is None else known.partitions.get(number)
            if old is not one:
                was = None if old is None or known is None else assignment_of(known, number)
                yield was, assignment_of(topic, number)


# --- partitions -----------------------------------------------------------------------------------


class Replica(NamedTuple):
    """A partition's directory on a broker."""

    broker: str
    directory: Path
    high_watermark: int
    """The high watermark of the last checkpoint; 0 if there is none."""

    @property
    def segments(self) -> list[Path]:
        """The files of its log, in order."""
        return sorted(one for one in self.directory.iterdir() if _SEGMENT.fullmatch(one.name))

    @property
    def start(self) -> int:
        """The offset at which its first segment begins."""
        return min((int(one.stem) for one in self.segments), default=0)

    @property
    def end(self) -> int:
        """Behind its last whole batch."""
        found = self.segments[-1:]
        end = int(found[0].stem) if found else 0
        for batch in _batches(found):
            end = batch.end_offset
        return end

    def batches(self) -> Iterator[HeldBatch]:
        """Up to the first that is not whole, or not as it was written."""
        return _batches(self.segments)

    def records(self) -> Iterator[HeldBatch]:
        """Yield each record by itself, as the broker's own tool reads it."""
        files = RealFileSystem()
        tool = next(iter(log_tools()))
        for path in self.segments:
            for document in tool.dump(files, str(path), with_records=True):
                if isinstance(document, LogProblem):
                    return
                place = f"{path}: byte {document['position']}"
                for one in held_of(document):
                    data = one.record.encode()
                    end = one.offset + 1
                    yield HeldBatch(one.offset, end, document["leader_epoch"], data, place)


def _batches(segments: Sequence[Path]) -> Iterator[HeldBatch]:
    for path in segments:
        read = 0
        for batch in _of_segment(path):
            read += len(batch.data)
            yield batch
        if read < path.stat().st_size:
            return


def _of_segment(path: Path) -> Iterator[HeldBatch]:
    with path.open("rb") as file:
        data, begin = b"", 0
        while chunk := file.read(READ_BYTES):
            data += chunk
            done = 0
            for one in batch_headers(data):
                done = one.position + one.size
                whole = data[one.position : done]
                if not one.is_right(whole):
                    return
                place = f"{path}: byte {begin + one.position}"
                yield HeldBatch(one.base_offset, one.end_offset, one.epoch, whole, place)
            data, begin = data[done:], begin + done


class LogDirectory(NamedTuple):
    """A log directory of a broker."""

    disk: NodeDisk
    path: Path
    high_watermarks: dict[str, int]
    """Partition (`topic-0`) to the high watermark of the last checkpoint."""


def log_directories(disk: NodeDisk) -> list[LogDirectory]:
    """Return the log directories of a broker.

    Raises InputError for a damaged checkpoint.
    """
    return [LogDirectory(disk, path, _offsets(path / HIGH_WATERMARKS)) for path in disk.directories]


def _offsets(checkpoint: Path) -> dict[str, int]:
    if not checkpoint.is_file():
        return {}
    try:
        lines = [line.split() for line in checkpoint.read_text(encoding="utf-8").splitlines()[2:]]
        return {f"{topic}-{number}": int(offset) for topic, number, offset in lines}
    except ValueError as error:
        raise InputError(f"{checkpoint}: not a checkpoint of offsets: {error}") from None


def replicas_of(
    directories: Sequence[LogDirectory], topic: TopicImage, number: int, brokers: Sequence[int]
) -> list[Replica]:
    """Return the replicas of a partition that these brokers hold."""
    name = f"{topic.name}-{number}"
    return [
        Replica(one.disk.node.name, one.path / name, one.high_watermarks.get(name, 0))
        for one in directories
        if one.disk.node.node_id in brokers and _is_of(one.path / name, topic)
    ]


def _is_of(directory: Path, topic: TopicImage) -> bool:
    """Return whether the directory is of this topic, not of one that had its name before."""
    try:
        text = (directory / PARTITION_METADATA).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return f"topic_id: {uuid_text(topic.topic_id)}" in text.splitlines()


def is_compacted(image: MetadataImage, topic: TopicImage) -> bool:
    """Return whether records of the topic may be gone from the middle of a log."""
    return "compact" in image.config(TOPIC_RESOURCE, topic.name).get("cleanup.policy", "")


METADATA, REPLICAS = "metadata", "replicas"
DAMAGED = "damaged-log"
NOT_REPLAYED = "metadata-cannot-be-replayed"
ON_A_MINORITY = "committed-on-a-minority"
DIVERGED_SNAPSHOT = "diverged-snapshot"
NOT_SETTLED = "not-settled"
SHOWN_MAX = 100


@dataclass(slots=True)
class _Findings:
    """What has been found so far."""

    anomalies: list[Anomaly] = field(default_factory=list)
    notes: list[Anomaly] = field(default_factory=list)
    compared: int = 0
    """Batches that two copies or more hold."""

    def add(self, compared: Compared) -> None:
        """Count what was compared, and keep what was found."""
        self.compared += compared.shared
        if compared.anomaly is not None:
            self.anomalies.append(compared.anomaly)

    def verdict(self, **statistics: Any) -> Verdict:
        """Of all that was found."""
        shown, notes = self.anomalies[:SHOWN_MAX], self.notes[:SHOWN_MAX]
        return judge(shown, notes=notes, batches=self.compared, **statistics)


def judge_servers(
    cluster: Path, committed: int | None, seen: Iterable[tuple[int, str]] = ()
) -> dict[str, Verdict]:
    """Judge a cluster whose processes have ended; return verdicts by checker.

    There is none for `replicas` without replicas. `committed`: the end of the metadata when the
    cluster had recovered, None if it had not. `seen`: epochs, with the name of the controller that
    was seen to be active. Raises InputError if it is no cluster's directory, or the cluster runs.
    """
    check_stopped(cluster)
    disks = node_disks(cluster)
    ids = {disk.node.name: disk.node.node_id for disk in disks}
    claims = [
        LeadershipClaim(epoch, ids[name], "seen from outside")
        for epoch, name in seen
        if name in ids
    ]
    found = _Findings() if committed is not None else _Findings(notes=[Anomaly(NOT_SETTLED)])
    image = None
    try:
        image = _judge_metadata(disks, committed, claims, found)
    except DamagedLogError as error:
        detail = {"place": error.place.path, "byte": error.place.position, "why": error.why}
        found.anomalies.append(Anomaly(DAMAGED, detail))
    except (CodecError, DiskError, InvariantViolation) as error:
        found.anomalies.append(Anomaly(NOT_REPLAYED, {"why": str(error)}))
    verdicts = {METADATA: found.verdict(nodes=len(disks), offset=image.offset if image else -1)}
    replicas = _judge_replicas(disks, image, at_rest=committed is not None) if image else None
    return verdicts if replicas is None else verdicts | {REPLICAS: replicas}


# --- the metadata ---------------------------------------------------------------------------------


def _judge_metadata(
    disks: Sequence[NodeDisk],
    committed: int | None,
    seen: Sequence[LeadershipClaim],
    found: _Findings,
) -> MetadataImage:
    """The newest image of all; raises what reading and replaying do."""
    summaries = {disk.node.name: summary_of(disk) for disk in disks}
    controllers = [disk for disk in disks if disk.node.role == "controller"]
    copies = {
        disk.node.name: Copy(summaries[disk.node.name].start, metadata_batches(disk))
        for disk in disks
    }
    found.add(check_copies(METADATA_LOG_NAME, copies, committed or 0, partial=True))
    claims = [claim for one in summaries.values() for claim in one.claims]
    found.anomalies += check_leaders([*claims, *seen])
    found.anomalies += _minorities(controllers, summaries, committed or 0)
    found.anomalies += _diverged_snapshots(disks)
    newest = max(controllers, key=lambda disk: _newness(summaries[disk.node.name]))
    replay = MetadataReplay(newest, summaries[newest.node.name].start)
    found.anomalies += check_metadata(replay.steps())
    return replay.image


def _newness(log: LogSummary) -> tuple[int, int]:
    """Return the order of elections: the newest log of a majority has all that is committed."""
    return log.epoch, log.end


def _minorities(
    controllers: Sequence[NodeDisk], summaries: Mapping[str, LogSummary], committed: int
) -> Iterator[Anomaly]:
    """Return whether too few voters have what was committed."""
    logs = {disk.node.node_id: summaries[disk.node.name] for disk in controllers}
    voters = max(logs.values(), key=_newness).voters or tuple(logs)
    ends = {str(voter): logs[voter].end for voter in voters if voter in logs}
    if 2 * sum(end >= committed for end in ends.values()) <= len(voters):
        yield Anomaly(ON_A_MINORITY, {"committed": committed, "ends": ends})


def _diverged_snapshots(disks: Sequence[NodeDisk]) -> Iterator[Anomaly]:
    """Snapshots of one offset that hash to different states."""
    states: dict[OffsetAndEpoch, dict[str, str]] = {}
    for disk in disks:
        for one in snapshots_of(disk):
            if one.state_hash is not None:
                states.setdefault(one.snapshot_id, {})[disk.node.name] = one.state_hash
    for at, hashes in states.items():
        if len(set(hashes.values())) > 1:
            yield Anomaly(
                DIVERGED_SNAPSHOT, {"offset": at.offset, "epoch": at.epoch, "hashes": hashes}
            )


# --- partitions -----------------------------------------------------------------------------------


def _judge_replicas(
    disks: Sequence[NodeDisk], image: MetadataImage, *, at_rest: bool
) -> Verdict | None:
    """Of all partitions that two brokers hold at least; None if there are none."""
    brokers = [disk for disk in disks if disk.node.role == "broker"]
    directories = [one for disk in brokers for one in log_directories(disk)]
    found = _Findings() if at_rest else _Findings(notes=[Anomaly(NOT_SETTLED)])
    partitions = 0
    for topic in image.topics.in_order():
        compacted = is_compacted(image, topic)
        for number, one in topic.items():
            in_sync = one.isr if at_rest else one.replicas
            replicas = replicas_of(directories, topic, number, in_sync)
            if len(replicas) > 1:
                partitions += 1
                log = f"{topic.name}-{number}"
                found.add(_compare(log, replicas, at_rest=at_rest, compacted=compacted))
    return found.verdict(partitions=partitions) if partitions else None


def _compare(log: str, replicas: Sequence[Replica], *, at_rest: bool, compacted: bool) -> Compared:
    """What is committed is at least what a replica has noted so and has."""
    noted = (min(one.high_watermark, one.end) for one in replicas)
    committed = max(noted) if at_rest else 0
    copies = {one.broker: Copy(one.start, one.batches()) for one in replicas}
    compared = check_copies(log, copies, committed)
    if compared.anomaly is None or not compacted:
        return compared
    # Compaction rewrites batches, each broker at its own time; their records stay the same.
    records = {one.broker: Copy(one.start, one.records()) for one in replicas}
    again = check_copies(log, records, committed, partial=True)
    return again._replace(shared=compared.shared)
