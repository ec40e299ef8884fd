"""Rules on keys over HTTP: who may read and write which keys.

Kafka's requests know no keys, so its tools cannot keep these rules. Who may DESCRIBE the cluster
lists them, and who may ALTER it changes them, as with the other rules (KIP-140).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError
from raftctl.metadata.acls import (
    KEY_OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    matches,
)
from raftctl.metadata.requests.security import (
    AclBinding,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.http_json import Fields
    from raftctl.kv._rights import KeyRights
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import AccessControlEntryRecord

    Ask = Callable[[Any], Awaitable[Any]]
    """Hands a request to the active controller and returns its response; KafkaError if refused."""

_ANY = 1
_OPERATIONS = {one.name: one for one in KEY_OPERATIONS}
_PERMISSIONS = {one.name: one for one in Permission}


class KvRules:
    """The rules of keys, of one node."""

    def __init__(self, ask: Ask, image: Callable[[], MetadataImage]) -> None:
        self._ask = ask
        self._image = image

    async def list(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        """Answer with the rules that match the fields; a field that is absent is any."""
        wanted = _filter(fields)
        fields.end()
        await rights.require_cluster(Operation.DESCRIBE)
        found = [_document(one) for one in self._image().acls.values() if matches(wanted, one)]
        return {"rules": sorted(found, key=lambda one: [str(value) for value in one.values()])}

    async def add(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        """Add a rule; one that is there stays."""
        wanted = _filter(fields)
        fields.end()
        if wanted.resource_name is None:
            raise BadFieldError("key", "is missing (or prefix; `*` as key is all keys)")
        for name, given in (("principal", wanted.principal), ("operation", wanted.operation)):
            if given in (None, _ANY):
                raise BadFieldError(name, "is missing")
        permission = wanted.permission_type
        binding = AclBinding(
            ResourceType.KEY,
            wanted.resource_name,
            wanted.pattern_type,
            wanted.principal or "",
            wanted.host or WILDCARD,
            wanted.operation,
            Permission.ALLOW if permission == _ANY else permission,
        )
        await rights.require_cluster(Operation.ALTER)
        requester = (str(rights.requester.principal), rights.requester.host)
        (outcome,) = (await self._ask(CreateAclsRequest((binding,), requester))).outcomes
        _check(outcome.error, outcome.message)
        return {"rule": _document(binding)}

    async def remove(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        """Remove the rules that match the fields; a field that is absent is any."""
        wanted = _filter(fields)
        fields.end()
        if wanted.resource_name is None and wanted.principal is None:
            raise BadFieldError("key", "is missing (or prefix, or principal)")
        await rights.require_cluster(Operation.ALTER)
        requester = (str(rights.requester.principal), rights.requester.host)
        (result,) = (await self._ask(DeleteAclsRequest((wanted,), requester))).results
        _check(result.error, result.message)
        return {"removed": [_document(one) for one in result.bindings]}


def _check(error: ErrorCode, message: str) -> None:
    if error != ErrorCode.NONE:
        raise KafkaError(error, message)


def _filter(fields: Fields) -> AclFilter:
    key, prefix = fields.text_or_none("key"), fields.text_or_none("prefix")
    if key is not None and prefix is not None:
        raise BadFieldError("prefix", "give it or key")
    if prefix == "":
        raise BadFieldError("prefix", "it is empty: all keys are `*` as key")
    pattern = PatternType.ANY
    if key is not None or prefix is not None:
        pattern = PatternType.LITERAL if prefix is None else PatternType.PREFIXED
    return AclFilter(
        ResourceType.KEY,
        key if prefix is None else prefix,
        pattern,
        fields.text_or_none("principal"),
        fields.text_or_none("host"),
        _number(fields, "operation", _OPERATIONS),
        _number(fields, "permission", _PERMISSIONS),
    )


def _number(fields: Fields, name: str, known: dict[str, Any]) -> int:
    text = fields.text_or_none(name)
    if text is None:
        return _ANY
    if text.upper() not in known:
        raise BadFieldError(name, f"must be one of {', '.join(known)}")
    return int(known[text.upper()])


def _document(rule: AclBinding | AccessControlEntryRecord) -> dict[str, Any]:
    name = "key" if rule.pattern_type == PatternType.LITERAL else "prefix"
    return {
        "principal": rule.principal,
        "host": rule.host,
        "permission": Permission(rule.permission_type).name,
        "operation": Operation(rule.operation).name,
        name: rule.resource_name,
    }
