"""What nodes have left on their disks: each disagreement is found, none invented."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from crc32c import crc32c

from jepsen.checkers.replication import Copy, HeldBatch, check_copies
from jepsen.checkers.replication.metadata import (
    Assignment,
    LeadershipClaim,
    MetadataStep,
    check_leaders,
    check_metadata,
)
from jepsen.checkers.replication.trace import METADATA_LOG
from jepsen.cli.main import run
from jepsen.core.spec import RunSpec
from jepsen.environments.local.servers import judge_servers
from jepsen.history import Op, OpType
from jepsen.store import RunFolder
from raftctl.cli.offline.storage import format_storage, random_uuid_text
from raftctl.ids import uuid_text
from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
from raftctl.metadata.codec import pack_payload
from raftctl.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    LeaderChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.raft.batch import Batch, encode_batch
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.runtime.real import RealFileSystem
from raftctl.storage.snapshots import SnapshotStore
from tests.unit.broker.log.batches import make_batch

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.checkers.verdict import Verdict
    from raftctl.metadata.records import Record

pytestmark = pytest.mark.req("J4")

# --- logs compared --------------------------------------------------------------------------------


def held(base: int, end: int, data: str, epoch: int = 1) -> HeldBatch:
    return HeldBatch(base, end, epoch, data.encode(), "a file")


LOG = [held(0, 2, "a"), held(2, 3, "b"), held(3, 6, "c", 2)]


def found(
    committed: int, *logs: list[HeldBatch], start: int = 0, partial: bool = False
) -> tuple[Any, ...]:
    copies = {str(number): Copy(start, log) for number, log in enumerate(logs)}
    shared, anomaly = check_copies("t-0", copies, committed, partial=partial)
    if anomaly is None:
        return (shared,)
    detail = anomaly.detail
    return shared, anomaly.name, detail["offset"], sorted(detail["copies"]), detail["lacking"]


def test_equal_logs_agree_also_where_one_is_behind_what_is_not_committed() -> None:
    assert found(6, LOG, LOG, LOG) == (3,)
    assert found(3, LOG, LOG[:2], LOG) == (3,)
    assert found(0, LOG, []) == (0,)


def test_the_first_batch_that_differs_is_named() -> None:
    other = [LOG[0], held(2, 3, "x"), held(3, 6, "y", 2)]
    assert found(6, LOG, LOG, other) == (1, "diverged-batch", 2, ["0", "1", "2"], [])


def test_batches_of_one_epoch_differ_nowhere() -> None:
    assert found(0, LOG, [*LOG[:2], held(3, 6, "x", 2)])[1] == "diverged-batch"
    assert found(3, LOG, [*LOG[:2], held(3, 5, "x", 1), held(5, 6, "y", 1)]) == (2,)
    assert found(6, LOG, [*LOG[:2], held(3, 6, "x", 1)])[1] == "diverged-batch"


def test_committed_batches_are_nowhere_missing() -> None:
    assert found(6, LOG, LOG[:2]) == (2, "lacks-committed", 3, ["0"], ["1"])
    assert found(6, LOG, [LOG[0], LOG[2]])[1:3] == ("lacks-committed", 2)
    assert found(6, LOG, [LOG[0], LOG[2]], partial=True) == (2,)


def test_a_log_whose_start_was_removed_lacks_nothing() -> None:
    copies = {"1": Copy(0, LOG), "2": Copy(3, LOG[2:]), "3": Copy(6, [])}
    assert check_copies("t-0", copies, 6) == (1, None)


# --- metadata judged ------------------------------------------------------------------------------

ASSIGNED = Assignment("t-0", (1, 2, 3), (1, 2), 1, leader_epoch=4, partition_epoch=7)
MOVED = replace(ASSIGNED, leader=2, isr=(2,), leader_epoch=5, partition_epoch=8)
BROKERS = {1: (10, False), 2: (11, False), 3: (12, True)}


def names(*steps: MetadataStep) -> list[str]:
    return [anomaly.name for anomaly in check_metadata(steps)]


@pytest.mark.parametrize(
    ("after", "name"),
    [
        (MOVED, None),
        (replace(MOVED, leader=-1), None),
        (replace(MOVED, isr=(1,)), "leader-not-in-isr"),
        (replace(MOVED, isr=(2, 4)), "leader-not-in-isr"),
        (replace(MOVED, leader_epoch=4), "epoch-went-back"),
        (replace(MOVED, partition_epoch=7), "epoch-went-back"),
        (replace(MOVED, leader=3, isr=(3,)), "fenced-leader"),
    ],
)
def test_a_change_of_a_partition_keeps_the_rules(after: Assignment, name: str | None) -> None:
    steps = (
        MetadataStep(20, [(None, ASSIGNED)], BROKERS),
        MetadataStep(21, [(ASSIGNED, after)], BROKERS),
    )
    assert names(*steps) == ([] if name is None else [name])


def test_a_fenced_broker_may_lead_until_it_is_relieved() -> None:
    fenced = BROKERS | {1: (10, True)}
    shrunk = replace(ASSIGNED, isr=(1,), partition_epoch=8)
    assert names(MetadataStep(20, [(ASSIGNED, shrunk)], fenced)) == []


def test_a_broker_epoch_never_goes_back() -> None:
    steps = [MetadataStep(20, [], BROKERS), MetadataStep(21, [], {}), MetadataStep(22, [], BROKERS)]
    assert names(*steps) == []
    assert names(*steps, MetadataStep(23, [], {1: (9, False)})) == ["epoch-went-back"]


def test_an_epoch_has_one_active_controller() -> None:
    claims = [
        LeadershipClaim(1, 101, "a"),
        LeadershipClaim(2, 102, "a"),
        LeadershipClaim(1, 101, "b"),
    ]
    assert list(check_leaders(claims)) == []
    [wrong] = check_leaders([*claims, LeadershipClaim(2, 103, "b")])
    assert wrong.name == "two-leaders"
    assert wrong.detail == {"epoch": 2, "leaders": {"102": "a", "103": "b"}}


# --- disks ----------------------------------------------------------------------------------------

TOPIC = UUID(int=7)
NAMES = ("controller-101", "controller-102", "controller-103", "broker-1", "broker-2", "broker-3")
BROKER_RECORDS = [
    RegisterBrokerRecord(broker, UUID(int=broker), (), None, fenced=False) for broker in (1, 2, 3)
]
PARTITION = PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2, 3), 1, 0, 0)


def metadata_batch(base: int, *records: Record, epoch: int = 1) -> bytes:
    control = isinstance(records[0], LeaderChangeRecord)
    payload = pack_payload(records)
    return encode_batch(Batch(Offset(base), Epoch(epoch), len(records), 5, control, payload))


def metadata_log(*more: bytes) -> list[bytes]:
    """Six records."""
    return [
        metadata_batch(0, LeaderChangeRecord(101, (101, 102, 103), (101, 102))),
        metadata_batch(1, *BROKER_RECORDS),
        metadata_batch(4, TopicRecord("t", TOPIC), PARTITION),
        *more,
    ]


def kafka_batch(base: int, text: str, epoch: int = 0, count: int = 1) -> bytes:
    body = struct.pack(">hi", 0, count - 1) + bytes(30) + struct.pack(">i", count) + text.encode()
    return struct.pack(">qiibI", base, 9 + len(body), epoch, 2, crc32c(body)) + body


PARTITION_LOG = [kafka_batch(0, "a"), kafka_batch(1, "b", count=2), kafka_batch(3, "c", epoch=1)]
SEGMENT = f"{0:020}.log"


class Disks:
    """Of a cluster that was made and never ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        LocalCluster.open(path, ClusterSpec(3, 3, None, {}), random_uuid_text, format_storage)
        for name in NAMES:
            self.write_metadata(name, metadata_log())
        for name in NAMES[3:]:
            self.write(name, PARTITION_LOG, high_watermark=4)

    def write_metadata(self, node: str, batches: list[bytes]) -> None:
        directory = self.path / node / "data" / "__cluster_metadata-0"
        directory.mkdir(exist_ok=True)
        (directory / SEGMENT).write_bytes(b"".join(batches))

    def write(
        self, node: str, batches: list[bytes], *, high_watermark: int = 0, topic: UUID = TOPIC
    ) -> None:
        data = self.path / node / "data"
        (data / "t-0").mkdir(exist_ok=True)
        text = f"version: 0\ntopic_id: {uuid_text(topic)}\n"
        (data / "t-0" / "partition.metadata").write_text(text)
        (data / "t-0" / SEGMENT).write_bytes(b"".join(batches))
        (data / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")

    def judged(self, committed: int | None = 6) -> dict[str, list[str]]:
        found = judge_servers(self.path, committed)
        return {name: anomalies(verdict) for name, verdict in found.items()}


def anomalies(verdict: Verdict) -> list[str]:
    return [anomaly.name for anomaly in verdict.anomalies]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path / "nodes")


