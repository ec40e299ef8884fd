"""DescribeUserScramCredentials (from this broker's image) and their alteration (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.apis.administration._forwarding import (
    forward,
    own_message,
    refusal_of,
    result_of,
)
from broker.apis.handler import authorization
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.requests.security import AlterScramRequest, ScramDeletion, ScramUpsertion

if TYPE_CHECKING:
    from broker.apis.handler import ApiContext
    from broker.protocol.codec import Request
    from broker.protocol.messages import security as wire
    from raftctl.metadata.image import MetadataImage

_TIMEOUT_MS = 30_000
"""The request names none."""


def handle_describe(
    context: ApiContext, request: Request[wire.DescribeUserScramCredentialsRequest]
) -> wire.DescribeUserScramCredentialsResponse:
    """Answer with mechanisms and iterations of the users named, or all; never a key or salt."""
    authorization.require(context, request, Operation.DESCRIBE, ResourceType.CLUSTER)
    image = context.metadata.image
    asked = [one["name"] for one in request.body["users"] or ()]
    named = Counter(asked)
    users = list(named) if asked else sorted({user for user, _ in image.scram})
    return {
        "error_code": ErrorCode.NONE,
        "results": [_described(image, user, twice=named[user] > 1) for user in users],
    }


def refuse_describe(
    _context: ApiContext,
    request: Request[wire.DescribeUserScramCredentialsRequest],
    error: KafkaError,
) -> wire.DescribeUserScramCredentialsResponse:
    """Return the error for all, and for each user that is named, without the name."""
    message = own_message(error)
    refused: wire.DescribeUserScramCredentialsResult = {
        "user": "",
        "error_code": error.code,
        "error_message": message,
        "credential_infos": (),
    }
    return {
        "error_code": error.code,
        "error_message": message,
        "results": [refused for _ in request.body["users"] or ()],
    }


def _described(
    image: MetadataImage, user: str, *, twice: bool
) -> wire.DescribeUserScramCredentialsResult:
    infos: list[wire.CredentialInfo] = [
        {"mechanism": mechanism, "iterations": image.scram[owner, mechanism].iterations}
        for owner, mechanism in sorted(image.scram)
        if owner == user
    ]
    error = ErrorCode.NONE
    message: str | None = None
    # Each of these is a user's own error (KIP-554); Apache Kafka answers the other users as usual.
    if twice:
        error, message = ErrorCode.DUPLICATE_RESOURCE, "The user is named twice"
    elif not infos:
        error, message = ErrorCode.RESOURCE_NOT_FOUND, "The user has no credentials"
    return {
        "user": user,
        "error_code": error,
        "error_message": message,
        "credential_infos": () if error else infos,
    }


async def handle_alter(
    context: ApiContext, request: Request[wire.AlterUserScramCredentialsRequest]
) -> wire.AlterUserScramCredentialsResponse:
    """Set and remove credentials, each user on their own (KIP-554)."""
    alter = _request(request)
    outcomes = await forward(context, request, alter, _TIMEOUT_MS)
    pairs = zip(alter.users(), outcomes, strict=True)
    return {"results": [{"user": user, **result_of(outcome)} for user, outcome in pairs]}


def refuse_alter(
    _context: ApiContext, request: Request[wire.AlterUserScramCredentialsRequest], error: KafkaError
) -> wire.AlterUserScramCredentialsResponse:
    """Return the same error for each user."""
    return {"results": [{"user": user, **refusal_of(error)} for user in _request(request).users()]}


def _request(request: Request[wire.AlterUserScramCredentialsRequest]) -> AlterScramRequest:
    return AlterScramRequest(
        tuple(ScramDeletion(one["name"], one["mechanism"]) for one in request.body["deletions"]),
        tuple(
            ScramUpsertion(
                one["name"],
                one["mechanism"],
                one["iterations"],
                bytes(one["salt"]),
                bytes(one["salted_password"]),
            )
            for one in request.body["upsertions"]
        ),
    )
