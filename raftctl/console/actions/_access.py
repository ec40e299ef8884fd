"""Actions on rules and quotas."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeVar

from raftctl.console.actions._plan import Plan, check_field
from raftctl.console.brokers import check
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.metadata.acls import (
    CLUSTER_NAME,
    KAFKA_RESOURCE_TYPES,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from raftctl.security import Principal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.console.actions._plan import Acting
    from raftctl.http_json import Fields

Kind = TypeVar("Kind", bound=enum.IntEnum)

DEFAULT = "<default>"
"""The entity of a quota that holds for all without one of their own."""
_ENTITIES = {"user": "user", "client_id": "client-id", "ip": "ip"}


class _Rule(dict[str, Any]):
    """A rule with the numbers of Kafka's protocol."""

    def __str__(self) -> str:
        permission = Permission(self["permission_type"]).name
        operation = Operation(self["operation"]).name
        resource = ResourceType(self["resource_type"]).name
        prefixed = " prefixed" if self["pattern_type"] == PatternType.PREFIXED else ""
        return (
            f"{permission} {self['principal']} from {self['host']} {operation} "
            f"{resource}{prefixed} {self['resource_name']}"
        )


def _rule(fields: Fields) -> _Rule:
    kind = _one_of(fields, "resource_type", sorted(KAFKA_RESOURCE_TYPES))
    of_cluster = CLUSTER_NAME if kind is ResourceType.CLUSTER else None
    patterns = (PatternType.LITERAL, PatternType.PREFIXED)
    principal = fields.text("principal")
    try:
        Principal.parse(principal)
    except ValueError as error:
        raise BadFieldError("principal", str(error)) from None
    return _Rule(
        principal=principal,
        host=fields.text("host", "*"),
        operation=_one_of(fields, "operation", list(Operation)),
        permission_type=_one_of(fields, "permission", list(Permission)),
        resource_type=kind,
        resource_name=fields.text("resource_name", of_cluster),
        pattern_type=_one_of(fields, "pattern_type", patterns, PatternType.LITERAL),
    )


def _one_of(fields: Fields, name: str, known: Iterable[Kind], default: Kind | None = None) -> Kind:
    text = fields.text(name, None if default is None else default.name)
    spelt = {one.name: one for one in known}
    found = spelt.get(text.upper().replace("-", "_"))
    if found is None:
        raise BadFieldError(name, f"must be one of {', '.join(spelt)}")
    return found


def create_acl(acting: Acting, fields: Fields) -> Plan:
    """Add a rule."""
    rule = _rule(fields)

    async def carry_out() -> str:
        creation = {**rule, "resource_pattern_type": rule["pattern_type"]}
        [found] = (await acting.ask("CREATE_ACLS", {"creations": [creation]}))["results"]
        of_fields = {
            ErrorCode.INVALID_REQUEST: "resource_name",
            ErrorCode.INVALID_PRINCIPAL_TYPE: "principal",
        }
        check_field(found["error_code"], found["error_message"], of_fields)
        return f"added the rule {rule}"

    return Plan(str(rule), carry_out)


def delete_acl(acting: Acting, fields: Fields) -> Plan:
    """Remove a rule, this one alone."""
    rule = _rule(fields)

    async def carry_out() -> str:
        one = {
            "resource_type_filter": rule["resource_type"],
            "resource_name_filter": rule["resource_name"],
            "pattern_type_filter": rule["pattern_type"],
            "principal_filter": rule["principal"],
            "host_filter": rule["host"],
            "operation": rule["operation"],
            "permission_type": rule["permission_type"],
        }
        [found] = (await acting.ask("DELETE_ACLS", {"filters": [one]}))["filter_results"]
        check(found["error_code"], found["error_message"])
        for removed in found["matching_acls"]:
            check(removed["error_code"], removed["error_message"])
        if not found["matching_acls"]:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no rule {rule}")
        return f"removed the rule {rule}"

    return Plan(str(rule), carry_out)


def alter_quota(acting: Acting, fields: Fields) -> Plan:
    """Set a quota of users, of clients or of an address; without a value it is removed."""
    given = {kind: fields.text_or_none(name) for name, kind in _ENTITIES.items()}
    entity = {
        kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None
    }
    if not entity:
        raise BadFieldError("user", "name a user, a client_id or an ip")
    key, value = fields.text("key"), fields.decimal_or_none("value")
    validate_only = fields.flag("validate_only")
    who = ", ".join(f"{kind} {given[kind]}" for kind in entity)

    async def carry_out() -> str:
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None}],
        }
        body = {"entries": [entry], "validate_only": validate_only}
        [found] = (await acting.ask("ALTER_CLIENT_QUOTAS", body))["entries"]
        code, message = found["error_code"], found["error_message"]
        of_key = value is None or f"no quota {key}" in (message or "")
        check_field(code, message, {ErrorCode.INVALID_REQUEST: "key" if of_key else "value"})
        done = "could be" if validate_only else "is"
        what = "removed" if value is None else f"set to {value:g}"
        return f"{key} of {who} {done} {what}"

    return Plan(f"{key} of {who}", carry_out)
