"""Records and values as JSON, for people and for programs, without passwords. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from uuid import UUID

from raftctl.ids import uuid_text
from raftctl.json_values import value_fields
from raftctl.metadata.configs.listeners import is_secret
from raftctl.metadata.records import ConfigRecord

if TYPE_CHECKING:
    from raftctl.metadata.records import Record
    from raftctl.raft.voters import VotersRecord


HIDDEN = "[hidden]"
"""In place of a secret."""


def record_json(record: Record | VotersRecord) -> dict[str, Any]:
    """The record's type and fields; fields that are None are left out, and secrets are hidden."""
    if isinstance(record, ConfigRecord) and record.value is not None and is_secret(record.key):
        record = dataclasses.replace(record, value=HIDDEN)
    fields = {
        field.name: plain(getattr(record, field.name)) for field in dataclasses.fields(record)
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return {"type": type(record).__name__, **known}


def plain(value: Any) -> Any:
    """The value as JSON has it: ids and bytes as text, tuples as lists."""
    if isinstance(value, UUID):
        return uuid_text(value)
    if isinstance(value, bytes):
        fields = value_fields(value)
        return fields.get("value", fields)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    return value
