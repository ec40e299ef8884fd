"""What a checker says: valid, invalid, or that it cannot tell.

"Unknown" is an answer of its own: a checker that ran out of time or memory has not found the
history valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Valid = Literal[True, False, "unknown"]
"""As it stands in results: true, false or "unknown"."""


def merge_valid(verdicts: Iterable[Valid]) -> Valid:
    """The verdict on the whole, given those on its parts: invalid, else unknown, else valid."""
    merged: Valid = True
    for valid in verdicts:
        if valid is False:
            return False
        if valid == "unknown":
            merged = "unknown"
    return merged
