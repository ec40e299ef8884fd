"""Values of keys in JSON, which knows no bytes: the form of the HTTP API and of the commands."""

from __future__ import annotations

import base64


def value_fields(value: bytes, name: str = "value") -> dict[str, str]:
    """Return a field of this name if the bytes are UTF-8, else one with `_base64` after it."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
