"""Delegation tokens (KIP-48): created, renewed and expired for clients, removed when they are over.

A token is valid until it expires. It is renewed until its longest lifetime is over, by its owner or
by those whom it names as renewers. A renewal never prolongs it by more than
`delegation.token.expiry.time.ms`. All times are those of the active controller's wall clock.

A token that has expired stays until the next check. Nobody can log in with it meanwhile, nor renew
it; brokers compare the time themselves.

Numbers and lengths are bounded, which Apache Kafka does not do: every user may create tokens, and
each node keeps them all in memory.

Sources: KIP-48, KIP-373 (owners other than the requester); Apache Kafka's
DelegationTokenControlManager.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from raftctl.controller._result import ControllerResult, lost_with
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.ids import uuid_text
from raftctl.integers import LONG_MAX
from raftctl.metadata.features import TOKENS_LEVEL, require_level
from raftctl.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from raftctl.metadata.requests.security import (
    CreateDelegationTokenRequest,
    DelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from raftctl.security import Principal
from raftctl.security.delegation_tokens import TokenIndex, TokenSecret, may_renew

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from raftctl.controller._config import ControllerConfig
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests.security import TokenRequest

TOKENS_MAX = 10_000
TOKENS_OF_REQUESTER_MAX = 1_000
RENEWERS_MAX = 100
NAME_LENGTH_MAX = 1_000
"""Characters of a principal."""
_USER = "User"


class _Decided(NamedTuple):
    """What a request makes of a token, and what the response says of it."""

    record: DelegationTokenRecord | RemoveDelegationTokenRecord
    response: DelegationTokenResponse


class TokenControl:
    """Delegation tokens on one controller; it sweeps between `start` and `stop`."""

    def __init__(
        self, config: ControllerConfig, rng: random.Random, wall_ms: Callable[[], int]
    ) -> None:
        """`rng` makes the ids of tokens; `wall_ms` returns the time that they are valid by."""
        self._config = config
        self._rng = rng
        self._wall_ms = wall_ms
        secret = config.token_secret
        self._index = None if secret is None else TokenIndex(secret)
        self._due_ms: int | None = None

    # --- requests -----------------------------------------------------------------------------

    def decide(self, image: MetadataImage, request: TokenRequest) -> ControllerResult:
        """Decide on a request about a token. An error of it is part of the response."""
        try:
            record, response = self._decided(image, request)
        except KafkaError as error:
            return ControllerResult((), DelegationTokenResponse(error.code, error.message))
        records = (record,)
        return ControllerResult(
            records,
            lambda base_offset: replace(response, offset=base_offset),
            lost=lost_with(records),
        )

    def _decided(self, image: MetadataImage, request: TokenRequest) -> _Decided:
        if request.requester is None:
            why = "the request does not say for whom it is made"
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why)
        principal, _ = request.requester
        match request:
            case CreateDelegationTokenRequest():
                return self._create(image, request, principal)
            case RenewDelegationTokenRequest():
                return self._renew(image, request, principal)
            case ExpireDelegationTokenRequest():
                return self._expire(image, request, principal)

    def _enabled(self, image: MetadataImage) -> tuple[TokenIndex, TokenSecret]:
        """Raise KafkaError unless there are tokens; UNSUPPORTED_VERSION names the level."""
        if self._index is None or self._config.token_secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        require_level(image, TOKENS_LEVEL)
        return self._index, self._config.token_secret

    def _create(
        self, image: MetadataImage, request: CreateDelegationTokenRequest, requester: str
    ) -> _Decided:
        """Create a token.

        Errors: INVALID_PRINCIPAL_TYPE for an owner or a renewer that is no user;
        DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION; INVALID_REQUEST for a name that is
        empty or too long, or too many renewers; POLICY_VIOLATION for one token too many.
        """
        owners = () if request.owner is None else (request.owner,)
        named = (*owners, *request.renewers)
        if any(kind != _USER for kind, _ in named):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "only users have delegation tokens")
        _, secret = self._enabled(image)
        if len(request.renewers) > RENEWERS_MAX:
            why = f"a token has {RENEWERS_MAX} renewers at most"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if not all(0 < len(name) <= NAME_LENGTH_MAX for _, name in named):
            why = f"the name of a principal has 1 to {NAME_LENGTH_MAX} characters"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        _check_room(image, requester)
        now_ms = self._wall_ms()
        lifetime_ms = _within(request.max_lifetime_ms, self._config.token_max_lifetime_ms)
        max_ms = _sum(now_ms, lifetime_ms)
        record = DelegationTokenRecord(
            token_id=uuid_text(UUID(int=self._rng.getrandbits(128), version=4)),
            owner=requester if request.owner is None else str(Principal(*request.owner)),
            requester=requester,
            renewers=tuple(dict.fromkeys(str(Principal(*one)) for one in request.renewers)),
            issued_ms=now_ms,
            max_ms=max_ms,
            expires_ms=min(max_ms, _sum(now_ms, self._config.token_expiry_time_ms)),
        )
        invariant(record.token_id not in image.tokens, "no two tokens have the same id")
        return _Decided(record, _response(record, secret.hmac(record.token_id)))

    def _renew(
        self, image: MetadataImage, request: RenewDelegationTokenRequest, requester: str
    ) -> _Decided:
        """Have a token expire later; it may be sooner, as it may be in Apache Kafka.

        Errors: DELEGATION_TOKEN_AUTH_DISABLED, UNSUPPORTED_VERSION, DELEGATION_TOKEN_NOT_FOUND,
        DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH for who may not.
        """
        token, now_ms = self._find(image, request.hmac), self._wall_ms()
        if _is_over(token, now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_renewer(token, requester)
        period_ms = _within(request.period_ms, self._config.token_expiry_time_ms)
        record = replace(token, expires_ms=min(token.max_ms, _sum(now_ms, period_ms)))
        return _Decided(record, _response(record))

    def _expire(
        self, image: MetadataImage, request: ExpireDelegationTokenRequest, requester: str
    ) -> _Decided:
        """Have a token expire at another time; a period below 0 removes it now.

        Errors as of `_renew`; a token that has expired can still be removed.
        """
        token, now_ms = self._find(image, request.hmac), self._wall_ms()
        _check_renewer(token, requester)
        if request.period_ms < 0:
            response = replace(_response(token), expires_ms=now_ms)
            return _Decided(RemoveDelegationTokenRecord(token.token_id), response)
        if _is_over(token, now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        record = replace(token, expires_ms=min(token.max_ms, _sum(now_ms, request.period_ms)))
        return _Decided(record, _response(record))

    def _find(self, image: MetadataImage, given: bytes) -> DelegationTokenRecord:
        index, _ = self._enabled(image)
        token = index.find(image.tokens, given)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    # --- sweep --------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Have the first check made at once: the last controller may have missed one."""
        self._due_ms = None if self._index is None else now_ms

    def stop(self) -> None:
        """Make no more checks."""
        self._due_ms = None

    def deadline_ms(self) -> int | None:
        """Return when to call `sweep` (ms); None while it is stopped or there are no tokens."""
        return self._due_ms

    def sweep(self, image: MetadataImage, now_ms: int) -> list[Record]:
        """Return the records that remove the tokens which are over, if a check is due."""
        if self._due_ms is None or now_ms < self._due_ms:
            return []
        self._due_ms = now_ms + self._config.token_check_interval_ms
        wall_ms = self._wall_ms()
        over = (one for one in sorted(image.tokens) if _is_over(image.tokens[one], wall_ms))
        return [RemoveDelegationTokenRecord(token_id) for token_id in over]


def _is_over(token: DelegationTokenRecord, wall_ms: int) -> bool:
    """Return whether a token has expired."""
    return token.expires_ms < wall_ms


def _check_renewer(token: DelegationTokenRecord, requester: str) -> None:
    if not may_renew(token, requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_room(image: MetadataImage, requester: str) -> None:
    if len(image.tokens) >= TOKENS_MAX:
        why = f"there are {TOKENS_MAX} tokens already: let some expire"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    own = sum(token.requester == requester for token in image.tokens.values())
    if own >= TOKENS_OF_REQUESTER_MAX:
        why = f"{requester} has created {TOKENS_OF_REQUESTER_MAX} tokens already: let some expire"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)


def _within(wanted_ms: int, longest_ms: int) -> int:
    """Return a wanted period within its bound; 0 or less means the bound itself."""
    return min(wanted_ms, longest_ms) if wanted_ms > 0 else longest_ms


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)


def _response(token: DelegationTokenRecord, hmac: bytes = b"") -> DelegationTokenResponse:
    return DelegationTokenResponse(
        ErrorCode.NONE,
        token_id=token.token_id,
        issued_ms=token.issued_ms,
        expires_ms=token.expires_ms,
        max_ms=token.max_ms,
        hmac=hmac,
    )
