"""The delta between two images, in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metadata.image import MetadataDelta
from raftctl.metadata.image._delta import lead

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage


def delta_between(old: MetadataImage, new: MetadataImage) -> MetadataDelta:
    """Return the delta that leads from `old` to `new`, to be published with `new`."""
    delta = MetadataDelta(old)
    for _ in lead(delta, new):
        pass
    return delta
