"""The cluster's features: what each level means, and what is in force.

A feature's level is finalized by a record; the level 0 is as good as none. Every node of a cluster
writes only what the finalized levels allow, so that an older node can still read it.
Sources: KIP-584, KIP-1022; KIP-966 for eligible leader replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage

METADATA_VERSION_FEATURE = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"


def level_of(image: MetadataImage, feature: str) -> int:
    """The finalized level; 0 if there is none."""
    return image.features.get(feature, 0)


def eligible_leaders_enabled(image: MetadataImage) -> bool:
    """Whether partitions keep eligible leader replicas."""
    return level_of(image, ELR_FEATURE) >= 1
