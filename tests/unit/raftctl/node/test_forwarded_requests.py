"""What the controller does of a forwarded request: what its requester may do, and no more (S4)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import pytest

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
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
    NewPartitions,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
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
from raftctl.node import screen
from raftctl.node._forwarded_requests import _OF_THE_CLUSTER
from raftctl.raft.messages import NO_NODE
from raftctl.security import Action, Principal, Requester
from tests.kit.authorizing import ListedActions, denying
from tests.unit.raftctl.controller.cluster import Cluster

if TYPE_CHECKING:
    from raftctl.metadata.requests import ControllerRequest

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE = ("User:alice", "10.0.0.7")
NONE = ErrorCode.NONE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BROKER_ID = 1
UNKNOWN_ID = UUID(int=99)


def on_topic(operation: Operation, name: str) -> Action:
    return Action(operation, TOPIC, name)


def on_cluster(operation: Operation) -> Action:
    return Action(operation, CLUSTER, CLUSTER_NAME)


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 3, and a topic `t`."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.assign("t", (1,))
    return cluster


def outcome_of(cluster: Cluster, request: ControllerRequest, *denied: Action) -> object:
    """The response, when a broker forwards it for a client to which this is denied."""
    authorizer = denying(*denied)
    allowed = screen(authorizer, request, BROKER_ID, lambda: cluster.image)
    return allowed.complete(cluster.handle(allowed.request))


def topics_of(response: object) -> list[tuple[str, ErrorCode]]:
    assert isinstance(response, CreateTopicsResponse | DeleteTopicsResponse)
    return [(one.name, one.error) for one in response.topics]


WHOLE: list[tuple[ForwardedRequest, Operation]] = [
    (ElectLeadersRequest(0, (), ALICE), Operation.ALTER),
    (AlterReassignmentsRequest((), requester=ALICE), Operation.ALTER),
    (UpdateFeaturesRequest((), requester=ALICE), Operation.ALTER),
    (UnregisterBrokerRequest(3, ALICE), Operation.ALTER),
    (DescribeQuorumRequest(ALICE), Operation.DESCRIBE),
    (AlterClientQuotasRequest((), requester=ALICE), Operation.ALTER_CONFIGS),
    (CreateAclsRequest((), ALICE), Operation.ALTER),
    (DeleteAclsRequest((), ALICE), Operation.ALTER),
    (AlterScramRequest((), (), ALICE), Operation.ALTER),
]
BY_ITEM: list[ForwardedRequest] = [
    CreateTopicsRequest((), requester=ALICE),
    DeleteTopicsRequest((), ALICE),
    CreatePartitionsRequest((), requester=ALICE),
    AlterConfigsRequest((), requester=ALICE),
]
TOKENS: list[ForwardedRequest] = [
    CreateDelegationTokenRequest(None, (), -1, ALICE),
    RenewDelegationTokenRequest(b"hmac", -1, ALICE),
    ExpireDelegationTokenRequest(b"hmac", -1, ALICE),
]


@pytest.mark.req("S4")
@pytest.mark.parametrize(("request_", "operation"), WHOLE, ids=lambda one: type(one).__name__)
def test_a_request_about_the_cluster_is_denied_as_a_whole(
    cluster: Cluster, request_: ForwardedRequest, operation: Operation
) -> None:
    every = [one for one in Operation if one is not operation]
    allowing = ListedActions(denied=[on_cluster(one) for one in every])
    assert screen(allowing, request_, BROKER_ID, lambda: cluster.image).request == request_
    requester = Requester(Principal("User", "alice"), "10.0.0.7")
    assert allowing.asked == [(requester, on_cluster(operation))]
    with pytest.raises(KafkaError) as raised:
        screen(denying(on_cluster(operation)), request_, BROKER_ID, lambda: cluster.image)
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    "request_", [*(one for one, _ in WHOLE), *BY_ITEM, *TOKENS], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize("requester", [None, ("alice", "10.0.0.7")])
def test_a_broker_that_names_no_requester_is_refused(
    cluster: Cluster, request_: ForwardedRequest, requester: tuple[str, str] | None
) -> None:
    """An older release does not know that it must."""
    unnamed = replace(request_, requester=requester)
    with pytest.raises(KafkaError) as raised:
        screen(denying(), unnamed, BROKER_ID, lambda: cluster.image)
    assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    rules = isinstance(request_, CreateAclsRequest | DeleteAclsRequest)
    if not rules:
        allowed = screen(None, unnamed, BROKER_ID, lambda: cluster.image)
        assert allowed.request == unnamed


@pytest.mark.req("S3", "S4")
def test_a_token_for_somebody_else_needs_a_right_on_that_user(cluster: Cluster) -> None:
    """Whose own it is, the controller knows: no rule is asked about renewals (KIP-373)."""
    for_bob = CreateDelegationTokenRequest(("User", "bob"), (("User", "carol"),), -1, ALICE)
    on_bob = Action(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    asking = ListedActions()
    assert screen(asking, for_bob, BROKER_ID, lambda: cluster.image).request == for_bob
    assert [action for _, action in asking.asked] == [on_bob]
    with pytest.raises(KafkaError) as raised:
        screen(denying(on_bob), for_bob, BROKER_ID, lambda: cluster.image)
    assert raised.value.code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    nothing = ListedActions()
    for_alice = CreateDelegationTokenRequest(("User", "alice"), (("User", "bob"),), -1, ALICE)
    for request_ in (*TOKENS, for_alice):
        assert screen(nothing, request_, BROKER_ID, lambda: cluster.image).request == request_
    assert nothing.asked == []


@pytest.mark.req("S4")
@pytest.mark.parametrize("request_", [CreateAclsRequest(()), DeleteAclsRequest(())])
def test_without_an_authorizer_there_are_no_rules_to_change(
    cluster: Cluster, request_: ControllerRequest
) -> None:
    with pytest.raises(KafkaError) as raised:
        screen(None, request_, BROKER_ID, lambda: cluster.image)
    assert raised.value.code == ErrorCode.SECURITY_DISABLED


@pytest.mark.req("S4")
def test_what_brokers_do_by_themselves_is_asked_of_nobody(cluster: Cluster) -> None:
    authorizer = ListedActions()
    topics = (NewTopic("__consumer_offsets", 1, 1),)
    own = CreateTopicsRequest(topics, broker_id=BROKER_ID)
    for request in (AllocateProducerIdsRequest(BROKER_ID, 1), own):
        assert screen(authorizer, request, BROKER_ID, lambda: cluster.image).request is request
    assert not authorizer.asked
    for peer_id in (2, NO_NODE):
        with pytest.raises(KafkaError):
            screen(authorizer, own, peer_id, lambda: cluster.image)
    nobody = CreateTopicsRequest(topics)
    with pytest.raises(KafkaError):
        screen(authorizer, nobody, NO_NODE, lambda: cluster.image)


@pytest.mark.req("S4")
def test_topics_are_created_by_who_may_create_them_or_any(cluster: Cluster) -> None:
    names = ("a", "b", "t", "twice", "twice", "__cluster_metadata")
    request = CreateTopicsRequest(tuple(NewTopic(name, 1, 1) for name in names), True, ALICE)
    no_rule = [on_topic(Operation.CREATE, name) for name in set(names) - {"b"}]
    response = outcome_of(cluster, request, on_cluster(Operation.CREATE), *no_rule)
    assert topics_of(response) == [
        ("b", NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ("a", DENIED),
        ("t", DENIED),
    ]
    by_cluster = outcome_of(cluster, request, *no_rule)
    assert topics_of(by_cluster)[:3] == [
        ("a", NONE),
        ("b", NONE),
        ("t", ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[3].message == "Authorization failed."


@pytest.mark.req("S4")
def test_the_configs_of_a_new_topic_are_not_shown_to_everybody(cluster: Cluster) -> None:
    topics = (NewTopic("a", 2, 1), NewTopic("b", 2, 1))
    hidden = on_topic(Operation.DESCRIBE_CONFIGS, "b")
    response = outcome_of(cluster, CreateTopicsRequest(topics, requester=ALICE), hidden)
    assert isinstance(response, CreateTopicsResponse)
    a, b = response.topics
    assert (a.error, a.partitions, a.replication_factor, a.configs_error) == (NONE, 2, 1, NONE)
    assert (b.error, b.partitions, b.replication_factor, b.configs_error) == (NONE, -1, -1, DENIED)
    assert b.topic_id == cluster.topic("b").topic_id


DELETIONS = [
    pytest.param("t", (), NONE, "t", id="allowed"),
    pytest.param("absent", (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "absent", id="absent"),
    pytest.param("t", (Operation.DELETE,), DENIED, "t", id="visible"),
    pytest.param(
        "absent",
        (Operation.DELETE,),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "absent",
        id="visible-absent",
    ),
    pytest.param("t", (Operation.DELETE, Operation.DESCRIBE), DENIED, "t", id="hidden"),
    pytest.param("absent", (Operation.DELETE, Operation.DESCRIBE), DENIED, "absent", id="neither"),
]


@pytest.mark.req("S4")
@pytest.mark.parametrize(("name", "denied", "error", "shown"), DELETIONS)
def test_topics_are_deleted_by_name(
    cluster: Cluster, name: str, denied: tuple[Operation, ...], error: ErrorCode, shown: str
) -> None:
    request = DeleteTopicsRequest(((name, None),), ALICE)
    actions = [on_cluster(Operation.DELETE), *(on_topic(one, name) for one in denied)]
    response = outcome_of(cluster, request, *actions)
    assert topics_of(response) == [(shown, error)]
    assert isinstance(response, DeleteTopicsResponse)
    if error is DENIED:
        assert response.topics == (TopicResult(shown, DENIED),)
        assert cluster.image.topics.by_name("t") is not None


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("denied", "error", "shown"),
    [
        pytest.param((), NONE, "t", id="allowed"),
        pytest.param((Operation.DELETE,), DENIED, "t", id="visible"),
        pytest.param((Operation.DELETE, Operation.DESCRIBE), DENIED, "", id="hidden"),
    ],
)
def test_topics_are_deleted_by_id_and_a_refusal_does_not_say_their_names(
    cluster: Cluster, denied: tuple[Operation, ...], error: ErrorCode, shown: str
) -> None:
    topic_id = cluster.topic("t").topic_id
    request = DeleteTopicsRequest(((None, topic_id), (None, UNKNOWN_ID)), ALICE)
    actions = [on_cluster(Operation.DELETE), *(on_topic(one, "t") for one in denied)]
    response = outcome_of(cluster, request, *actions)
    assert isinstance(response, DeleteTopicsResponse)
    found = {one.topic_id: (one.name, one.error) for one in response.topics}
    assert found == {topic_id: (shown, error), UNKNOWN_ID: ("", ErrorCode.UNKNOWN_TOPIC_ID)}
    assert (cluster.image.topics.by_id(topic_id) is None) == (error is NONE)


@pytest.mark.req("S4")
def test_a_rule_for_the_cluster_deletes_any_topic(cluster: Cluster) -> None:
    hidden = [on_topic(one, "t") for one in (Operation.DELETE, Operation.DESCRIBE)]
    request = DeleteTopicsRequest((("t", None),), ALICE)
    assert topics_of(outcome_of(cluster, request, *hidden)) == [("t", NONE)]


@pytest.mark.req("S4")
def test_partitions_are_added_to_topics_that_may_be_altered(cluster: Cluster) -> None:
    cluster.assign("u", (1,))
    topics = tuple(NewPartitions(name, 2) for name in ("hidden", "t", "u"))
    denied = [on_topic(Operation.ALTER, name) for name in ("hidden", "t")]
    request = CreatePartitionsRequest(topics, requester=ALICE)
    response = outcome_of(cluster, request, *denied)
    assert isinstance(response, AdminResponse)
    assert response.outcomes == (ItemOutcome(DENIED), ItemOutcome(DENIED), ItemOutcome())
    assert len(cluster.topic("t").partitions) == 1
    assert len(cluster.topic("u").partitions) == 2


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("kind", "name", "action", "error"),
    [
        (TOPIC_RESOURCE, "t", on_topic(Operation.ALTER_CONFIGS, "t"), DENIED),
        (TOPIC_RESOURCE, "absent", on_topic(Operation.ALTER_CONFIGS, "absent"), DENIED),
        (
            GROUP_RESOURCE,
            "g",
            Action(Operation.ALTER_CONFIGS, GROUP, "g"),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ),
        *(
            (
                kind,
                name,
                on_cluster(Operation.ALTER_CONFIGS),
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
            for kind, name in ((BROKER_RESOURCE, "1"), (BROKER_RESOURCE, ""), (16, "metrics"))
        ),
    ],
)
@pytest.mark.parametrize("replaces", [True, False])
def test_configs_are_altered_by_the_type_of_their_resource(
    cluster: Cluster, kind: int, name: str, action: Action, error: ErrorCode, *, replaces: bool
) -> None:
    first = ConfigAlteration(kind, name, (), replaces)
    second = ConfigAlteration(BROKER_RESOURCE if kind != BROKER_RESOURCE else 99, "", ())
    request = AlterConfigsRequest((first, second), requester=ALICE)
    authorizer = ListedActions(denied=[action])
    allowed = screen(authorizer, request, BROKER_ID, lambda: cluster.image)
    assert authorizer.asked[0][1][:3] == action[:3]
    if kind == 16:
        assert isinstance(allowed.request, AlterConfigsRequest)
        assert not allowed.request.resources
        return
    assert allowed.request == replace(request, resources=(second,))
    decided = AdminResponse(NONE, "", (ItemOutcome(ErrorCode.INVALID_CONFIG),))
    response = allowed.complete(decided)
    assert isinstance(response, AdminResponse)
    assert response.outcomes == (ItemOutcome(error), ItemOutcome(ErrorCode.INVALID_CONFIG))
    failed = AdminResponse(ErrorCode.UNKNOWN_SERVER_ERROR, "", ())
    assert allowed.complete(failed) is failed


def test_every_request_that_brokers_forward_is_screened() -> None:
    """One that is in neither table would be decided for anybody."""
    item_by_item = {
        CreateTopicsRequest,
        DeleteTopicsRequest,
        CreatePartitionsRequest,
        AlterConfigsRequest,
    }
    tokens = {type(one) for one in TOKENS}
    assert {*get_args(ForwardedRequest)} == item_by_item | {*_OF_THE_CLUSTER} | tokens
