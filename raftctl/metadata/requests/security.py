"""Requests about quotas, access control lists, credentials and delegation tokens.

Numbers of resource types, patterns, operations, permissions and mechanisms are those of the Kafka
protocol; the controller checks them.

Sources: KIP-546 (quotas), KIP-140 (access control lists), KIP-554 (credentials), KIP-48
and KIP-373 (delegation tokens).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.origin import Origin


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Changes of one entity's quotas, all or none."""

    entity: tuple[tuple[str, str | None], ...]
    """(type, name); a name of None is the default of its type."""
    changes: tuple[tuple[str, float | None], ...]
    """(key, value); None removes the quota."""


@dataclass(frozen=True, slots=True)
class AlterClientQuotasRequest:
    """Changes quotas, each entity on its own (row C12)."""

    TYPE_ID: ClassVar[int] = 180
    entries: tuple[QuotaAlteration, ...]
    validate_only: bool = False
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class AclBinding:
    """Entry of an access control list: principal, host, operation, permission and resource."""

    resource_type: int
    """`ResourceType`: topic, group, cluster, transactional id, delegation token or user."""
    resource_name: str
    pattern_type: int
    """`PatternType`: literal or prefixed; filters may match as well."""
    principal: str
    """`TYPE:NAME`, such as `User:alice`."""
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Pattern of bindings; None and ANY (1) match any value."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class CreateAclsRequest:
    """Adds entries, each on its own (row C12)."""

    TYPE_ID: ClassVar[int] = 181
    bindings: tuple[AclBinding, ...]
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DeleteAclsRequest:
    """Removes the entries that match any of the filters."""

    TYPE_ID: ClassVar[int] = 182
    filters: tuple[AclFilter, ...]
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """Entries that one filter has removed."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    bindings: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteAclsResponse:
    """Outcome of each filter, in order."""

    TYPE_ID: ClassVar[int] = 183
    error: ErrorCode
    message: str
    results: tuple[DeletedAcls, ...]
    offset: int = -1


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Removal of a user's credential of a mechanism."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """New credential of a user; the salted password is not stored."""

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
    requester: tuple[str, str] | None = None

    def users(self) -> list[str]:
        """Return the users named, each once, in order."""
        named = [change.user for change in self.deletions] + [
            change.user for change in self.upsertions
        ]
        return list(dict.fromkeys(named))

    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class CreateDelegationTokenRequest:
    """Creates a delegation token; principals are (type, name)."""

    TYPE_ID: ClassVar[int] = 185
    owner: tuple[str, str] | None
    """None: the requester."""
    renewers: tuple[tuple[str, str], ...]
    max_lifetime_ms: int
    """0 or less: the longest that the controller allows."""
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class RenewDelegationTokenRequest:
    """Has a delegation token expire later."""

    TYPE_ID: ClassVar[int] = 186
    hmac: bytes = field(repr=False)
    period_ms: int
    """From now on; 0 or less: the longest that the controller allows."""
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class ExpireDelegationTokenRequest:
    """Has a delegation token expire at another time."""

    TYPE_ID: ClassVar[int] = 187
    hmac: bytes = field(repr=False)
    period_ms: int
    """From now on; below 0: at once."""
    requester: tuple[str, str] | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class DelegationTokenResponse:
    """The token as it is now, or the error; `hmac` only once it is created."""

    TYPE_ID: ClassVar[int] = 188
    error: ErrorCode
    message: str = ""
    token_id: str = ""
    issued_ms: int = -1
    expires_ms: int = -1
    max_ms: int = -1
    hmac: bytes = field(default=b"", repr=False)
    offset: int = -1


TokenRequest = (
    CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
)
Request = (
    AlterClientQuotasRequest
    | CreateAclsRequest
    | DeleteAclsRequest
    | AlterScramRequest
    | CreateDelegationTokenRequest
    | RenewDelegationTokenRequest
    | ExpireDelegationTokenRequest
)
Response = DeleteAclsResponse | DelegationTokenResponse
