"""Delegation tokens through `dispatch`: on which connections, whose, and who may see them."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from broker.protocol.versions import SERVED, ApiKey
from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.security import ANONYMOUS, Action, Principal
from raftctl.security.delegation_tokens import TokenSecret
from tests.kit.authorizing import ListedActions, denying
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, WALL_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.req("S3"), pytest.mark.req("N1")]
KEY = "s3cret of the cluster"
CREATE, RENEW = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
SASL = "SASL_PLAINTEXT"


def new_broker(key: str = KEY) -> ControlledBroker:
    config = ControllerConfig(
        cluster_id=CLUSTER_ID,
        leader_rebalance=False,
        token_secret=TokenSecret(key) if key else None,
        token_max_lifetime_ms=10_000,
        token_expiry_time_ms=4_000,
    )
    return ControlledBroker(config, delegation_token_secret_key=key)


@pytest.fixture
def broker() -> ControlledBroker:
    """Everybody may do everything, by rules."""
    return new_broker()


def who(one: Principal) -> dict[str, str]:
    return {"principal_type": one.type, "principal_name": one.name}


async def create(
    broker: ControlledBroker,
    principal: Principal = ALICE,
    *,
    owner: Principal | None = None,
    renewers: Iterable[Principal] = (),
    version: int = 3,
    **connection: Any,
) -> dict[str, Any]:
    message: dict[str, Any] = {"renewers": [who(one) for one in renewers], "max_lifetime_ms": -1}
    if version >= 3:
        named = (None, None) if owner is None else owner
        message |= {"owner_principal_type": named[0], "owner_principal_name": named[1]}
    on = {"security_protocol": SASL, **connection}
    answer: dict[str, Any] = await ask(broker, CREATE, version, message, principal, **on)
    return answer


async def describe(
    broker: ControlledBroker,
    principal: Principal = ALICE,
    owners: Iterable[Principal] | None = None,
    version: int = 3,
    **connection: Any,
) -> dict[str, Any]:
    message = {"owners": None if owners is None else [who(one) for one in owners]}
    on = {"security_protocol": SASL, **connection}
    answer: dict[str, Any] = await ask(broker, DESCRIBE, version, message, principal, **on)
    return answer


async def change(
    broker: ControlledBroker,
    api: ApiKey,
    token: bytes,
    principal: Principal = ALICE,
    period_ms: int = -1,
    version: int = 2,
    **connection: Any,
) -> tuple[ErrorCode, int]:
    field = "renew_period_ms" if api == RENEW else "expiry_time_period_ms"
    on = {"security_protocol": SASL, **connection}
    answer = await ask(broker, api, version, {"hmac": token, field: period_ms}, principal, **on)
    return ErrorCode(answer["error_code"]), answer["expiry_timestamp_ms"]


async def ids(broker: ControlledBroker, *args: Any, **more: Any) -> set[str]:
    answer = await describe(broker, *args, **more)
    assert answer["error_code"] == 0
    return {one["token_id"] for one in answer["tokens"]}


@pytest.mark.parametrize("version", SERVED[CREATE])
async def test_the_life_of_a_token(broker: ControlledBroker, version: int) -> None:
    made = await create(broker, renewers=[BOB], version=version)
    now_ms = WALL_MS
    token = bytes(made["hmac"])
    assert token == hmac.digest(KEY.encode(), made["token_id"].encode(), hashlib.sha512)
    assert {key: made[key] for key in ("error_code", *who(ALICE))} == {
        "error_code": 0,
        **who(ALICE),
    }
    times = [made[f"{name}_timestamp_ms"] - now_ms for name in ("issue", "expiry", "max")]
    assert times == [0, 4_000, 10_000]
    if version >= 3:
        assert made["token_requester_principal_name"] == "alice"
    broker.cluster.now_ms = 3_000
    older = min(version, 2)
    renewed = await change(broker, RENEW, token, BOB, version=older)
    assert renewed == (ErrorCode.NONE, now_ms + 7_000)
    (seen,) = (await describe(broker, version=version))["tokens"]
    assert bytes(seen.pop("hmac")) == token
    expected = {
        **who(ALICE),
        "issue_timestamp": now_ms,
        "expiry_timestamp": now_ms + 7_000,
        "max_timestamp": now_ms + 10_000,
        "token_id": made["token_id"],
        "renewers": [who(BOB)],
    }
    requester = {f"token_requester_{key}": value for key, value in who(ALICE).items()}
    assert seen == expected | (requester if version >= 3 else {})
    ended = await change(broker, EXPIRE, token, BOB, version=older)
    assert ended == (ErrorCode.NONE, now_ms + 3_000)
    assert (await describe(broker, version=version))["tokens"] == []


NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(
    ("principal", "connection"),
    [
        (ALICE, {"security_protocol": "PLAINTEXT"}),
        (ANONYMOUS, {"security_protocol": "PLAINTEXT"}),
        (ANONYMOUS, {"security_protocol": "SSL"}),
        (ALICE, {"token_id": "a-token"}),
        (ALICE, {"security_protocol": "SASL_SSL", "token_id": "a-token"}),
    ],
)
async def test_who_has_not_authenticated_or_only_by_a_token_gets_none(
    broker: ControlledBroker, principal: Principal, connection: dict[str, Any]
) -> None:
    """Who steals a token must not make another one of it, nor see others."""
    token = bytes((await create(broker, principal))["hmac"])
    before = broker.cluster.image
    refused = await create(broker, principal, owner=BOB, **connection)
    assert refused["error_code"] == NOT_ALLOWED
    assert (refused["token_id"], bytes(refused["hmac"])) == ("", b"")
    assert (refused["principal_name"], refused["expiry_timestamp_ms"]) == ("bob", -1)
    assert await change(broker, RENEW, token, principal, **connection) == (NOT_ALLOWED, -1)
    assert await change(broker, EXPIRE, token, principal, **connection) == (NOT_ALLOWED, -1)
    described = await describe(broker, principal, **connection)
    assert (described["error_code"], described["tokens"]) == (NOT_ALLOWED, [])
    assert broker.cluster.image is before


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
async def test_who_has_authenticated_gets_one(broker: ControlledBroker, protocol: str) -> None:
    made = await create(broker, security_protocol=protocol)
    assert made["error_code"] == 0
    assert await ids(broker, security_protocol=protocol) == {made["token_id"]}


async def test_without_a_key_there_are_none() -> None:
    broker = new_broker("")
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (await create(broker))["error_code"] == disabled
    assert await change(broker, RENEW, b"x") == (disabled, -1)
    assert await change(broker, EXPIRE, b"x") == (disabled, -1)
    assert (await describe(broker))["error_code"] == disabled


async def test_errors_of_the_controller(broker: ControlledBroker) -> None:
    assert (await change(broker, RENEW, b"x"))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    token = bytes((await create(broker))["hmac"])
    assert (await change(broker, RENEW, token, EVE))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    broker.cluster.now_ms = 4_001
    assert await change(broker, RENEW, token) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, -1)
    group = Principal("Group", "g")
    refused = await create(broker, renewers=[group])
    assert refused["error_code"] == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (await create(broker, owner=group))["error_code"] == ErrorCode.INVALID_PRINCIPAL_TYPE


# --- rights ---------------------------------------------------------------------------------------

FOR_BOB = Action(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
SEE_OF_BOB = Action(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")


def see(token_id: str) -> Action:
    return Action(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id)


@pytest.mark.req("S4")
async def test_a_token_for_somebody_else_needs_a_right(broker: ControlledBroker) -> None:
    broker.authorize_by(denying(FOR_BOB))
    refused = await create(broker, owner=BOB)
    assert refused["error_code"] == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused["principal_name"], refused["token_requester_principal_name"]) == (
        "bob",
        "alice",
    )
    assert not broker.cluster.image.tokens
    assert (await create(broker, BOB, owner=BOB))["error_code"] == 0, "everybody may for themselves"
    broker.authorize_by(denying())
    made = await create(broker, owner=BOB)
    assert broker.cluster.image.tokens[made["token_id"]].owner == "User:bob"
    assert (await create(broker, owner=Principal("User", "")))["principal_name"] == "alice"


@pytest.mark.req("S4")
async def test_who_sees_which_tokens(broker: ControlledBroker) -> None:
    own = (await create(broker))["token_id"]
    of_bob = (await create(broker, BOB))["token_id"]
    renewed = (await create(broker, BOB, renewers=[ALICE]))["token_id"]
    requested = (await create(broker, owner=BOB))["token_id"]
    every = {own, of_bob, renewed, requested}
    hidden = ListedActions(denied=[SEE_OF_BOB, *map(see, every)])
    broker.authorize_by(hidden)
    assert await ids(broker) == {own, renewed, requested}
    assert {one.resource_name for _, one in hidden.asked} == {of_bob, "User:bob"}
    assert not any(action.log_if_denied for _, action in hidden.asked), "nobody named these"
    broker.authorize_by(denying(see(of_bob)))
    assert await ids(broker) == every, "who may see the tokens of the owner"
    broker.authorize_by(denying(SEE_OF_BOB))
    assert await ids(broker) == every, "who may see the token"
    assert await ids(broker, ALICE, [BOB]) == {of_bob, renewed, requested}
    assert await ids(broker, ALICE, [ALICE]) == {own, renewed, requested}
    assert await ids(broker, ALICE, [EVE, Principal("Group", "alice")]) == set()
    assert await ids(broker, ALICE, []) == set(), "of nobody"
    broker.authorize_by(denying(SEE_OF_BOB, see(of_bob), see(renewed), see(requested)))
    assert await ids(broker, EVE, [BOB]) == set()
    assert await ids(broker, EVE) == {own}


async def test_without_an_authorizer_everybody_may() -> None:
    broker = new_broker()
    broker.controller_authorizer = None
    broker.context = replace(broker.context, authorizer=None)
    made = await create(broker, owner=BOB)
    assert await ids(broker, EVE) == {made["token_id"]}


async def test_nothing_of_a_token_but_its_id_and_owner_is_in_a_log(
    broker: ControlledBroker,
) -> None:
    token = bytes((await create(broker))["hmac"])
    await change(broker, RENEW, token, EVE)
    await describe(broker)
    shown = json.dumps(broker.logged.entries, default=repr) + repr(broker.context)
    assert KEY not in shown
    assert repr(token)[2:20] not in shown
    assert token.hex()[:20] not in shown
