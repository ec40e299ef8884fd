"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

A client that has authenticated may have tokens, unless it has done so with a token: a stolen one
must not make others that outlive it. DescribeDelegationToken answers from this broker's image.

A token's id and owner are no secrets. Its HMAC is: it appears in answers alone.

Sources: KIP-48, KIP-373 (tokens for other users); Apache Kafka's KafkaApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.apis.administration._forwarding import ask
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.security import (
    CreateDelegationTokenRequest,
    DelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from raftctl.runtime import Slices
from raftctl.security import ANONYMOUS, Principal
from raftctl.security.delegation_tokens import TokenSecret, concerned

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import security as wire
    from raftctl.metadata.records import DelegationTokenRecord

_TIMEOUT_MS = 30_000
"""The requests name none."""


def _check_connection(request: Request[Any]) -> None:
    """Raise KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) unless the client has authenticated.

    By itself, and not with a token.
    """
    connection = request.context.connection
    is_open = connection.security_protocol == "PLAINTEXT"
    is_one_way = connection.security_protocol == "SSL" and connection.principal == ANONYMOUS
    if is_open or is_one_way or connection.token_id is not None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


# --- changes --------------------------------------------------------------------------------------


async def handle_create(
    context: ApiContext, request: Request[wire.CreateDelegationTokenRequest]
) -> wire.CreateDelegationTokenResponse:
    """Create a token for the requester, or for the owner whom the request names."""
    _check_connection(request)
    body = request.body
    renewers = tuple((one["principal_type"], one["principal_name"]) for one in body["renewers"])
    create = CreateDelegationTokenRequest(_owner(request), renewers, body["max_lifetime_ms"])
    made = await ask(context, request, create, DelegationTokenResponse, _TIMEOUT_MS)
    return _created(request, made)


def refuse_create(
    _context: ApiContext, request: Request[wire.CreateDelegationTokenRequest], error: KafkaError
) -> wire.CreateDelegationTokenResponse:
    """Return the error, and whose token it would be."""
    return _created(request, DelegationTokenResponse(error.code))


def _created(
    request: Request[wire.CreateDelegationTokenRequest], made: DelegationTokenResponse
) -> wire.CreateDelegationTokenResponse:
    requester = request.context.connection.principal
    owner = Principal(*(_owner(request) or requester))
    return {
        "error_code": made.error,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp_ms": made.issued_ms,
        "expiry_timestamp_ms": made.expires_ms,
        "max_timestamp_ms": made.max_ms,
        "token_id": made.token_id,
        "hmac": made.hmac,
    }


def _owner(request: Request[wire.CreateDelegationTokenRequest]) -> tuple[str, str] | None:
    # Versions before 3 cannot name one (KIP-373); as in Apache Kafka, an empty name is none.
    name = request.body.get("owner_principal_name")
    return (request.body.get("owner_principal_type") or "", name) if name else None


async def handle_renew(
    context: ApiContext, request: Request[wire.RenewDelegationTokenRequest]
) -> wire.RenewDelegationTokenResponse:
    """Have a token expire later."""
    body = request.body
    renew = RenewDelegationTokenRequest(bytes(body["hmac"]), body["renew_period_ms"])
    return await _change(context, request, renew)


async def handle_expire(
    context: ApiContext, request: Request[wire.ExpireDelegationTokenRequest]
) -> wire.ExpireDelegationTokenResponse:
    """Have a token expire at another time, or at once."""
    body = request.body
    expire = ExpireDelegationTokenRequest(bytes(body["hmac"]), body["expiry_time_period_ms"])
    return await _change(context, request, expire)


async def _change(
    context: ApiContext,
    request: Request[wire.RenewDelegationTokenRequest | wire.ExpireDelegationTokenRequest],
    change: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
) -> wire.RenewDelegationTokenResponse:
    """Have the controller make the change; both answers are the same."""
    _check_connection(request)
    changed = await ask(context, request, change, DelegationTokenResponse, _TIMEOUT_MS)
    return {"error_code": ErrorCode.NONE, "expiry_timestamp_ms": changed.expires_ms}


def refuse_change(
    _context: ApiContext,
    _request: Request[wire.RenewDelegationTokenRequest | wire.ExpireDelegationTokenRequest],
    error: KafkaError,
) -> wire.RenewDelegationTokenResponse:
    """Return the error of a renewal or an expiry, which has no time."""
    return {"error_code": error.code, "expiry_timestamp_ms": -1}


# --- description ----------------------------------------------------------------------------------


async def handle_describe(
    context: ApiContext, request: Request[wire.DescribeDelegationTokenRequest]
) -> wire.DescribeDelegationTokenResponse:
    """Answer with the tokens that the requester may see, of the owners named or of all.

    Everybody sees the tokens that they own, may renew or have created. Others need DESCRIBE on the
    token, or DESCRIBE_TOKENS on its owner.
    """
    _check_connection(request)
    secret = context.token_secret
    if secret is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = request.body["owners"]
    named = None
    if owners is not None:
        named = {str(Principal(one["principal_type"], one["principal_name"])) for one in owners}
    tokens = context.metadata.image.tokens
    found: list[wire.DescribedDelegationToken] = []
    turns = Slices()
    for token_id in sorted(tokens):
        token = tokens[token_id]
        is_named = named is None or not named.isdisjoint(concerned(token))
        if is_named and _may_see(context, request, token, is_asked=named is not None):
            found.append(_described(secret, token))
        await turns.rest()
    return {"error_code": ErrorCode.NONE, "tokens": found}


def _may_see(
    context: ApiContext, request: Request[Any], token: DelegationTokenRecord, *, is_asked: bool
) -> bool:
    if str(request.context.connection.principal) in concerned(token):
        return True
    # Nobody names a token by its id here, so a refusal is not in the audit log.
    return authorization.is_allowed(
        context,
        request,
        Operation.DESCRIBE,
        ResourceType.DELEGATION_TOKEN,
        token.token_id,
        log_if_denied=False,
    ) or authorization.is_allowed(
        context,
        request,
        Operation.DESCRIBE_TOKENS,
        ResourceType.USER,
        token.owner,
        log_if_denied=is_asked,
    )


def _described(secret: TokenSecret, token: DelegationTokenRecord) -> wire.DescribedDelegationToken:
    owner, requester = Principal.parse(token.owner), Principal.parse(token.requester)
    renewers = map(Principal.parse, token.renewers)
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": secret.hmac(token.token_id),
        "renewers": [{"principal_type": one.type, "principal_name": one.name} for one in renewers],
    }
