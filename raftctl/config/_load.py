"""Loading: from the text of a file to a `NodeConfig`.

A ConfigError is one line that names the key and the remedy: an operator reads it in a terminal, and
fixes one key at a time. Pure but for `warn_on_stderr`.
"""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

from pydantic import ValidationError

from raftctl.config._complaints import complaint, written
from raftctl.config._definition import key_of
from raftctl.config._listeners import LISTENER_PREFIX
from raftctl.config._model import NodeConfig
from raftctl.config._properties import parse_properties
from raftctl.config._security_checks import AUTHORIZER_PREFIX, QUOTA_CALLBACK_PREFIX
from raftctl.config._unused import is_harmless, unused_keys, why_refused, why_unused
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


KEYS: tuple[str, ...] = tuple(map(key_of, NodeConfig.model_fields))
"""Keys that have an effect."""
_OF_OTHERS = (LISTENER_PREFIX, AUTHORIZER_PREFIX, QUOTA_CALLBACK_PREFIX)
"""How keys begin that are one listener's, or a plug-in's: they are read as they were written."""


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
            raise ConfigError(f"{written(key, value)}: {reason}")
    used = {
        key: value for key, value in values.items() if _is_used(key, value, warn or warn_on_stderr)
    }
    try:
        stripped = {key: value.strip() for key, value in used.items()}
        return NodeConfig.model_validate(stripped, context=dict(values))
    except ValidationError as error:
        raise ConfigError(complaint(error)) from None


def _is_used(key: str, value: str, warn: Callable[[str], None]) -> bool:
    if key in KEYS:
        return True
    if key.startswith(_OF_OTHERS) or is_harmless(key, value):
        return False
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


def warn_on_stderr(sentence: str) -> None:
    """Write one warning to stderr."""
    sys.stderr.write(f"warning: {sentence}\n")
