"""What loops over the bytes of JSON have in common."""

from __future__ import annotations

from typing import Any

from jepsen.compiled._compiler import compiled

DIGITS_MAX = 18
"""So many fit any number of 64 bits."""
QUOTE, COMMA, MINUS, ZERO, NINE, COLON, OPEN, BACKSLASH, CLOSE, LEFT, RIGHT = b'",-09:[\\]{}'
SPACE = 32
"""What is less is a control character."""


@compiled
def begins(data: Any, at: int, end: int, text: Any) -> bool:
    """Whether the text is there."""
    same = 0
    while same < len(text) and at + same < end and data[at + same] == text[same]:
        same += 1
    return same == len(text)


@compiled
def integer(data: Any, at: int, end: int) -> tuple[int, int]:
    """(the number, where it ends, or -1 if it is none that is understood)."""
    negative = at < end and data[at] == MINUS
    first = at + 1 if negative else at
    number, place = 0, first
    while place < end and ZERO <= data[place] <= NINE:
        if place - first == DIGITS_MAX:
            return 0, -1
        number = number * 10 + data[place] - ZERO
        place += 1
    if place == first or (data[first] == ZERO and (negative or place > first + 1)):
        return 0, -1
    return (-number if negative else number), place


@compiled
def string(data: Any, at: int, end: int) -> int:
    """Where a string without escapes ends, or -1."""
    if at >= end or data[at] != QUOTE:
        return -1
    place = at + 1
    while place < end and data[place] != QUOTE:
        if data[place] == BACKSLASH or data[place] < SPACE:
            return -1
        place += 1
    return place + 1 if place < end else -1
