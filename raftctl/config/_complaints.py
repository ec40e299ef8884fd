"""What is wrong with a value, as one line that names the key and the remedy.

The text of a secret is in none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.config._definition import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

_SECRET = (
    "password",
    "secret",
    "jaas.config",
    "keystore.key",
    "keystore.certificate.chain",
    "truststore.certificates",
    "secret.key",
    "master.key",
)
"""How the names of keys end whose values are secrets."""


def is_secret(key: str) -> bool:
    """Return whether the value of a key must be in no text."""
    return key.endswith(_SECRET)


def written(key: str, value: str) -> str:
    """Return `key=value`, without the value of a secret."""
    return f"{key}=[hidden]" if is_secret(key) else f"{key}={value}"


def complaint(error: ValidationError, prefix: str = "") -> str:
    """Return the first of the errors as one line; `prefix` stands before its key."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = prefix + key_of(str(first["loc"][0])) if first["loc"] else ""
    sentence = _sentence(key, first["type"], first["input"], first.get("ctx", {}), first["msg"])
    more = len(problems) - 1
    return f"{sentence} (and {more} more)" if more else sentence


def _sentence(key: str, kind: str, given: Any, context: Mapping[str, Any], message: str) -> str:
    if kind == "value_error":
        return f"{key}: {context['error']}" if key else str(context["error"])
    if kind == "missing":
        return f"{key} is missing: set it, docs/reference/configuration.md says how"
    remedy = {
        "greater_than_equal": "is out of bounds: must be at least {ge}",
        "less_than_equal": "is out of bounds: must be at most {le}",
        "int_parsing": "is not a whole number: write one",
        "int_parsing_size": "is out of bounds: write a smaller number",
        "literal_error": "is not known: write {expected}",
    }.get(kind)
    return f"{written(key, given)} {remedy.format_map(context) if remedy else message}"
