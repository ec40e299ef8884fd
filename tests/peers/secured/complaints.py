"""What a library writes to its log while it hides the reason of a failure from its caller."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_one_at_a_time = threading.Lock()


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def complaints(library: str) -> Iterator[list[str]]:
    """Give the warnings of a library's logger; nobody else is refused anything meanwhile."""
    keeper, logger = _Keeper(), logging.getLogger(library)
    with _one_at_a_time:
        logger.addHandler(keeper)
        try:
            yield keeper.lines
        finally:
            logger.removeHandler(keeper)
