"""Loading: from the text of a file to a `NodeConfig`.

A ConfigError is one line that names the key and the remedy: an operator reads it in a terminal, and
fixes one key at a time. Pure but for `warn_on_stderr`.
"""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from raftctl.config._model import NodeConfig
from raftctl.config._properties import parse_properties
from raftctl.config._unused import unused_keys, why_refused, why_unused
from raftctl.config.keys import key_of
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


KEYS: tuple[str, ...] = tuple(map(key_of, NodeConfig.model_fields))
"""Keys that have an effect."""


def load_config(
    text: str,
    overrides: Mapping[str, str] | None = None,
    warn: Callable[[str], None] | None = None,
) -> NodeConfig:
    """Parse `.properties` text, apply the overrides and validate the result.

    `warn` (stderr if None) gets one sentence for each key of Kafka that has no effect here. Raises
    ConfigError for an unknown key, a key that promises protection which does not exist here, an
    invalid value, or keys that contradict each other.
    """
    return make_config({**parse_properties(text), **(overrides or {})}, warn)


def make_config(values: Mapping[str, str], warn: Callable[[str], None] | None = None) -> NodeConfig:
    """Validate keys and values; see `load_config`."""
    for key, value in values.items():
        if reason := why_refused(key, value):
            raise ConfigError(f"{key}={value}: {reason}")
    used = {key: value for key, value in values.items() if _is_used(key, warn or warn_on_stderr)}
    try:
        return NodeConfig.model_validate({key: value.strip() for key, value in used.items()})
    except ValidationError as error:
        raise ConfigError(_complaint(error)) from None


def _is_used(key: str, warn: Callable[[str], None]) -> bool:
    if key in KEYS:
        return True
    reason = why_unused(key)
    if reason is None:
        raise ConfigError(f"{key}: no such key{_suggestion(key)}")
    warn(f"{key} has no effect: {reason}")
    return False


def _suggestion(key: str) -> str:
    # Keys with an effect come first: a near miss of both kinds is more likely meant as one.
    for known in (KEYS, unused_keys()):
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
        if close:
            return f"; did you mean {close[0]}?"
    return "; docs/reference/configuration.md lists them"


def _complaint(error: ValidationError) -> str:
    """Return the first of the errors as one line."""
    problems = error.errors(include_url=False)
    first = problems[0]
    key = key_of(str(first["loc"][0])) if first["loc"] else ""
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
    return f"{key}={given} {remedy.format_map(context) if remedy else message}"


def warn_on_stderr(sentence: str) -> None:
    """Write one warning to stderr."""
    sys.stderr.write(f"warning: {sentence}\n")
