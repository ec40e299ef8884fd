"""Apache Kafka's own dump tool reads what the partition logs put on disk."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from broker.coordinator._batches import batch_of
from broker.log._cleaner import Cleaning, dirt
from broker.log.partition_log import create_log
from broker.types import TopicPartition
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.runtime.real import RealFileSystem
from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, need, run
from tests.unit.broker.groups.classic_consumer import ClassicConsumer
from tests.unit.broker.groups.consumer_harness import Consumer, ConsumerBench
from tests.unit.broker.groups.group_harness import WALL_MS
from tests.unit.broker.log.batches import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from broker.coordinator.core import KeyValue
    from broker.log.partition_log import PartitionLog

CONFIG = TopicConfig(segment_bytes=20_000, index_interval_bytes=300, cleanup_policy=("compact",))
POM = HERE / "java" / "core.xml"
COMPLAINTS = re.compile(r"(?i)mismatch|corrupt|invalid|out of order|not valid|do not|exception")

pytestmark = [pytest.mark.req("L1", "L3", "L10"), pytest.mark.timeout(INSTALL_TIMEOUT_S + 120)]


class DumpTool:
    """`kafka-dump-log`, which is in the jar of Apache Kafka's broker."""

    def __init__(self, version: str) -> None:
        need("java", "mvn")
        self._version = version
        self._jars = installed(f"java-core-{version}", POM.read_text() + version, self._install)

    def _install(self, folder: Path) -> None:
        goals = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        options = ["-q", "-B", "-f", str(POM), f"-Dkafka.version={self._version}"]
        run(["mvn", *options, *goals], timeout_s=INSTALL_TIMEOUT_S)

    def __call__(self, *arguments: str) -> str:
        """Runs the tool and returns what it printed."""
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        tool = ["-cp", f"{self._jars}/*", "kafka.tools.DumpLogSegments"]
        return run(["java", *quick, *tool, *arguments])


@pytest.fixture(scope="module")
def dump() -> DumpTool:
    return DumpTool("4.1.0")


def written(directory: Path, *, compacted: bool) -> PartitionLog:
    """A log of every codec, several segments, epochs and producers, closed cleanly."""
    files, chance = RealFileSystem(), random.Random(4)
    log = create_log(files, str(directory), TopicPartition("t", 0), CONFIG)
    sequences = [0, 0]
    for number in range(600):
        producer = number % 2
        pairs = [
            (b"key-%d" % chance.randrange(40), None if chance.random() < 0.1 else b"value" * 9)
            for _ in range(chance.randrange(1, 9))
        ]
        sender = (producer, 0, sequences[producer])
        batch = keyed_batch(pairs, timestamp=number * 10, codec=number % 5, producer=sender)
        log.append_as_leader(batch, number // 200, 10**9)
        sequences[producer] += len(pairs)
        log.high_watermark = log.log_end_offset
    if compacted:
        compact(files, log)
    plan = log.flush_plan(rolled_only=False, closing=True)
    assert plan is not None
    plan.run()
    log.flushed(plan)
    log.close()
    return log


def compact(files: RealFileSystem, log: PartitionLog) -> None:
    before = log.size
    facts = log.segment_facts()
    assert len(facts) > 5
    found = dirt(facts, CONFIG, cleaned_to=0, stable_offset=log.high_watermark, now_ms=10**9)
    steps = Cleaning(files, log, found, now_ms=10**9, buffer_bytes=1 << 20).steps()
    for step in steps:
        if step is not None:
            assert log.replace_segments(step.replaced, step.segment)
    for finish in log.take_retired():
        finish()
    assert log.size < before / 2


@pytest.mark.parametrize("compacted", [False, True])
def test_segments_indexes_and_snapshots(dump: DumpTool, tmp_path: Path, compacted: bool) -> None:
    directory = tmp_path / "t-0"
    log = written(directory, compacted=compacted)
    kinds = {
        kind: ",".join(str(path) for path in sorted(directory.glob(f"*.{kind}")))
        for kind in ("log", "index", "timeindex", "snapshot")
    }
    printed = dump("--files", kinds["log"], "--deep-iteration", "--print-data-log")
    assert COMPLAINTS.search(printed.replace("isvalid: true", "")) is None, printed
    assert printed.count("| offset: ") > 50
    assert printed.count("Log starting offset: ") == len(log.segment_facts())
    indexes = f"{kinds['index']},{kinds['timeindex']}"
    # With the first option every file as a whole, with the other each entry against its segment.
    for option in ("--index-sanity-check", "--verify-index-only"):
        printed = dump("--files", indexes, option)
        assert COMPLAINTS.search(printed) is None, printed
        assert printed.count("Dumping ") == 2 * len(log.segment_facts())
    printed = dump("--files", kinds["snapshot"].rpartition(",")[2])
    assert f"{log.log_end_offset:020d}.snapshot" in printed
    assert printed.count("producerId: 0 ") == printed.count("producerId: 1 ") == 5
    assert (directory / "leader-epoch-checkpoint").read_text().startswith("0\n3\n0 0\n1 ")


def group_records() -> list[KeyValue]:
    """Of a group that commits, is upgraded, and is downgraded again."""
    bench = ConsumerBench()
    old, new = ClassicConsumer(bench, cooperative=True), Consumer(bench, "new")
    for _ in range(8):
        old.step()
    bench.commit(old.member_id, old.generation, 7, "so far")
    new.beat(topic_names=("t",), topic_regex="t.*")
    for _ in range(8):
        old.step()
        new.beat()
        new.obey()
    bench.beat("new", -1)
    return bench.log


@pytest.mark.req("G1", "G3", "G4")
def test_records_of_groups_are_decoded(dump: DumpTool, tmp_path: Path) -> None:
    records = group_records()
    where = TopicPartition("__consumer_offsets", 0)
    log = create_log(RealFileSystem(), str(tmp_path / str(where)), where, TopicConfig())
    log.append_as_leader(batch_of(records, WALL_MS), 0, WALL_MS)
    log.close()
    file = str(tmp_path / "__consumer_offsets-0" / f"{0:020d}.log")
    printed = dump("--offsets-decoder", "--files", file)
    assert COMPLAINTS.search(printed.replace("isvalid: true", "")) is None, printed
    found = [line for line in printed.splitlines() if line.startswith("| offset: ")]
    assert len(found) == len(records)
    assert not [line for line in found if '"data":' not in line], printed
    said = '"classicMemberMetadata":{"sessionTimeoutMs":10000,"supportedProtocols":[{"name":"coop'
    for part in (said, '"metadata":"so far"', '"subscribedTopicRegex":"t.*"', '"metadataHash":'):
        assert part in printed, part
