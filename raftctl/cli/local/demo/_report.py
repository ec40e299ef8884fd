"""The result of a demo as table and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raftctl.cli._output import table
from raftctl.cli.local.demo._faults import FaultTimes
from raftctl.cli.local.demo._ledger import Verdict


@dataclass(frozen=True, slots=True)
class DemoResult:
    """All that the demo measured."""

    source: str
    records: int
    acknowledged: int
    verdicts: Mapping[str, Verdict]
    """By reader."""
    records_per_s: float
    """Before anything was killed."""
    longest_interruption_s: float
    faults: FaultTimes
    total_s: float
    timeouts: Mapping[str, str]
    """The keys in force that decide how long a failover takes."""

    @property
    def verdict(self) -> Verdict:
        """The worst that a reader saw."""
        worst = Verdict()
        for verdict in self.verdicts.values():
            worst = worst.worse(verdict)
        return worst

    @property
    def is_good(self) -> bool:
        """Whether every line was acknowledged, and each reader found each once and in order."""
        return self.verdict.is_clean and self.acknowledged == self.records


def result_text(result: DemoResult) -> str:
    """A table, and the verdict as the last line."""
    faults = result.faults
    rows = [
        ("source", result.source),
        ("records", f"{result.records:,}"),
        ("acknowledged", f"{result.acknowledged:,}"),
        *_verdict_rows(result),
        ("throughput before the kills", f"{result.records_per_s:,.0f} records/s"),
        ("longest interruption of writes", _seconds(result.longest_interruption_s)),
        (f"new controller after kill of {faults.controller}", _seconds(faults.new_controller_s)),
        (f"new leaders after kill of {faults.broker}", _seconds(faults.new_leader_s)),
        ("all in sync after restart of both", _seconds(faults.healed_s)),
        ("whole run", _seconds(result.total_s)),
        *((f"timeout {key}", f"{value} ms") for key, value in result.timeouts.items()),
    ]
    return table(("RESULT", ""), rows) + "\n" + _last_line(result)


def result_document(result: DemoResult) -> dict[str, Any]:
    """The JSON form; seconds, null for what did not happen."""
    verdict, faults = result.verdict, result.faults
    return {
        "source": result.source,
        "records": result.records,
        "acknowledged": result.acknowledged,
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "out_of_order": verdict.out_of_order,
        "records_per_s": round(result.records_per_s),
        "longest_interruption_s": round(result.longest_interruption_s, 3),
        "killed_controller": faults.controller,
        "new_controller_s": faults.new_controller_s,
        "killed_broker": faults.broker,
        "new_leader_s": faults.new_leader_s,
        "healed_s": faults.healed_s,
        "total_s": round(result.total_s, 3),
        "timeouts_ms": {key: int(value) for key, value in result.timeouts.items()},
    }


def _verdict_rows(result: DemoResult) -> list[tuple[str, str]]:
    """lost, duplicated, out of order, each with what every reader saw."""
    readers = result.verdicts.items()
    return [
        (label, ", ".join(f"{getattr(verdict, name)} ({reader})" for reader, verdict in readers))
        for name, label in (
            ("lost", "lost"),
            ("duplicated", "duplicated"),
            ("out_of_order", "out of order"),
        )
    ]


def _last_line(result: DemoResult) -> str:
    missing = result.records - result.acknowledged
    return f"{result.verdict}, not acknowledged {missing}" if missing else str(result.verdict)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