SOUND: dict[str, list[str]] = {"metadata": [], "replicas": []}


def test_equal_disks_are_valid_and_say_how_much_was_compared(disks: Disks) -> None:
    found = judge_servers(disks.path, 6)
    assert {name: verdict.valid for name, verdict in found.items()} == {
        "metadata": True,
        "replicas": True,
    }
    assert found["metadata"].statistics == {"batches": 3, "nodes": 6, "offset": 5}
    assert found["replicas"].statistics == {"batches": 3, "partitions": 1}
    assert not found["replicas"].notes


def test_a_replica_that_differs_below_the_high_watermark_is_found(disks: Disks) -> None:
    disks.write("broker-2", [PARTITION_LOG[0], kafka_batch(1, "x", count=2), PARTITION_LOG[2]])
    [wrong] = judge_servers(disks.path, 6)["replicas"].anomalies
    assert wrong.name == "diverged-batch"
    assert (wrong.detail["log"], wrong.detail["offset"]) == ("t-0", 1)
    assert wrong.detail["copies"]["broker-2"]["place"].endswith(f"{SEGMENT}: byte 62")


def test_a_replica_that_was_cut_or_spoiled_lacks_what_is_committed(disks: Disks) -> None:
    disks.write("broker-3", PARTITION_LOG[:2])
    assert disks.judged() == SOUND | {"replicas": ["lacks-committed"]}
    spoiled = bytearray(PARTITION_LOG[1])
    spoiled[-1] ^= 1
    disks.write("broker-3", [PARTITION_LOG[0], bytes(spoiled), PARTITION_LOG[2]])
    assert disks.judged() == SOUND | {"replicas": ["lacks-committed"]}


