"""Access control lists (row C12): the entries by which authorizers decide.

The id of an entry is a hash of its fields, so an equal entry is the same record. A random id would
store an entry twice when a client repeats a request whose response was lost.

An entry names one principal, one host, one operation and one resource, by a literal name or by a
prefix. A filter of a deletion may also leave a field open, or match any pattern that covers a name.
Entries on keys are this project's own; only a filter that names their type matches them.

Sources: KIP-11, KIP-140 (requests), KIP-290 (prefixes).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from raftctl.controller._result import ControllerResult, admin_result
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.acls import (
    CLUSTER_NAME,
    KEY_OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    matches,
)
from raftctl.metadata.features import KEY_RULES_LEVEL, SECURITY_LEVEL, require_level
from raftctl.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from raftctl.metadata.requests.admin import ItemOutcome
from raftctl.metadata.requests.security import (
    AclBinding,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeletedAcls,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.requests.security import AclFilter

_IDS = UUID("6f1c9c58-6d0e-4b52-9e0b-3c1b6a4f7d21")
"""Namespace of the ids. It is part of the log's format: another one would store entries again."""
_fields_of: Callable[[AclBinding | AccessControlEntryRecord], tuple[Any, ...]] = attrgetter(
    *AclBinding.__slots__
)
NAME_LENGTH_MAX = 32_767
"""Characters of a resource's name, a principal or a host: the most that Kafka's protocol holds."""


def create_acls(image: MetadataImage, request: CreateAclsRequest) -> ControllerResult:
    """Add each entry on its own; an entry that exists stays.

    Errors of an entry: INVALID_REQUEST; UNSUPPORTED_VERSION below the `metadata.version` that
    knows entries.
    """
    records: dict[UUID, AccessControlEntryRecord] = {}
    outcomes = []
    for binding in request.bindings:
        try:
            is_of_key = binding.resource_type == ResourceType.KEY
            require_level(image, KEY_RULES_LEVEL if is_of_key else SECURITY_LEVEL)
            _check(binding)
        except KafkaError as error:
            outcomes.append(ItemOutcome(error.code, error.message))
            continue
        record = _record(binding)
        known = image.acls.get(record.entry_id) or records.setdefault(record.entry_id, record)
        # Else one entry would take the place of another, and the client would not learn of it.
        invariant(known == record, "entries that differ have different ids")
        outcomes.append(ItemOutcome())
    return admin_result(list(records.values()), outcomes)


def _record(binding: AclBinding) -> AccessControlEntryRecord:
    """Return the record of an entry; its id depends on nothing but the fields."""
    fields = _fields_of(binding)
    return AccessControlEntryRecord(uuid5(_IDS, repr(fields)), *fields)


def _check(binding: AclBinding) -> None:
    """Raise KafkaError(INVALID_REQUEST) unless every field is one that an entry may have.

    ANY and MATCH are for filters alone: in an entry they would never match a request.
    """
    kind, _, name = binding.principal.partition(":")
    texts = (binding.resource_name, binding.principal, binding.host)
    problem = None
    if binding.resource_type not in list(ResourceType):
        problem = f"resource_type must be 2 to 7, not {binding.resource_type}"
    elif binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"pattern_type must be 3 (literal) or 4 (prefixed), not {binding.pattern_type}"
    elif not all(texts):
        problem = "resource_name, principal and host are not empty"
    elif max(map(len, texts)) > NAME_LENGTH_MAX:
        problem = f"No name is longer than {NAME_LENGTH_MAX} characters"
    elif not kind or not name:
        problem = f"principal must be TYPE:NAME, such as User:alice, not {binding.principal!r:.100}"
    elif binding.operation not in list(Operation):
        problem = f"operation must be 2 to {max(Operation)}, not {binding.operation}"
    elif binding.resource_type == ResourceType.KEY and binding.operation not in KEY_OPERATIONS:
        problem = "The operation on a key is READ, WRITE or ALL"
    elif binding.permission_type not in list(Permission):
        problem = f"permission_type must be 2 (deny) or 3 (allow), not {binding.permission_type}"
    elif binding.resource_type == ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        problem = f"The name of the cluster is {CLUSTER_NAME}"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> ControllerResult:
    """Remove the matching entries. An entry that several filters match is listed with the first.

    Error of a filter: INVALID_REQUEST if its pattern type is unknown.
    """
    removed: dict[UUID, AccessControlEntryRecord] = {}
    results = []
    for wanted in request.filters:
        problem = _filter_problem(wanted)
        if problem is not None:
            results.append(DeletedAcls(ErrorCode.INVALID_REQUEST, problem))
            continue
        found = [
            entry
            for entry in image.acls.values()
            if matches(wanted, entry) and entry.entry_id not in removed
        ]
        found.sort(key=attrgetter("entry_id"))
        removed |= {entry.entry_id: entry for entry in found}
        bindings = tuple(AclBinding(*_fields_of(entry)) for entry in found)
        results.append(DeletedAcls(bindings=bindings))
    records = tuple(map(RemoveAccessControlEntryRecord, removed))
    last = len(records) - 1
    return ControllerResult(
        records,
        lambda base_offset: DeleteAclsResponse(
            ErrorCode.NONE, "", tuple(results), base_offset + last
        ),
    )


def _filter_problem(wanted: AclFilter) -> str | None:
    """Return why the filter is refused; None if it is not.

    Types and operations that are unknown match no entry. An unknown pattern type would leave open
    which names it covers, and a deletion must not guess.
    """
    if wanted.pattern_type not in list(PatternType):
        return f"pattern_type must be 1 to 4, not {wanted.pattern_type}"
    return None
