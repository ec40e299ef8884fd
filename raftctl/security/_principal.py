"""The values that an authorizer is asked with, and its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.metadata.acls import Operation, ResourceType
    from raftctl.metadata.image import MetadataDelta, MetadataImage


class Principal(NamedTuple):
    """Who acts: `User:alice`. A rule names one the same way."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal of `TYPE:NAME`; ValueError with the remedy if it is malformed."""
        kind, colon, name = text.partition(":")
        if not (colon and kind and name):
            raise ValueError(f"{text!r} is no principal: write TYPE:NAME, such as User:alice")
        return cls(kind, name)

    @classmethod
    def of_user(cls, name: str) -> Principal:
        """Return the principal of a user, or of a certificate's name (KIP-189)."""
        return cls("User", name)


ANONYMOUS = Principal.of_user("ANONYMOUS")
"""The principal of a connection that does not authenticate."""


class Requester(NamedTuple):
    """A principal at a host, which is an address without a port: 127.0.0.1."""

    principal: Principal
    host: str


class Action(NamedTuple):
    """An operation on a resource, which has a literal name.

    The last two fields have no part in the decision. They keep questions out of the audit log that
    grant or refuse nothing: which topics a list may have, which operations an answer names.
    """

    operation: Operation
    resource_type: ResourceType
    resource_name: str
    log_if_allowed: bool = True
    """False if no access follows when it is allowed."""
    log_if_denied: bool = True
    """False if the requester has not asked for this resource by its name."""


class Authorizer(Protocol):
    """A plug-in that decides who may do what: entry point `raftctl.authorizers`.

    It is called on the event loop and must not block. It decides on the last image that it was
    given; before the first it allows super users alone.
    """

    def __init__(self, config: Mapping[str, str], log: FilteringBoundLogger) -> None:
        """Take the keys of the node's configuration as they were written, and the audit log.

        ConfigError with the key and the remedy if one cannot be used.
        """

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take up a newer committed image; in offset order, the first delta from the empty one."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """Return whether the requester may do the action."""

    def authorize_prefix(self, requester: Requester, action: Action) -> bool:
        """Return whether the requester may do it on all resources with a prefix, the name."""

    def authorize_by_resource_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the requester may do the operation on some resource of the type."""
