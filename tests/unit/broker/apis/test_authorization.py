"""The questions that handlers ask an authorizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.apis.handler import authorization
from broker.protocol.codec import Request
from broker.request_context import ClientConnection, RequestContext
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.security import Action, Principal, Requester
from tests.kit.authorizing import ListedActions
from tests.unit.broker.server.fakes import FakeBroker

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE = Principal("User", "alice")


def asked_by_alice() -> Request[dict[str, object]]:
    connection = ClientConnection(host="10.0.0.7", principal=ALICE)
    return Request(3, 12, 1, "client", {}, RequestContext(connection))


async def test_without_an_authorizer_everything_is_allowed() -> None:
    context, request = FakeBroker().context, asked_by_alice()
    assert authorization.is_allowed(context, request, Operation.WRITE, TOPIC, "t")
    authorization.require(context, request, Operation.ALTER, CLUSTER)
    assert authorization.authorized_operations(context, request, TOPIC, "t") == 0b1101_1111_1000
    every = authorization.authorized_operations(context, request, CLUSTER, CLUSTER_NAME)
    assert every == 0b1_1111_1010_0000


@pytest.mark.req("S4")
async def test_an_authorizer_is_asked_with_the_principal_and_the_host() -> None:
    denied = Action(Operation.WRITE, TOPIC, "t")
    authorizer = ListedActions(denied=[denied])
    context = replace(FakeBroker().context, authorizer=authorizer)
    request = asked_by_alice()
    assert not authorization.is_allowed(context, request, *denied[:3])
    assert authorizer.asked == [(Requester(ALICE, "10.0.0.7"), denied)]
    names = ["t", "u", "u"]
    assert authorization.allowed_names(context, request, Operation.WRITE, TOPIC, names) == {"u"}
    assert len(authorizer.asked) == 3
    operations = authorization.authorized_operations(context, request, TOPIC, "t")
    assert operations == 0b1101_1111_1000 - (1 << Operation.WRITE)
    # No line of the audit log says that somebody was refused what nobody has asked for.
    assert {one[3:] for _, one in authorizer.asked[3:]} == {(False, False)}
    authorization.allowed_names(
        context, request, Operation.WRITE, TOPIC, ["t"], log_if_denied=False
    )
    assert authorizer.asked[-1][1][3:] == (True, False)


@pytest.mark.req("S4")
@pytest.mark.parametrize(
    ("resource_type", "error"),
    [
        (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ResourceType.DELEGATION_TOKEN, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
async def test_each_type_of_resource_has_its_error(
    resource_type: ResourceType, error: ErrorCode
) -> None:
    denied = Action(Operation.ALL, resource_type, CLUSTER_NAME)
    context = replace(FakeBroker().context, authorizer=ListedActions(denied=[denied]))
    with pytest.raises(KafkaError) as raised:
        authorization.require(context, asked_by_alice(), Operation.ALL, resource_type)
    assert raised.value.code == error
