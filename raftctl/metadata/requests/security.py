"""What administrators ask of the active controller about quotas, access control and credentials.

Numbers are those of the Kafka protocol. See `raftctl.metadata.requests` for how they travel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from raftctl.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """The changes of one entity's quotas, all or none."""

    entity: tuple[tuple[str, str | None], ...]
    """(type, name); None stands for whoever has no quota of their own."""
    changes: tuple[tuple[str, float | None], ...]
    """(key, value); None removes the quota."""


@dataclass(frozen=True, slots=True)
class AlterClientQuotasRequest:
    """Changes quotas, each entity on its own (row C12)."""

    TYPE_ID: ClassVar[int] = 180
    entries: tuple[QuotaAlteration, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AclBinding:
    """Who may (or must not) do what with which resources, from where."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which bindings are meant; None and ANY (1) are any."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class CreateAclsRequest:
    """Adds rules, each on its own (row C12)."""

    TYPE_ID: ClassVar[int] = 181
    bindings: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DeleteAclsRequest:
    """Removes the rules that match any of the filters."""

    TYPE_ID: ClassVar[int] = 182
    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """What one filter has removed."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    bindings: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse:
    """The outcome of each filter, in order."""

    TYPE_ID: ClassVar[int] = 183
    error: ErrorCode
    message: str
    results: tuple[DeletedAcls, ...]
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user loses the credential of a mechanism."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user gets a credential; the salted password is not kept."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AlterScramRequest:
    """Changes credentials, each user on their own; an outcome a user, in order of appearance."""

    TYPE_ID: ClassVar[int] = 184
    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]

    def users(self) -> list[str]:
        """The users named, each once, in order."""
        named = [one.user for one in self.deletions] + [one.user for one in self.upsertions]
        return list(dict.fromkeys(named))
