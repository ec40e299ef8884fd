"""Requests that brokers forward for clients: what of them the requester may do (row S4).

The authorizer is asked before the controller decides, so the controller knows no principals. A
broker's older image cannot let anyone change metadata: the authorizer here follows the images that
the quorum has committed. What is denied is taken out of a request, and its refusal goes into the
response.

Some requests name no requester: an older release forwards them so, and they are refused. A broker
creates its own topics in its own name, which must be that of the sender.

Sources: Apache Kafka's ControllerApis and AclApis; KIP-590.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, DENIED, Operation, ResourceType
from raftctl.metadata.records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from raftctl.metadata.requests import ForwardedRequest
from raftctl.metadata.requests.admin import (
    AdminResponse,
    AlterConfigsRequest,
    AlterReassignmentsRequest,
    ConfigAlteration,
    CreatePartitionsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ItemOutcome,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from raftctl.metadata.requests.security import (
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from raftctl.metadata.topic_names import RESERVED
from raftctl.security import Action, Principal, Requester

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.security import Authorizer

_OF_THE_CLUSTER: dict[type, Operation] = {
    ElectLeadersRequest: Operation.ALTER,
    AlterReassignmentsRequest: Operation.ALTER,
    UpdateFeaturesRequest: Operation.ALTER,
    UnregisterBrokerRequest: Operation.ALTER,
    DescribeQuorumRequest: Operation.DESCRIBE,
    AlterClientQuotasRequest: Operation.ALTER_CONFIGS,
    AlterScramRequest: Operation.ALTER,
    CreateAclsRequest: Operation.ALTER,
    DeleteAclsRequest: Operation.ALTER,
}
"""Requests that are allowed or denied as a whole, and the operation on the cluster."""
_CONFIGS_OF = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
}
"""The resource whose rules hold for configs, by the type that has the configs."""
_TOPIC_DENIED = DENIED[ResourceType.TOPIC]
_NO_REQUESTER = "the broker does not say for whom it asks: upgrade it to the controllers' release"


Item = TypeVar("Item")


class Screened(NamedTuple):
    """What may be done of a request, and how its response is completed."""

    request: ControllerRequest
    """The part to decide."""
    complete: Callable[[ControllerResponse], ControllerResponse]
    """Adds to the controller's response what was denied."""


def screen(
    authorizer: Authorizer | None,
    request: ControllerRequest,
    peer_id: int,
    image: Callable[[], MetadataImage],
) -> Screened:
    """Return what the requester may have done of a request that came from node `peer_id`.

    `image` returns the one on which the controller will decide. Raises KafkaError:
    CLUSTER_AUTHORIZATION_FAILED if the request as a whole is denied; SECURITY_DISABLED if it is
    about rules, and there is no authorizer.
    """
    if authorizer is None:
        if isinstance(request, CreateAclsRequest | DeleteAclsRequest):
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return Screened(request, _as_it_is)
    if isinstance(request, CreateTopicsRequest) and 0 <= request.broker_id == peer_id:
        return Screened(request, _as_it_is)
    if not isinstance(request, ForwardedRequest):
        return Screened(request, _as_it_is)
    screening = _Screening(authorizer, request)
    match request:
        case CreateTopicsRequest():
            return screening.creation(request)
        case DeleteTopicsRequest():
            return screening.deletion(request, image())
        case CreatePartitionsRequest():
            return screening.partitions(request)
        case AlterConfigsRequest():
            return screening.configs(request)
        case CreateDelegationTokenRequest():
            screening.token(request)
            return Screened(request, _as_it_is)
        case RenewDelegationTokenRequest() | ExpireDelegationTokenRequest():
            # No rule is asked: the controller knows the token's owner and renewers.
            return Screened(request, _as_it_is)
    screening.whole(request)
    return Screened(request, _as_it_is)


def _as_it_is(response: ControllerResponse) -> ControllerResponse:
    return response


