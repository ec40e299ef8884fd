"""What a request's principal may do: the questions that handlers ask the authorizer.

Without an authorizer everybody may do everything. Each resource type has its own error code.
Source: Apache Kafka's AuthHelper; KIP-430 for the operations in answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raftctl.errors import KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, DENIED, Operation, ResourceType
from raftctl.security import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.apis.handler._context import ApiContext
    from broker.protocol.codec import Request

_GRANTABLE: dict[ResourceType, tuple[int, ...]] = {
    ResourceType.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    ResourceType.GROUP: (3, 6, 8, 10, 11),
    ResourceType.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""`Operation`s that a rule for a resource of the type can allow; ALL covers each of them."""
_NONE: frozenset[str] = frozenset()


def is_allowed(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    log_if_allowed: bool = True,
    log_if_denied: bool = True,
) -> bool:
    """Return whether the request's principal may do the operation on the resource.

    See `Action` for what the audit log has of it.
    """
    authorizer = context.authorizer
    if authorizer is None:
        return True
    action = Action(operation, resource_type, name, log_if_allowed, log_if_denied)
    return authorizer.authorize(request.context.connection.requester, action)


def allowed_names(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    log_if_denied: bool = True,
) -> set[str]:
    """Return those names of resources on which the operation is allowed."""
    return {
        name
        for name in dict.fromkeys(names)
        if is_allowed(context, request, operation, resource_type, name, log_if_denied=log_if_denied)
    }


def denied_names(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    log_if_denied: bool = True,
) -> frozenset[str]:
    """Return those names of resources on which the operation is denied; asks once a name."""
    authorizer = context.authorizer
    if authorizer is None:
        return _NONE
    requester = request.context.connection.requester
    denied = [
        name
        for name in dict.fromkeys(names)
        if not authorizer.authorize(
            requester, Action(operation, resource_type, name, True, log_if_denied)
        )
    ]
    return frozenset(denied) if denied else _NONE


def may_change(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Return what this broker knows of a right that the controller decides on, and audits."""
    return is_allowed(
        context,
        request,
        operation,
        resource_type,
        name,
        log_if_allowed=False,
        log_if_denied=False,
    )


def is_allowed_somewhere(
    context: ApiContext, request: Request[Any], operation: Operation, resource_type: ResourceType
) -> bool:
    """Return whether the principal may do the operation on some resource of the type (KIP-679)."""
    authorizer = context.authorizer
    if authorizer is None:
        return True
    requester = request.context.connection.requester
    return authorizer.authorize_by_resource_type(requester, operation, resource_type)


def require(
    context: ApiContext,
    request: Request[Any],
    operation: Operation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> None:
    """Raise the KafkaError of the resource type unless the operation is allowed."""
    if not is_allowed(context, request, operation, resource_type, name):
        raise KafkaError(DENIED[resource_type])


def requester_of(request: Request[Any]) -> tuple[str, str]:
    """Return (principal, host) of the client, as requests to the controller bear them."""
    principal, host = request.context.connection.requester
    return str(principal), host


def authorized_operations(
    context: ApiContext, request: Request[Any], resource_type: ResourceType, name: str
) -> int:
    """Return the operations that the principal may do, a bit each, as answers have them."""
    granted = _GRANTABLE[resource_type]
    if context.authorizer is not None:
        granted = tuple(
            one
            for one in granted
            if is_allowed(
                context,
                request,
                Operation(one),
                resource_type,
                name,
                log_if_allowed=False,
                log_if_denied=False,
            )
        )
    return sum(1 << one for one in granted)
