"""Rules of access and quotas, as the image has them. Credentials are not shown, not even that they
are there: who has one is a matter of DescribeUserScramCredentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.console.http import Table
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import (
    KAFKA_RESOURCE_TYPES,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.console.http import Asked
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import AccessControlEntryRecord

DEFAULT_ENTITY = "<default>"
_NAMES = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Type of an entity of quotas to its column."""


class _Quota(NamedTuple):
    """One key of one entity."""

    user: str | None
    client_id: str | None
    ip: str | None
    key: str
    value: float


class SecurityViews:
    """Answers about who may do what, and how much."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    async def acls(self, asked: Asked) -> dict[str, Any]:
        """Return the table of rules, as DescribeAcls would: without those on keys and locks.

        KafkaError: CLUSTER_AUTHORIZATION_FAILED; SECURITY_DISABLED without an authorizer.
        """
        if not asked.rights.are_checked:
            why = "no authorizer is configured: authorizer.class.name names one"
            raise KafkaError(ErrorCode.SECURITY_DISABLED, why)
        asked.rights.require(Operation.DESCRIBE, ResourceType.CLUSTER)
        image = self._image()
        rules = [one for one in image.acls.values() if one.resource_type in KAFKA_RESOURCE_TYPES]
        rules.sort(key=lambda one: (one.resource_type, one.resource_name, one.principal))
        table: Table[AccessControlEntryRecord] = Table(
            _rule_row,
            {
                "principal": lambda one: one.principal,
                "host": lambda one: one.host,
                "operation": lambda one: Operation(one.operation).name,
                "permission": lambda one: Permission(one.permission_type).name,
                "resource_type": lambda one: ResourceType(one.resource_type).name,
                "resource_name": lambda one: one.resource_name,
                "pattern_type": lambda one: PatternType(one.pattern_type).name,
            },
            name=lambda one: f"{one.principal} {one.resource_name}",
        )
        return await table.answer(rules, asked.fields, image.offset)

    async def quotas(self, asked: Asked) -> dict[str, Any]:
        """Return the table of quotas. KafkaError(CLUSTER_AUTHORIZATION_FAILED)."""
        asked.rights.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        image = self._image()
        quotas = [
            _Quota(**_entity(entity), key=key, value=value)
            for entity, values in image.client_quotas.items()
            for key, value in values.items()
        ]
        quotas.sort(key=lambda one: (one.user or "", one.client_id or "", one.ip or "", one.key))
        table: Table[_Quota] = Table(
            _Quota._asdict,
            {
                "user": lambda one: one.user,
                "client_id": lambda one: one.client_id,
                "ip": lambda one: one.ip,
                "key": lambda one: one.key,
                "value": lambda one: one.value,
            },
            name=lambda one: " ".join(filter(None, one[:3])),
        )
        return await table.answer(quotas, asked.fields, image.offset)


def _rule_row(rule: AccessControlEntryRecord) -> dict[str, Any]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": Operation(rule.operation).name,
        "permission": Permission(rule.permission_type).name,
        "resource_type": ResourceType(rule.resource_type).name,
        "resource_name": rule.resource_name,
        "pattern_type": PatternType(rule.pattern_type).name,
    }


def _entity(entity: tuple[tuple[str, str | None], ...]) -> dict[str, str | None]:
    """Return the columns that name an entity; a part that it does not name is None."""
    named: dict[str, str | None] = dict.fromkeys(_NAMES.values())
    for kind, name in entity:
        named[_NAMES[kind]] = DEFAULT_ENTITY if name is None else name
    return named