def test_a_tail_that_was_not_committed_may_differ(disks: Disks) -> None:
    for name in NAMES[3:]:
        disks.write(name, PARTITION_LOG, high_watermark=3)
    disks.write("broker-3", [*PARTITION_LOG[:2], kafka_batch(3, "x")], high_watermark=3)
    assert disks.judged() == SOUND


def test_who_is_not_in_sync_or_has_a_log_of_another_topic_is_not_asked(disks: Disks) -> None:
    disks.write("broker-2", [], topic=UUID(int=8))
    shrunk = metadata_batch(6, PartitionChangeRecord(TOPIC, 0, isr=(1, 2)))
    for name in NAMES:
        disks.write_metadata(name, metadata_log(shrunk))
    disks.write("broker-3", [])
    assert disks.judged() == {"metadata": []}


def test_compacted_replicas_are_compared_record_by_record(disks: Disks) -> None:
    whole = make_batch([b"a", b"b", b"c"], leader_epoch=0)
    compacted = make_batch([b"b", b"c"], leader_epoch=0, base_offset=1)
    for name, log in zip(NAMES[3:], (whole, whole, compacted), strict=True):
        disks.write(name, [log], high_watermark=3)
    assert disks.judged() == SOUND | {"replicas": ["lacks-committed"]}
    policy = metadata_batch(6, ConfigRecord(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
    for name in NAMES:
        disks.write_metadata(name, metadata_log(policy))
    assert disks.judged() == SOUND
    other = make_batch([b"x", b"c"], leader_epoch=0, base_offset=1)
    disks.write("broker-3", [other], high_watermark=3)
    [wrong] = judge_servers(disks.path, 6)["replicas"].anomalies
    assert (wrong.name, wrong.detail["offset"]) == ("diverged-batch", 1)


def test_where_nothing_has_settled_only_epochs_are_compared(disks: Disks) -> None:
    disks.write("broker-2", PARTITION_LOG[:1], high_watermark=4)
    disks.write("broker-3", [kafka_batch(0, "x", epoch=3)])
    assert disks.judged(None) == SOUND
    assert [note.name for note in judge_servers(disks.path, None)["replicas"].notes] == [
        "not-settled"
    ]
    disks.write("broker-3", [kafka_batch(0, "x")])
    assert disks.judged(None) == SOUND | {"replicas": ["diverged-batch"]}


def test_metadata_logs_that_differ_are_found(disks: Disks) -> None:
    other = metadata_batch(4, TopicRecord("u", TOPIC), PARTITION)
    disks.write_metadata("broker-1", [*metadata_log()[:2], other])
    assert disks.judged() == SOUND | {"metadata": ["diverged-batch"]}


def test_committed_metadata_are_on_a_majority_and_a_follower_may_lag(disks: Disks) -> None:
    disks.write_metadata("controller-103", metadata_log()[:2])
    assert disks.judged() == SOUND
    disks.write_metadata("controller-102", metadata_log()[:2])
    assert disks.judged() == SOUND | {"metadata": ["committed-on-a-minority"]}


def test_two_controllers_of_one_epoch_are_found(disks: Disks) -> None:
    found = judge_servers(disks.path, 6, [(1, "controller-101"), (1, "controller-103")])
    assert anomalies(found["metadata"]) == ["two-leaders"]


def test_records_that_break_a_rule_are_found(disks: Disks) -> None:
    wrong = metadata_batch(6, PartitionChangeRecord(TOPIC, 0, leader=1, isr=(2, 3)))
    for name in NAMES:
        disks.write_metadata(name, metadata_log(wrong))
    assert disks.judged() == SOUND | {"metadata": ["leader-not-in-isr"]}


def test_damaged_metadata_are_found_and_a_torn_tail_is_none(disks: Disks) -> None:
    torn = metadata_log(metadata_batch(6, TopicRecord("u", UUID(int=9)))[:-3])
    disks.write_metadata("controller-101", torn)
    assert disks.judged() == SOUND
    disks.write_metadata("controller-101", [metadata_log()[0], b"no batch", metadata_log()[1]])
    assert disks.judged() == {"metadata": ["damaged-log"]}


def test_what_cannot_be_replayed_is_found(disks: Disks) -> None:
    wrong = metadata_batch(6, PartitionChangeRecord(UUID(int=9), 0, leader=1))
    for name in NAMES:
        disks.write_metadata(name, metadata_log(wrong))
    assert disks.judged() == {"metadata": ["metadata-cannot-be-replayed"]}


def test_a_log_whose_beginning_is_a_snapshot_is_replayed_from_there(disks: Disks) -> None:
    records: list[Record] = [*BROKER_RECORDS, TopicRecord("t", TOPIC), PARTITION]
    wrong = metadata_batch(6, PartitionChangeRecord(TOPIC, 0, leader=1, isr=(2, 3)))
    for name in NAMES:
        directory = disks.path / name / "data" / "__cluster_metadata-0"
        store = SnapshotStore(RealFileSystem(), str(directory))
        store.write(OffsetAndEpoch(Offset(6), Epoch(1)), 5, [(5, pack_payload(records))])
        (directory / SEGMENT).unlink()
        (directory / f"{6:020}.log").write_bytes(wrong)
    assert disks.judged() == SOUND | {"metadata": ["leader-not-in-isr"]}


def test_snapshots_of_different_states_are_found(disks: Disks) -> None:
    for name, records in (("controller-101", BROKER_RECORDS), ("broker-1", BROKER_RECORDS[:2])):
        directory = disks.path / name / "data" / "__cluster_metadata-0"
        store = SnapshotStore(RealFileSystem(), str(directory))
        pieces = [(len(records), pack_payload(records))]
        store.write(OffsetAndEpoch(Offset(4), Epoch(1)), 5, pieces)
    assert disks.judged() == SOUND | {"metadata": ["diverged-snapshot"]}


# --- the command ----------------------------------------------------------------------------------


def test_a_run_is_judged_as_settled_if_its_history_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, RunSpec("queue", "local"), "")
    disks = Disks(folder.nodes)
    disks.write("broker-3", PARTITION_LOG[:2])
    with folder.writer() as writer:
        writer.append(Op(0, 0, "observer", OpType.INFO, "leader", ["controller-101", 1], None))
        writer.append(Op(1, 1, "observer", OpType.INFO, "settled", 6, None))
    assert run(["check-servers", str(folder.path), "--output", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["metadata"]["valid"] is True
    assert told["replicas"]["anomalies"][0]["name"] == "lacks-committed"
    assert run(["check-servers", str(folder.nodes)]) == 0
    assert "replicas valid" in capsys.readouterr().out


def test_what_controllers_told_is_judged_with_their_disks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, RunSpec("register", "local"), "")
    Disks(folder.nodes)
    told = {"leads": False, "epoch": 1, "high_watermark": 6, "log_end": 6, "life": 17}
    values = [told, told | {"high_watermark": 5}, told | {"high_watermark": 0, "life": 18}]
    with folder.writer() as writer:
        for at, value in enumerate(values):
            line = Op(at, at, "controller-102", OpType.INFO, "replica", value, METADATA_LOG)
            writer.append(line)
    assert run(["check-servers", str(folder.path), "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["trace"]["anomalies"]] == ["high-watermark-went-back"]
    assert found["trace"]["anomalies"][0]["lines"] == [0, 1]


def test_what_has_no_disks_of_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check-servers", str(tmp_path)]) == 254
    assert "cluster.json" in capsys.readouterr().err
    folder = RunFolder.create(tmp_path, RunSpec("queue", "sim"), "")
    assert run(["check-servers", str(folder.path)]) == 254
    assert "--env local" in capsys.readouterr().err
