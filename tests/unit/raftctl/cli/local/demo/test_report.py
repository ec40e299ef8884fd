"""The demo's result, its progress lines and its interruption meter."""

from __future__ import annotations

import dataclasses

from raftctl.cli.local.demo._clients import GapMeter
from raftctl.cli.local.demo._faults import FaultTimes
from raftctl.cli.local.demo._ledger import Verdict
from raftctl.cli.local.demo._progress import PlainProgress
from raftctl.cli.local.demo._run import DemoResult, result_document, result_text

GOOD = DemoResult(
    source="a text",
    records=1_000,
    acknowledged=1_000,
    verdicts={"aiokafka": Verdict(), "confluent-kafka": Verdict()},
    records_per_s=12_345.6,
    longest_interruption_s=1.25,
    faults=FaultTimes("controller-101", "broker-1", 0.5, 1.5, 2.5),
    total_s=20.0,
    timeouts={"broker.session.timeout.ms": "1500"},
)


def test_good_result() -> None:
    text = result_text(GOOD)
    assert GOOD.is_good
    assert text.splitlines()[-1] == "lost 0, duplicated 0, out of order 0"
    assert "new controller after kill of controller-101  0.50 s" in text
    assert "timeout broker.session.timeout.ms" in text
    assert "12,346 records/s" in text


def test_worst_reader_decides() -> None:
    verdicts = {"aiokafka": Verdict(), "confluent-kafka": Verdict(lost=2)}
    bad = dataclasses.replace(GOOD, verdicts=verdicts)
    assert not bad.is_good
    assert result_text(bad).splitlines()[-1] == "lost 2, duplicated 0, out of order 0"
    assert "0 (aiokafka), 2 (confluent-kafka)" in result_text(bad)
    assert result_document(bad)["lost"] == 2


def test_unacknowledged_lines_are_not_good() -> None:
    bad = dataclasses.replace(GOOD, acknowledged=990)
    assert not bad.is_good
    assert result_text(bad).endswith("out of order 0, not acknowledged 10")


def test_document() -> None:
    document = result_document(GOOD)
    assert document["timeouts_ms"] == {"broker.session.timeout.ms": 1_500}
    assert document["new_controller_s"] == 0.5


def test_a_gap_counts_only_while_a_line_waits() -> None:
    gaps = GapMeter()
    gaps.acknowledged(0, 0.0, 0.1)
    gaps.acknowledged(0, 9.0, 9.2)
    assert gaps.longest_s == 9.2 - 9.0
    gaps.acknowledged(1, 9.0, 9.1)
    gaps.acknowledged(0, 9.1, 10.2)
    assert gaps.longest_s == 10.2 - 9.2


def test_plain_progress_tells_each_phase() -> None:
    lines: list[str] = []
    progress = PlainProgress(lines.append)
    progress.phase("write", 200)
    progress.update(150)
    progress.tell("killed broker-1")
    progress.phase("read", 10)
    progress.finish()
    assert lines == [
        "killed broker-1",
        "write: 150 of 200 (75 %)",
        "read: 0 of 10 (0 %)",
    ]
