"""An authorizer whose answers a test writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.metadata.acls import Operation, ResourceType
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.security import Action, Authorizer, Requester


class ListedActions:
    """Allows everything but `denied`, and keeps what it was asked."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        log: FilteringBoundLogger | None = None,
        *,
        denied: Collection[Action] = (),
    ) -> None:
        self.config = config or {}
        self.log = log
        self.denied = {action[:3] for action in denied}
        self.asked: list[tuple[Requester, Action]] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Rules of images do not count here."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        self.asked.append((requester, action))
        return action[:3] not in self.denied

    def authorize_by_resource_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True unless some resource of the type is denied."""
        del requester
        return not any(one[:2] == (operation, resource_type) for one in self.denied)


def denying(*denied: Action) -> Authorizer:
    """Return an authorizer that allows all but these actions."""
    return ListedActions(denied=denied)
