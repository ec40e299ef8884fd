"""Judges what the nodes of a cluster have left on their disks, whatever clients saw.

Nothing is asked of who has yet to catch up: where the cluster had not settled when it ended, a log
may be behind, or end in what a leader that was replaced has never committed. Then only batches of
one epoch are compared, which are equal at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication import Copy, check_copies
from jepsen.checkers.replication.metadata import Claim, check_leaders, check_metadata
from jepsen.checkers.verdict import Anomaly, Verdict, judge
from jepsen.environments.local._server_logs import (
    MetadataReplay,
    check_stopped,
    is_compacted,
    log_directories,
    metadata_batches,
    node_disks,
    replicas_of,
    snapshots_of,
    summary_of,
)
from raftctl.cli.offline.log_files import DamagedLogError
from raftctl.codec import CodecError
from raftctl.errors import DiskError, InvariantViolation
from raftctl.storage import METADATA_LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from jepsen.checkers.replication import Compared
    from jepsen.environments.local._server_logs import LogSummary, NodeDisk, Replica
    from raftctl.metadata.image import MetadataImage
    from raftctl.raft.messages import OffsetAndEpoch

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
        """Counts what was compared, and keeps what was found."""
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
    """By checker, of a cluster whose processes have ended; without `replicas` if there are none.

    `committed`: up to where the metadata were when the cluster had settled, None if it had not.
    `seen`: epochs, with the name of who was seen to be the active controller. InputError for what
    is no cluster's directory, or a cluster that runs.
    """
    check_stopped(cluster)
    disks = node_disks(cluster)
    ids = {disk.node.name: disk.node.node_id for disk in disks}
    claims = [Claim(epoch, ids[name], "seen from outside") for epoch, name in seen if name in ids]
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
    replicas = _judge_replicas(disks, image, settled=committed is not None) if image else None
    return verdicts if replicas is None else verdicts | {REPLICAS: replicas}


# --- the metadata ---------------------------------------------------------------------------------


def _judge_metadata(
    disks: Sequence[NodeDisk], committed: int | None, seen: Sequence[Claim], found: _Findings
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
    """By which a voter is elected; whoever has most of it has all that is committed."""
    return log.epoch, log.end


def _minorities(
    controllers: Sequence[NodeDisk], summaries: Mapping[str, LogSummary], committed: int
) -> Iterator[Anomaly]:
    """Whether too few voters have what was committed."""
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
    disks: Sequence[NodeDisk], image: MetadataImage, *, settled: bool
) -> Verdict | None:
    """Of all partitions that two brokers hold at least; None if there are none."""
    brokers = [disk for disk in disks if disk.node.role == "broker"]
    directories = [one for disk in brokers for one in log_directories(disk)]
    found = _Findings() if settled else _Findings(notes=[Anomaly(NOT_SETTLED)])
    partitions = 0
    for topic in image.topics.in_order():
        compacted = is_compacted(image, topic)
        for number, one in topic.items():
            in_sync = one.isr if settled else one.replicas
            replicas = replicas_of(directories, topic, number, in_sync)
            if len(replicas) > 1:
                partitions += 1
                log = f"{topic.name}-{number}"
                found.add(_compare(log, replicas, settled=settled, compacted=compacted))
    return found.verdict(partitions=partitions) if partitions else None


def _compare(log: str, replicas: Sequence[Replica], *, settled: bool, compacted: bool) -> Compared:
    """What is committed is at least what a replica has noted so and has."""
    noted = (min(one.high_watermark, one.end) for one in replicas)
    committed = max(noted) if settled else 0
    copies = {one.broker: Copy(one.start, one.batches()) for one in replicas}
    compared = check_copies(log, copies, committed)
    if compared.anomaly is None or not compacted:
        return compared
    # Compaction makes batches anew, each broker when it likes; what is left of them is the same.
    records = {one.broker: Copy(one.start, one.records()) for one in replicas}
    again = check_copies(log, records, committed, partial=True)
    return again._replace(shared=compared.shared)
