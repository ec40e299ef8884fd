"""Good and bad values for random requests; which are good is said here once more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.security import AclBinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.records import AccessControlEntryRecord, FeatureRange
    from raftctl.metadata.requests.security import AclFilter, ScramUpsertion

PARTITIONS_MAX = 10_000
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"

Values = dict[str, tuple[tuple[str, ...], tuple["str | None", ...]]]

TOPIC_VALUES: Values = {
    "retention.ms": (("1000", "-1"), ("soon", "", None)),
    "cleanup.policy": (("delete", "compact", "compact,delete"), ("shred", None)),
    MIN_ISR: (("1", "2", "3"), ("0", "-1", "many")),
    UNCLEAN: (("true", "false", "True", "False"), ("maybe", None)),
    "no.such.config": ((), ("1", "", None)),
}
"""Key to values that are good and that are not."""
BROKER_VALUES: Values = {
    "log.retention.ms": (("1000", "-1"), ("soon",)),
    MIN_ISR: (("1", "2"), ("0",)),
    UNCLEAN: (("true", "false"), ("maybe",)),
    "leader.replication.throttled.rate": (("0", "1000"), ("-1", "fast")),
}
STATIC_BROKER_KEYS = ("node.id", "no.such.config")
GROUP_VALUES: Values = {
    "consumer.session.timeout.ms": (("45000", "60000"), ("44999", "x")),
}
VALUES = {2: TOPIC_VALUES, 4: BROKER_VALUES, 32: GROUP_VALUES}
"""By Kafka's number of the resource type."""


def topic_value_is_good(key: str, value: str | None) -> bool:
    """Whether a topic may have this."""
    return value is not None and value in TOPIC_VALUES.get(key, ((), ()))[0]


def config_errors(kind: int, name: str, key: str, value: str) -> set[ErrorCode]:
    """Why a resource may not have this."""
    if kind == 4:
        if key not in BROKER_VALUES:
            return {ErrorCode.INVALID_REQUEST}
        good = value in BROKER_VALUES[key][0] and not (name and key in (MIN_ISR, UNCLEAN))
    elif kind == 2:
        good = topic_value_is_good(key, value) or (key, value) in _EDITED
    else:
        good = value in GROUP_VALUES.get(key, ((), ()))[0]
    return set() if good else {ErrorCode.INVALID_CONFIG}


_EDITED = {("cleanup.policy", "delete,compact"), ("cleanup.policy", "")}
"""What appending and subtracting may lead to."""


def list_default(kind: int, key: str) -> str | None:
    """The value in force without an override, if the key is a list."""
    return "delete" if (kind, key) == (2, "cleanup.policy") else None


# --- security -------------------------------------------------------------------------------------

Entity = tuple[tuple[str, "str | None"], ...]
CLIENT_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def ordered(entity: Entity) -> Entity:
    """The parts by their types."""
    return tuple(sorted(entity, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def entity_is_good(entity: Entity) -> bool:
    """Whether there is such an entity."""
    kinds = [kind for kind, _ in entity]
    if kinds == ["ip"]:
        return entity[0][1] in (None, "10.0.0.1")
    named = all(name != "" for _, name in entity)
    return (
        bool(kinds)
        and len(set(kinds)) == len(kinds)
        and set(kinds) <= {"user", "client-id"}
        and named
    )


def quota_is_good(entity: Entity, key: str, value: float | None) -> bool:
    """Whether the entity may have this quota."""
    if key not in (("connection_creation_rate",) if entity[0][0] == "ip" else CLIENT_QUOTAS):
        return False
    if value is None:
        return True
    return 0 < value < math.inf and (key == "request_percentage" or value == math.floor(value))


def binding(record: AccessControlEntryRecord) -> AclBinding:
    """The rule without its id."""
    return AclBinding(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def rule_is_good(rule: AclBinding) -> bool:
    """Whether there may be such a rule."""
    numbers = (
        2 <= rule.resource_type <= 7
        and rule.pattern_type in (3, 4)
        and 2 <= rule.operation <= 15
        and rule.permission_type in (2, 3)
    )
    kind, _, name = rule.principal.partition(":")
    cluster = rule.resource_type != 4 or rule.resource_name == "kafka-cluster"
    return bool(numbers and kind and name and rule.resource_name and rule.host and cluster)


def is_meant(wanted: AclFilter, rule: AclBinding) -> bool:
    """Whether the filter means the rule; its pattern is ANY or LITERAL here."""
    return (
        wanted.pattern_type in (1, rule.pattern_type)
        and wanted.resource_type in (1, rule.resource_type)
        and wanted.resource_name in (None, rule.resource_name)
        and wanted.principal in (None, rule.principal)
        and wanted.host in (None, rule.host)
        and wanted.operation in (1, rule.operation)
        and wanted.permission_type in (1, rule.permission_type)
    )


def credential_is_good(one: ScramUpsertion) -> bool:
    """Whether somebody may have it."""
    size = {1: 32, 2: 64}.get(one.mechanism)
    return 4096 <= one.iterations <= 16384 and bool(one.salt) and len(one.salted_password) == size


# --- features -------------------------------------------------------------------------------------


def covers(ranges: Sequence[FeatureRange], feature: str, level: int) -> bool:
    """Whether a broker that tells these can work with the level."""
    return any(one.name == feature and one.lowest <= level <= one.highest for one in ranges)
