"""The cells of the table, and the rules that are made for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftctl.metadata.acls import Operation, PatternType, Permission, ResourceType
from tests.peers.authorization.cases import (
    CASES,
    EVERYBODY,
    LITERAL,
    LONGER,
    LONGER_PREFIX,
    OTHER_TYPE,
    OWN,
    PREFIX,
    SUPER,
    UNRELATED,
    WILDCARD,
    Case,
    Given,
)
from tests.peers.authorization.rows import Row
from tests.peers.authorization.table import operations, rows
from tests.peers.differential.language import resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.peers.authorization.rows import Right

PROBE = "probe"
"""A user whose rights come last: once they are there, so are those before."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A row in a case; each is itself alone."""

    number: int
    row: Row
    case: Case

    @property
    def prefix(self) -> str:
        """What its names begin with."""
        return f"{self.number:04}-"

    @property
    def user(self) -> str:
        """Who asks."""
        return SUPER if self.case.is_super else f"{self.prefix}user"


def cells() -> list[Cell]:
    """Every row in every case that it has; then the requests for operations."""
    pairs = [(row, case) for row in rows() for case in CASES if case.applies(row)]
    pairs += [(row, case) for row in operations.rows() for case in operations.CASES]
    return [Cell(number, row, case) for number, (row, case) in enumerate(pairs)]


def users(table: Iterable[Cell]) -> dict[str, str]:
    """User to password, of all who log in."""
    names = dict.fromkeys([SUPER, PROBE, *(cell.user for cell in table)])
    return {name: f"{name}-secret" for name in names}


def rule(
    permission: Permission,
    operation: Operation,
    resource: ResourceType,
    name: str,
    user: str,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> dict[str, Any]:
    """One of CreateAcls."""
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{user}",
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def rules(cell: Cell, kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All of a cell; `kept` are the names that were kept of what was prepared."""
    found = [_given(cell, one, cell.row.literal(cell.prefix, kept)) for one in cell.case.rules]
    if cell.case.is_super:
        return found
    return [*found, *(_beside(cell, one, kept) for one in cell.row.also)]


def _beside(cell: Cell, right: Right, kept: Mapping[str, Any]) -> dict[str, Any]:
    operation, resource, name = right
    named = resolved(name, cell.prefix, kept)
    return rule(Permission.ALLOW, operation, resource, named, cell.user)


def _given(cell: Cell, given: Given, literal: str) -> dict[str, Any]:
    row = cell.row
    operation, resource = row.operation, row.resource
    assert operation is not None
    assert resource is not None
    if given.operation == UNRELATED:
        operation = Operation.DELETE if operation == Operation.CREATE else Operation.CREATE
    elif isinstance(given.operation, Operation):
        operation = given.operation
    prefix = literal if resource == ResourceType.CLUSTER else literal[:-1]
    name, pattern = {
        LITERAL: (literal, PatternType.LITERAL),
        PREFIX: (prefix, PatternType.PREFIXED),
        WILDCARD: ("*", PatternType.LITERAL),
        LONGER: (f"{literal}x", PatternType.LITERAL),
        LONGER_PREFIX: (f"{literal}x", PatternType.PREFIXED),
        OTHER_TYPE: (literal, PatternType.LITERAL),
    }[given.on]
    if given.on == OTHER_TYPE:
        resource = ResourceType.TOPIC if resource == ResourceType.GROUP else ResourceType.GROUP
    user = {OWN: cell.user, EVERYBODY: "*"}.get(given.principal, given.principal)
    return rule(given.permission, operation, resource, name, user, pattern, given.host)
