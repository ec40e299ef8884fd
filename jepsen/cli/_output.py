"""What commands print: text for people, JSON for programs; verdicts in words."""

from __future__ import annotations

import enum
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.checkers.verdict import plain, with_text_keys

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Anomaly, Valid, Verdict

NAMES_SHOWN_MAX = 3
INTERRUPTED = 130
"""The exit status of what somebody ended."""


class Output(enum.StrEnum):
    """The form of what a command prints."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", metavar="table|json", help="How to print the result.")
]


def say(text: str) -> None:
    """Print a line to stdout at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print progress to stderr, so that stdout holds only the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_json(document: Any) -> None:
    """Print a document."""
    say(json.dumps(document, indent=2, default=plain, ensure_ascii=False))


def exit_status(valid: Valid) -> int:
    """The exit status of a verdict."""
    return {True: 0, False: 1, "unknown": 2}[valid]


def anomaly_lines(verdict: Verdict) -> list[str]:
    """One line a kind of anomaly, with the first few of it.

    How many there are is in the statistics, under `found`, where the verdict does not list all.
    """
    by_name: dict[str, list[Anomaly]] = {}
    for anomaly in verdict.anomalies:
        by_name.setdefault(anomaly.name, []).append(anomaly)
    lines = []
    for name, found in by_name.items():
        shown = "; ".join(
            json.dumps(with_text_keys(dict(one.detail)), default=plain)[:200]
            for one in found[:NAMES_SHOWN_MAX]
        )
        count = verdict.statistics.get("found", {}).get(name, len(found))
        more = f" and {count - NAMES_SHOWN_MAX} more" if count > NAMES_SHOWN_MAX else ""
        lines.append(f"{name} ({count}): {shown}{more}")
    return lines
