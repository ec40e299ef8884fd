"""The cluster's features: what each level means, and what is in force.

A feature's level is finalized by a record; the level 0 is as good as none. Every node of a cluster
writes only what the finalized levels allow, so that an older node can still read it. To lower a
level is safe only where the metadata holds nothing that the lower level does not know.
Sources: KIP-584, KIP-1022; KIP-966 for eligible leader replicas; KIP-890 for transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
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

METADATA_VERSION = 6
"""The newest level of the metadata's records. 1: brokers, topics, configs, keys and values; 2: also
client quotas, access control lists and SCRAM credentials; 3: also sessions of keys and values, and
locks; 4: also replicas' log directories; 5: also transactions; 6: also registrations of
controllers."""
SECURITY_LEVEL = 2
COORDINATION_LEVEL = 3
DIRECTORIES_LEVEL = 4
TRANSACTIONS_LEVEL = 5
CONTROLLERS_LEVEL = 6

SUPPORTED: Mapping[str, tuple[int, int]] = {
    ELR_FEATURE: (0, 1),
    METADATA_VERSION_FEATURE: (1, METADATA_VERSION),
    TRANSACTION_VERSION_FEATURE: (0, TRANSACTION_VERSION),
}
"""Feature to its lowest and highest level."""


def supported_ranges() -> tuple[FeatureRange, ...]:
    """What a node of this release tells of itself."""
    return tuple(FeatureRange(name, *SUPPORTED[name]) for name in sorted(SUPPORTED))


def supports(ranges: Iterable[FeatureRange], feature: str, level: int) -> bool:
    """Whether a node with these ranges can work with a level; 0 stands for doing without it."""
    if level == 0:
        return True
    return any(one.name == feature and one.lowest <= level <= one.highest for one in ranges)


def unsupported(node: str, ranges: Iterable[FeatureRange], levels: Mapping[str, int]) -> str | None:
    """Which level in force a node with these ranges cannot work with; None if it can with all."""
    known = {one.name: one for one in ranges}
    for name in sorted(levels):
        if levels[name] and not supports(known.values(), name, levels[name]):
            one = known.get(name)
            can = f"supports levels {one.lowest} to {one.highest}" if one else "does not know it"
            return f"{name} is {levels[name]}, and {node} {can}"
    return None


def first_levels() -> dict[str, int]:
    """What is in force in a new cluster; one that is there already is upgraded by its operator."""
    return {
        METADATA_VERSION_FEATURE: METADATA_VERSION,
        TRANSACTION_VERSION_FEATURE: TRANSACTION_VERSION,
    }


def level_of(image: MetadataImage, feature: str) -> int:
    """The finalized level; 0 if there is none."""
    return image.features.get(feature, 0)


def directories_enabled(image: MetadataImage) -> bool:
    """Whether partitions keep the log directories of their replicas."""
    return level_of(image, METADATA_VERSION_FEATURE) >= DIRECTORIES_LEVEL


def eligible_leaders_enabled(image: MetadataImage) -> bool:
    """Whether partitions keep eligible leader replicas."""
    return level_of(image, ELR_FEATURE) >= 1


def require_level(image: MetadataImage, level: int) -> None:
    """KafkaError(UNSUPPORTED_VERSION) if the metadata's records are below this level."""
    found = level_of(image, METADATA_VERSION_FEATURE)
    if found < level:
        message = f"{METADATA_VERSION_FEATURE} is {found}: raise it to {level} first"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
