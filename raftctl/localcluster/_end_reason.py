"""Why a node ended, from the end of its log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 64 * 1024
_SENTENCE_MAX = 300
_SAID_BY_COMMANDS = "raftctl: "


def end_reason(log: Path) -> str:
    """What the log says of the end of its node: one line, also if it says nothing."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"
    return _reason_in(lines)[:_SENTENCE_MAX]


def _reason_in(lines: list[str]) -> str:
    """The reason in the last lines of a node's log, which ends with the node.

    A node that fails writes an error, or lines that are no JSON, such as a traceback; one that is
    killed writes nothing more.
    """
    if not lines:
        return "it wrote nothing"
    last = _event(lines[-1])
    if last is None:
        return lines[-1].removeprefix(_SAID_BY_COMMANDS)
    if last.get("event") == "node_stopped":
        return f"stopped as asked at {last.get('timestamp')}"
    failed = next(
        (one for one in reversed(_last_run(lines)) if one["event"] == "node_failed"), None
    )
    if failed is not None:
        told = str(failed.get("exception") or "").strip().splitlines()
        return told[-1] if told else "it failed"
    return f"killed: its log ends with {last.get('event')} at {last.get('timestamp')}"


def _last_run(lines: list[str]) -> list[dict[str, Any]]:
    """The events since the node started last."""
    events = [event for line in lines if (event := _event(line)) is not None]
    starts = [at for at, event in enumerate(events) if event["event"] == "log_recovered"]
    return events[starts[-1] :] if starts else events


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
