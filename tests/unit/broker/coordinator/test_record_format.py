"""Records of internal topics as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.coordinator.record_format import RecordFormat, field, table, version_of

if TYPE_CHECKING:
    from broker.protocol.codec import Message

FORMAT: RecordFormat[Message] = RecordFormat(
    "Thing",
    {
        0: table("Thing", field("name", "string"), field("count", "int32")),
        1: table("Thing", field("name", "string"), field("count", "int64", -1), flexible=True),
    },
    written=1,
)


def test_a_message_begins_with_its_version() -> None:
    data = FORMAT.encode({"name": "abc"})
    assert data == b"\0\x01\x04abc" + b"\xff" * 8 + b"\0"
    assert version_of(data) == 1
    assert FORMAT.decode(data) == {"name": "abc", "count": -1}


def test_older_versions_are_read() -> None:
    assert FORMAT.decode(b"\0\0\0\x01x\0\0\0\x05") == {"name": "x", "count": 5}


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x02abc", b"\0\0\0\x09x", b"\0\x01"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"Thing|version"):
        FORMAT.decode(data)
