"""Keeps packages from being loaded only because they are installed.

Some libraries import others where they find them, for uses that this program has not. Each node
would pay for them in time and memory: structlog loads rich to colour tracebacks, and kio loads
hypothesis, which this project's own tests need, to generate messages.
"""

from __future__ import annotations

import contextlib
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType


class _Hiding(MetaPathFinder):
    """Finds some packages missing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """See `MetaPathFinder`; raises ModuleNotFoundError for a package that is hidden."""
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is not wanted here", name=fullname)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Have what is imported meanwhile find none of these packages, unless they are loaded already.

    A library keeps what it found, so it must be one that this program uses without them.
    """
    hiding = _Hiding(names)
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
