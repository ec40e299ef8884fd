"""The partitions of a member of a classic group, in the bytes that its leader has made.

Clients agree on them among themselves, so they may be anything: what cannot be read is shown as no
partitions. Source: Apache Kafka's ConsumerProtocolAssignment.
"""

from __future__ import annotations

import struct
from typing import Any

PARTITIONS_MAX = 10_000
"""Of one member that are shown."""


def assigned(data: bytes) -> list[dict[str, Any]]:
    """Return `{topic, partitions}` for each topic; none if the bytes are of another form."""
    found: list[dict[str, Any]] = []
    room = PARTITIONS_MAX
    try:
        _version, topics = struct.unpack_from(">hi", data)
        at = 6
        for _ in range(topics):
            (size,) = struct.unpack_from(">h", data, at)
            name = _text(data, at + 2, size)
            at += 2 + size
            (count,) = struct.unpack_from(">i", data, at)
            at += 4
            if not 0 <= count <= (len(data) - at) // 4:
                return []
            partitions = struct.unpack_from(f">{min(count, room)}i", data, at)
            found.append({"topic": name, "partitions": list(partitions)})
            at += 4 * count
            room -= len(partitions)
    except (struct.error, ValueError):
        return []
    return found


def _text(data: bytes, at: int, size: int) -> str:
    if not 0 <= size <= len(data) - at:
        raise ValueError("the name reaches past the end")
    return data[at : at + size].decode()
