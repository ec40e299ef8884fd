"""Access control lists: the entries that a filter matches (KIP-11, KIP-290)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from raftctl.metadata.records import AccessControlEntryRecord
    from raftctl.metadata.requests.security import AclBinding, AclFilter

ANY = 1
WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(enum.IntEnum):
    """Type of an entry's resource, as the Kafka protocol numbers it, and one of our own."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    KEY = 100
    """A key or a lock of the key/value API. Kafka's protocol does not have it: its requests neither
    make such entries nor show them."""


KAFKA_RESOURCE_TYPES = frozenset(ResourceType) - {ResourceType.KEY}

DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of an operation that is denied, by the type of its resource."""


class PatternType(enum.IntEnum):
    """Interpretation of a resource's name; the first two occur only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """What an entry denies or allows, as the Kafka protocol numbers it."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


KEY_OPERATIONS = (Operation.ALL, Operation.READ, Operation.WRITE)
"""The operations on a key; to delete one is to write it."""


class Permission(enum.IntEnum):
    """What an entry does with an operation."""

    DENY = 2
    ALLOW = 3


def matches(wanted: AclFilter, rule: AclBinding | AccessControlEntryRecord) -> bool:
    """Return whether the filter matches this entry."""
    return (
        _is_of_type(wanted.resource_type, rule.resource_type)
        and wanted.operation in (ANY, rule.operation)
        and wanted.permission_type in (ANY, rule.permission_type)
        and wanted.principal in (None, rule.principal)
        and wanted.host in (None, rule.host)
        and _names(wanted, rule)
    )


def _is_of_type(wanted: int, of_rule: int) -> bool:
    """Return whether a filter's type is the rule's. ANY is any type that Kafka's clients know."""
    return wanted == of_rule or (wanted == ANY and of_rule in KAFKA_RESOURCE_TYPES)


def _names(wanted: AclFilter, rule: AclBinding | AccessControlEntryRecord) -> bool:
    """Return whether the resource name matches. MATCH covers prefixes and the wildcard as well."""
    if wanted.pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
        return False
    name = wanted.resource_name
    if name is None or name == rule.resource_name:
        return True
    if wanted.pattern_type != PatternType.MATCH:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name == WILDCARD
