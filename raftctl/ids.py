"""Cluster and directory ids as Kafka writes them: a UUID in 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

ZERO_UUID = UUID(int=0)


def uuid_text(value: UUID) -> str:
    """Return the 22-character form."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> UUID:
    """Read the 22-character form; ValueError if it is not one."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64 UUID") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a base64 UUID of 16 bytes")
    return UUID(bytes=raw)
