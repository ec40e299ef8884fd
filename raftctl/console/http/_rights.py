"""What the requester of a request may do: the rules of the protocol, and none of the console's own.

Lists leave out what the requester may not describe, and say nothing of it. What is asked for by its
name is refused. The audit log has refusals of the latter alone, as with requests of the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.errors import KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, DENIED, Operation, ResourceType
from raftctl.security import Action

if TYPE_CHECKING:
    from raftctl.security import Authorizer, Requester


class Rights:
    """The rights of one requester. Without an authorizer it may do everything."""

    def __init__(self, authorizer: Authorizer | None, requester: Requester) -> None:
        self._authorizer = authorizer
        self.requester = requester

    @property
    def are_checked(self) -> bool:
        """False without an authorizer."""
        return self._authorizer is not None

    def may(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> bool:
        """Return whether a list may show it; nothing is written to the audit log."""
        if self._authorizer is None:
            return True
        action = Action(operation, resource_type, name, log_if_allowed=False, log_if_denied=False)
        return self._authorizer.authorize(self.requester, action)

    def may_all(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether one rule allows it on all resources of the type, and none denies it.

        If so nobody needs to ask for each of 10,000 topics.
        """
        if self._authorizer is None:
            return True
        action = Action(operation, resource_type, "", log_if_allowed=False, log_if_denied=False)
        return self._authorizer.authorize_prefix(self.requester, action)

    def require(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> None:
        """Raise KafkaError with the error of the type unless it is allowed."""
        if self._authorizer is None:
            return
        if not self._authorizer.authorize(self.requester, Action(operation, resource_type, name)):
            what = resource_type.name.lower().replace("_", " ")
            of = "" if resource_type is ResourceType.CLUSTER else f" {name}"
            why = (
                f"{self.requester.principal} may not {operation.name} the {what}{of}: "
                "a rule must allow it"
            )
            raise KafkaError(DENIED[resource_type], why)
