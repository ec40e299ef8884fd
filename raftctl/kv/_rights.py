"""What a client may do with keys: rules of the resource type KEY (row S6).

A lock is a key for its rules, and to delete a key is to write it. What many keys are in, a list or
a watch, is allowed if one rule covers them all and none denies one of them.

Rules are asked once this node has every change of them that was answered before the request came.
So a right that was revoked is not used by what begins later, whichever controller it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.security import Action

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from raftctl.metadata.image import MetadataImage
    from raftctl.security import Authorizer, Requester

    Confirmed = Callable[[], Awaitable[MetadataImage]]

READ, WRITE = Operation.READ, Operation.WRITE
_KEY = ResourceType.KEY


class KeyRights:
    """The rights of one client. Without an authorizer it may do everything."""

    def __init__(
        self, authorizer: Authorizer | None, requester: Requester, confirmed: Confirmed
    ) -> None:
        """`confirmed` returns an image that shows all that was answered before the call."""
        self._authorizer = authorizer
        self.requester = requester
        self._confirmed = confirmed
        self._is_confirmed = False

    async def confirm(self) -> None:
        """Have this node know all that was answered before the request; asks once."""
        if not self._is_confirmed:
            await self._confirmed()
            self._is_confirmed = True

    async def require(self, operation: Operation, *names: str) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) unless it is allowed on all of them."""
        if self._authorizer is not None:
            await self.confirm()
            for name in names:
                self.check(operation, name, is_asked=True)

    async def require_prefix(self, operation: Operation, prefix: str) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) unless it is allowed on all with it."""
        if self._authorizer is not None:
            await self.confirm()
            self.check_prefix(operation, prefix, is_asked=True)

    def check_prefix(self, operation: Operation, prefix: str, *, is_asked: bool = False) -> None:
        """Do the same by the rules that this node has; `is_asked`: the client has just asked."""
        action = Action(operation, _KEY, prefix, log_if_allowed=is_asked)
        authorizer = self._authorizer
        if authorizer is not None and not authorizer.authorize_prefix(self.requester, action):
            keys = f"all keys that begin with {prefix}" if prefix else "all keys"
            raise self._refusal(operation, keys)

    def check(self, operation: Operation, name: str, *, is_asked: bool = False) -> None:
        """Raise unless it is allowed by the rules that this node has; see `check_prefix`."""
        action = Action(operation, _KEY, name, log_if_allowed=is_asked)
        if self._authorizer is not None and not self._authorizer.authorize(self.requester, action):
            raise self._refusal(operation, f"the key {name}")

    async def require_some(self, operation: Operation) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) unless it is allowed on some key."""
        if self._authorizer is not None:
            await self.confirm()
            if not self._authorizer.authorize_by_resource_type(self.requester, operation, _KEY):
                raise self._refusal(operation, "any key")

    async def require_cluster(self, operation: Operation) -> None:
        """Raise KafkaError: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED
        unless it is allowed on the cluster."""
        if self._authorizer is None:
            why = "No Authorizer is configured: rules of access would protect nothing"
            raise KafkaError(ErrorCode.SECURITY_DISABLED, why)
        await self.confirm()
        action = Action(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        if not self._authorizer.authorize(self.requester, action):
            raise self._refusal(operation, "the cluster")

    def allowed(self, operation: Operation, names: Iterable[str]) -> list[str]:
        """Return those on which it is allowed; the client has asked for none by its name."""
        if self._authorizer is None:
            return list(names)
        return [
            name
            for name in names
            if self._authorizer.authorize(
                self.requester,
                Action(operation, _KEY, name, log_if_allowed=False, log_if_denied=False),
            )
        ]

    def _refusal(self, operation: Operation, what: str) -> KafkaError:
        why = f"{self.requester.principal} may not {operation.name} {what}"
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
