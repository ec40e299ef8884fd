"""Features of the cluster: the meaning of each level, and the levels in force.

A record finalizes a feature's level; level 0 means that the feature is not used. A node writes only
what the finalized levels allow, so an older node can still read it. A level may be lowered only
where the metadata holds nothing that the lower level cannot express.

Sources: KIP-584, KIP-1022; KIP-966 for eligible leader replicas; KIP-890 for transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image.types import supports
from raftctl.metadata.records import FeatureRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from raftctl.metadata.image import MetadataImage

METADATA_VERSION_FEATURE = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"
TRANSACTION_VERSION_FEATURE = "transaction.version"

TRANSACTION_VERSION = 2
"""The newest level of transactions. 0 and 1: a producer keeps its epoch and names the partitions
of each transaction; 2: each transaction ends with the next epoch, and the partitions' leaders name
them (KIP-890). Clients go by what ApiVersions says is in force."""

METADATA_VERSION = 7
"""The newest level of the metadata's records. 1: brokers, topics, configs, keys and values; 2: also
client quotas, access control lists and SCRAM credentials; 3: also sessions of keys and values, and
locks; 4: also replicas' log directories; 5: also transactions; 6: also registrations of
controllers; 7: also delegation tokens, and rules on keys."""
SECURITY_LEVEL = 2
COORDINATION_LEVEL = 3
DIRECTORIES_LEVEL = 4
TRANSACTIONS_LEVEL = 5
CONTROLLERS_LEVEL = 6
TOKENS_LEVEL = 7
KEY_RULES_LEVEL = 7

SUPPORTED: Mapping[str, tuple[int, int]] = {
    ELR_FEATURE: (0, 1),
    METADATA_VERSION_FEATURE: (1, METADATA_VERSION),
    TRANSACTION_VERSION_FEATURE: (0, TRANSACTION_VERSION),
}
"""Feature to the lowest and highest level that this release supports."""


def supported_ranges() -> tuple[FeatureRange, ...]:
    """Return the ranges that a node of this release registers with."""
    return tuple(FeatureRange(name, *SUPPORTED[name]) for name in sorted(SUPPORTED))


def unsupported(node: str, ranges: Iterable[FeatureRange], levels: Mapping[str, int]) -> str | None:
    """Return a sentence about the first level that a node does not support; None if there is none.

    `node` names it in the sentence; `ranges` are its own; `levels` are those in force.
    """
    known = {feature.name: feature for feature in ranges}
    for name in sorted(levels):
        if levels[name] and not supports(known.values(), name, levels[name]):
            one = known.get(name)
            can = f"supports levels {one.lowest} to {one.highest}" if one else "does not know it"
            return f"{name} is {levels[name]}, and {node} {can}"
    return None


def first_levels() -> dict[str, int]:
    """Return the levels of a new cluster; an operator upgrades an existing one."""
    return {
        METADATA_VERSION_FEATURE: METADATA_VERSION,
        TRANSACTION_VERSION_FEATURE: TRANSACTION_VERSION,
    }


def level_of(image: MetadataImage, feature: str) -> int:
    """Return the finalized level; 0 if there is none."""
    return image.features.get(feature, 0)


def directories_enabled(image: MetadataImage) -> bool:
    """Return whether partitions record the log directories of their replicas (KIP-858)."""
    return level_of(image, METADATA_VERSION_FEATURE) >= DIRECTORIES_LEVEL


def eligible_leaders_enabled(image: MetadataImage) -> bool:
    """Return whether partitions keep eligible leader replicas (KIP-966)."""
    return level_of(image, ELR_FEATURE) >= 1


def require_level(image: MetadataImage, level: int) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if `metadata.version` is below this level."""
    found = level_of(image, METADATA_VERSION_FEATURE)
    if found < level:
        message = f"{METADATA_VERSION_FEATURE} is {found}: raise it to {level} first"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
