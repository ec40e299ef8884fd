"""How the functions of this package are compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numba

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def compiled(function: _Function) -> _Function:
    """Compiled at its first call, and kept for other processes where there is a place for it.

    Within an archive that Spark has shipped there is none.
    """
    found: _Function
    try:
        found = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        found = numba.njit(nogil=True)(function)
    return found
