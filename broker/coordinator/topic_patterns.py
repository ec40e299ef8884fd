"""Regular expressions of clients over topic names and transactional ids, in RE2's syntax: matching
takes time linear in the text, so that no client can stall the broker by what it asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES_MAX = 1 << 20
"""Memory for one compiled expression."""


def check_pattern(pattern: str) -> None:
    """KafkaError(INVALID_REGULAR_EXPRESSION) says what is wrong with it."""
    _compiled(pattern)


def matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that the whole pattern matches, in order."""
    compiled = _compiled(pattern)
    return tuple(sorted(name for name in names if compiled.fullmatch(name)))


def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression `{pattern:.200}` is not valid in RE2's syntax: {text}",
        ) from error
