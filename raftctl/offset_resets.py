"""Offsets to which those of a group are reset: an end, a time, an offset or a distance.

A pure decision that the console and `raftctl groups` share.
"""

from __future__ import annotations

from typing import NamedTuple

from raftctl.errors import ErrorCode, KafkaError

NO_OFFSET = -1


class Ends(NamedTuple):
    """Where a partition begins and ends."""

    earliest: int
    latest: int


class Reset(NamedTuple):
    """Where offsets are to be set to; the number is milliseconds, an offset, or a distance."""

    kind: str
    """`earliest`, `latest`, `time`, `offset` or `shift`."""
    number: int = 0


def reset_offset(where: Reset, ends: Ends, committed: int | None, at_time: int | None) -> int:
    """Return the new offset of a partition: what lies outside of it is its nearer end.

    `at_time` is the offset of the first record of the time or later; None if no record is so new.
    KafkaError(INVALID_REQUEST) for a distance from an offset that was never committed.
    """
    match where.kind:
        case "earliest":
            wanted = ends.earliest
        case "latest":
            wanted = ends.latest
        case "time":
            wanted = ends.latest if at_time is None or at_time == NO_OFFSET else at_time
        case "offset":
            wanted = where.number
        case _ if committed is not None:
            wanted = committed + where.number
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "has no offset to shift")
    return min(max(wanted, ends.earliest), ends.latest)
