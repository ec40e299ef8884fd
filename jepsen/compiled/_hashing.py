"""Tables of values by hash, with open addressing: their size is a power of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.compiled._compiler import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOTHING = -1
_MIX_VALUE, _MIX_MASK = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9


@compiled
def hashed(value: int, known: int) -> int:
    """A number in which all bits of both have a part."""
    mixed = value * _MIX_VALUE ^ known * _MIX_MASK
    return mixed ^ mixed >> 29 ^ mixed >> 47


@compiled
def size_for(values: int) -> int:
    """Of a table that is half full with so many values."""
    places = 2
    while places < 2 * values:
        places *= 2
    return places


@compiled
def place_of(values: NDArray[np.int64], about: NDArray[np.int64], value: int) -> int:
    """Where a table has the value, or has room for it: there `about` is NOTHING."""
    last = len(values) - 1
    at = hashed(value, value) & last
    while about[at] != NOTHING and values[at] != value:
        at = (at + 1) & last
    return at
