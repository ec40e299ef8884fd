"""Verdicts of checkers: valid, invalid or unknown, with the anomalies that were found.

"Unknown" is an answer of its own: a checker that ran out of time or memory has not found the
history valid, nor has one that saw nothing succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from jepsen.history import Op

if TYPE_CHECKING:
    from collections.abc import Iterable

Valid = Literal[True, False, "unknown"]
"""The verdict as it stands in results: true, false or "unknown"."""
WORDS: Mapping[Valid, str] = {True: "valid", False: "invalid", "unknown": "unknown"}
"""The verdicts in words for people."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something in a history that should not be there."""

    name: str
    """The field's name of its kind, such as `lost-write` or `G1c`."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """The details for programs, as JSON. Lines of the history are named by their index."""
    ops: tuple[int, ...] = ()
    """The lines of the history that show it, by index."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of a checker on a history."""

    valid: Valid
    anomalies: tuple[Anomaly, ...] = ()
    """Each of them makes the history invalid."""
    notes: tuple[Anomaly, ...] = ()
    """Found, but allowed."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    why_unknown: str = ""


Checker = Callable[[Sequence[Op]], Verdict]
"""A pure function from a whole history to its verdict."""


def judge(
    anomalies: Iterable[Anomaly],
    *,
    notes: Iterable[Anomaly] = (),
    why_unknown: str = "",
    **statistics: Any,
) -> Verdict:
    """Invalid if there is an anomaly, else unknown if there is a reason for that."""
    found = tuple(anomalies)
    valid: Valid = False if found else "unknown" if why_unknown else True
    return Verdict(valid, found, tuple(notes), statistics, "" if found else why_unknown)


def merge_valid(verdicts: Iterable[Valid]) -> Valid:
    """Return the verdict on the whole from those on its parts: invalid, else unknown."""
    merged: Valid = True
    for valid in verdicts:
        if valid is False:
            return False
        if valid == "unknown":
            merged = "unknown"
    return merged


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict for programs."""
    document: dict[str, Any] = {
        "valid": verdict.valid,
        "anomalies": [_anomaly_document(one) for one in verdict.anomalies],
        "notes": [_anomaly_document(one) for one in verdict.notes],
        "statistics": with_text_keys(dict(verdict.statistics)),
    }
    if verdict.why_unknown:
        document["why_unknown"] = verdict.why_unknown
    return document


def _anomaly_document(anomaly: Anomaly) -> dict[str, Any]:
    detail = with_text_keys(dict(anomaly.detail))
    return {"name": anomaly.name, **detail, "lines": list(anomaly.ops)}


def with_text_keys(value: Any) -> Any:
    """Return the value with text for the keys of its objects, as JSON has them."""
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(one) for one in value] if isinstance(value, list | tuple) else value


def plain(value: Any) -> Any:
    """Return a value for which JSON has no form as something close to it."""
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else repr(value)