class _Screening:
    """The questions about one request."""

    def __init__(self, authorizer: Authorizer, request: ForwardedRequest) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) if the request names no requester."""
        if request.requester is None:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _NO_REQUESTER)
        principal, host = request.requester
        try:
            self._requester = Requester(Principal.parse(principal), host)
        except ValueError as error:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(error)) from error
        self._authorizer = authorizer

    def _allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        action = Action(operation, resource_type, name, log_if_denied=log_if_denied)
        return self._authorizer.authorize(self._requester, action)

    def _allows_topic(self, operation: Operation, name: str, *, log_if_denied: bool = True) -> bool:
        return self._allows(operation, ResourceType.TOPIC, name, log_if_denied=log_if_denied)

    def _allows_for_all(self, operation: Operation) -> bool:
        """A rule for the cluster that allows it for each topic; without one the topics' count."""
        return self._allows(operation, ResourceType.CLUSTER, log_if_denied=False)

    def whole(self, request: ForwardedRequest) -> None:
        """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) unless the whole request is allowed."""
        if not self._allows(_OF_THE_CLUSTER[type(request)], ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def token(self, request: CreateDelegationTokenRequest) -> None:
        """CREATE_TOKENS on the owner, where that is somebody else (KIP-373).

        Raise KafkaError(DELEGATION_TOKEN_AUTHORIZATION_FAILED) unless it is allowed.
        """
        if request.owner is None:
            return
        owner = Principal(*request.owner)
        if owner == self._requester.principal:
            return
        if not self._allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise KafkaError(DENIED[ResourceType.USER])

    def creation(self, request: CreateTopicsRequest) -> Screened:
        """CREATE on the cluster or the topic; DESCRIBE_CONFIGS for the configs in the answer."""
        # The controller refuses other names anyhow, and says what is wrong with them.
        names = Counter(topic.name for topic in request.topics)
        once = [name for name in names if names[name] == 1 and name not in RESERVED]
        all_may_come = self._allows_for_all(Operation.CREATE)
        denied = {
            name: TopicResult(name, _TOPIC_DENIED, "Authorization failed.")
            for name in once
            if not all_may_come and not self._allows_topic(Operation.CREATE, name)
        }

        def complete(response: ControllerResponse) -> ControllerResponse:
            if not isinstance(response, CreateTopicsResponse):
                return response
            created = map(self._as_far_as_visible, response.topics)
            return replace(response, topics=(*created, *denied.values()))

        topics = tuple(topic for topic in request.topics if topic.name not in denied)
        return Screened(replace(request, topics=topics), complete)

    def _as_far_as_visible(self, result: TopicResult) -> TopicResult:
        describe_configs = Operation.DESCRIBE_CONFIGS
        if result.error or self._allows_topic(describe_configs, result.name, log_if_denied=False):
            return result
        return replace(result, partitions=-1, replication_factor=-1, configs_error=_TOPIC_DENIED)

    def deletion(self, request: DeleteTopicsRequest, image: MetadataImage) -> Screened:
        """DELETE on the cluster or the topic.

        Without DESCRIBE the answer to a name is the same whether there is such a topic, and the
        answer to an id has no name. It says that the id exists: nobody guesses an id.
        """
        denied: dict[tuple[str | None, UUID | None], TopicResult] = {}
        if not self._allows_for_all(Operation.DELETE):
            for name, topic_id in request.topics:
                refusal = (
                    self._refusal_by_name(name, image)
                    if name is not None
                    else self._refusal_by_id(topic_id, image)
                )
                if refusal is not None:
                    denied[name, topic_id] = refusal

        def complete(response: ControllerResponse) -> ControllerResponse:
            if not isinstance(response, DeleteTopicsResponse):
                return response
            return replace(response, topics=(*response.topics, *denied.values()))

        topics = tuple(key for key in request.topics if key not in denied)
        return Screened(replace(request, topics=topics), complete)

    def _refusal_by_name(self, name: str, image: MetadataImage) -> TopicResult | None:
        if self._allows_topic(Operation.DESCRIBE, name):
            unknown = image.topics.by_name(name) is None
            if unknown or self._allows_topic(Operation.DELETE, name):
                return None
        return TopicResult(name, _TOPIC_DENIED)

    def _refusal_by_id(self, topic_id: UUID | None, image: MetadataImage) -> TopicResult | None:
        topic = None if topic_id is None else image.topics.by_id(topic_id)
        if topic is None or self._allows_topic(Operation.DELETE, topic.name):
            return None
        visible = self._allows_topic(Operation.DESCRIBE, topic.name)
        return TopicResult(topic.name if visible else "", _TOPIC_DENIED, topic_id=topic_id)

    def partitions(self, request: CreatePartitionsRequest) -> Screened:
        """ALTER on the topic."""
        denied = [
            None if self._allows_topic(Operation.ALTER, one.name) else ItemOutcome(_TOPIC_DENIED)
            for one in request.topics
        ]
        allowed = replace(request, topics=_allowed(request.topics, denied))
        return Screened(allowed, _completing(denied))

    def configs(self, request: AlterConfigsRequest) -> Screened:
        """ALTER_CONFIGS on the topic or group; on the cluster for brokers and client metrics."""
        denied = [self._refusal_to_alter(one) for one in request.resources]
        allowed = replace(request, resources=_allowed(request.resources, denied))
        return Screened(allowed, _completing(denied))

    def _refusal_to_alter(self, one: ConfigAlteration) -> ItemOutcome | None:
        kind = _CONFIGS_OF.get(one.resource_type)
        if kind is None:
            return None  # there is no such type: the controller says so
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else one.resource_name
        if self._allows(Operation.ALTER_CONFIGS, kind, name):
            return None
        return ItemOutcome(DENIED[kind])


def _allowed(items: Sequence[Item], denied: Sequence[ItemOutcome | None]) -> tuple[Item, ...]:
    return tuple(item for item, refusal in zip(items, denied, strict=True) if refusal is None)


def _completing(
    denied: Sequence[ItemOutcome | None],
) -> Callable[[ControllerResponse], ControllerResponse]:
    """Return what puts refusals into the places that their items had in the request."""

    def complete(response: ControllerResponse) -> ControllerResponse:
        if not isinstance(response, AdminResponse) or response.error:
            return response
        decided = iter(response.outcomes)
        outcomes = [next(decided) if refusal is None else refusal for refusal in denied]
        return replace(response, outcomes=tuple(outcomes))

    return complete
