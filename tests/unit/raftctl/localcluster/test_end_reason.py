"""Why a node ended, as its log tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from raftctl.localcluster.cluster import end_reason

if TYPE_CHECKING:
    from pathlib import Path

FULL = "/d: No space left on device; what was not on disk was not acknowledged: make room"


def event(name: str, **more: str) -> str:
    return json.dumps({"event": name, "timestamp": "12:00:00", **more})


FAILED = event("node_failed", exception="Traceback\n  File x\nOSError: it broke")
LOGS = {
    "refused or full": ([event("node_started"), f"raftctl: {FULL}"], FULL),
    "a traceback": (["Traceback (most recent call last):", "KeyError: 3"], "KeyError: 3"),
    "failed": ([event("log_recovered"), FAILED, event("closed")], "OSError: it broke"),
    "failed in an earlier life": (
        [FAILED, event("log_recovered"), event("node_started")],
        "killed: its log ends with node_started at 12:00:00",
    ),
    "asked to": ([event("node_stopped")], "stopped as asked at 12:00:00"),
    "killed": ([event("unfenced")], "killed: its log ends with unfenced at 12:00:00"),
    "silent": ([], "it wrote nothing"),
}


@pytest.mark.req("A2")
@pytest.mark.parametrize("what", LOGS)
def test_the_end_of_a_log_tells_why(tmp_path: Path, what: str) -> None:
    lines, reason = LOGS[what]
    log = tmp_path / "node.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    assert end_reason(log) == reason


def test_only_the_end_of_a_log_is_read_and_its_lines_are_cut(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text(f"{'x' * 100_000}\n" * 3 + "z" * 5_000)
    assert end_reason(log) == "z" * 300
    assert end_reason(tmp_path / "none.log") == "its log cannot be read: No such file or directory"
