"""Changes of persistent maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from immutables import Map

K = TypeVar("K")
V = TypeVar("V")


def updated(base: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    """Return the map with the changes; a value of None removes its key, if present."""
    if not changes:
        return base
    kept = {key: value for key, value in changes.items() if value is not None}
    after = base.update(kept)
    if len(kept) == len(changes):
        return after
    mutation = after.mutate()
    for key, value in changes.items():
        if value is None:
            mutation.pop(key, None)
    return mutation.finish()
