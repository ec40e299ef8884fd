"""The requests of a connection before it has authenticated, and when it does so again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.apis.handler import HangUpError, Reply
from broker.protocol.codec import decode_body, decode_header, encode_response
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import SaslStage, SaslState
from raftctl.errors import ErrorCode, invariant
from raftctl.security import Principal
from raftctl.security.sasl import SaslError, UnknownKeyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.apis import Response, Serve
    from broker.authentication._verifiers import Verifiers
    from broker.protocol.codec import Frame, Message, RequestHeader
    from broker.request_context import ClientConnection, RequestContext
    from raftctl.config.security import SaslSettings
    from raftctl.security.sasl import Login

    Served = Reply[Response] | Response

_HANDSHAKE = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
RENEWAL_SECONDS_MIN = 1.0
"""Between two renewals of a session: each costs more than most requests."""
_BEFORE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class OnLogin(Protocol):
    """Counts logins."""

    def __call__(self, *, succeeded: bool) -> None:
        """Count one."""


class _Answers(NamedTuple):
    """The two answers to a token, in the form in which it came."""

    success: Callable[[bytes, int], Response]
    """From a challenge and the lifetime of the session in ms; 0: none, or not yet."""
    failure: Callable[[str], Response]
    """From what the client may read."""


class Authenticator:
    """Serves the frames of the connections of one listener; `serve` is their way in."""

    def __init__(
        self,
        settings: SaslSettings,
        verifiers: Verifiers,
        serve: Serve,
        *,
        wall_ms: Callable[[], int],
        failure_delay_ms: int,
        on_login: OnLogin,
    ) -> None:
        """`serve` takes the requests of connections that have authenticated.

        `failure_delay_ms` is `connection.failed.authentication.delay.ms`. `on_login` is called at
        the end of each login.
        """
        self._settings = settings
        self._verifiers = verifiers
        self._serve = serve
        self._on_login = on_login
        self._wall_ms = wall_ms
        self._failure_delay = failure_delay_ms / 1000
        self._loop = asyncio.get_running_loop()

    def serve(self, frame: Frame, context: RequestContext) -> Served:
        """Answer a frame. Raises MalformedError and HangUpError, which end the connection."""
        client = context.connection
        sasl = _state(client)
        if sasl.has_authenticated and not self._begins_renewal(frame, client, sasl):
            expires_at = client.session_expires_at
            if expires_at is not None and self._loop.time() >= expires_at:
                raise HangUpError(f"the session of {client.principal} has expired")
            token_id = client.token_id
            if token_id is not None and not self._verifiers.has_token(token_id):
                raise HangUpError(f"the delegation token of {client.principal} is removed")
            return self._serve(frame, context)
        sasl = _state(client)
        invariant(not sasl.has_authenticated, "no request slips through")
        if sasl.takes_raw_tokens:
            answers = _Answers(lambda challenge, _: _raw(challenge), lambda _: None)
            return self._take_token(client, bytes(frame), answers)
        return self._take_request(frame, context, sasl)

    def _begins_renewal(self, frame: Frame, client: ClientConnection, old: SaslState) -> bool:
        """Whether the frame is the SaslHandshake that begins another authentication (KIP-368).

        One that comes too soon is served like any request: ILLEGAL_SASL_STATE.
        """
        now = self._loop.time()
        if not frame.startswith(_HANDSHAKE):
            return False
        if old.is_renewal and now < old.begun_at + RENEWAL_SECONDS_MIN:
            return False
        client.sasl = SaslState(
            old.frame_bytes_max,
            SaslStage.HANDSHAKE,
            mechanism=old.mechanism,
            is_renewal=True,
            begun_at=now,
        )
        return True

    # --- requests before authentication -----------------------------------------------------------

    def _take_request(self, frame: Frame, context: RequestContext, sasl: SaslState) -> Served:
        header, position = decode_header(frame)
        context.identify(header.api_key, header.version, header.correlation_id, header.client_id)
        key, client = header.api_key, context.connection
        tokens_follow = sasl.stage is SaslStage.TOKENS
        if tokens_follow and key != ApiKey.SASL_AUTHENTICATE:
            refusal = None if sasl.exchange is None else sasl.exchange.refusal
            why = "" if refusal is None else f": {sasl.mechanism} failed: {refusal}"
            raise HangUpError(f"api {key} before the end of authentication{why}")
        if key not in _BEFORE:
            raise HangUpError(f"api {key} before authentication")
        if header.version not in SERVED[key] and key != ApiKey.API_VERSIONS:
            raise HangUpError(f"api {key} version {header.version} is not supported")
        if tokens_follow:
            body = decode_body(frame, header, position, context).body
            return self._take_token(client, bytes(body["auth_bytes"]), _answers(header))
        if key == ApiKey.SASL_HANDSHAKE:
            body = decode_body(frame, header, position, context).body
            return self._take_handshake(client, sasl, header, body["mechanism"])
        if key != ApiKey.API_VERSIONS or sasl.stage is not SaslStage.VERSIONS_OR_HANDSHAKE:
            raise HangUpError(f"api {key}, while the connection must send {sasl.stage.value}")
        if header.version in SERVED[key]:
            # Refused, it is sent once more in a version that is served (KIP-511).
            sasl.stage = SaslStage.HANDSHAKE
        return self._serve(frame, context)

    def _take_handshake(
        self, client: ClientConnection, sasl: SaslState, header: RequestHeader, mechanism: str
    ) -> Served:
        enabled = list(self._settings.mechanisms)
        error = ErrorCode.NONE
        if mechanism not in enabled:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = _encoded(header, {"error_code": error, "mechanisms": enabled})
        if error:
            return self._fail(client, answer, "the client asks for a mechanism that is not enabled")
        sasl.stage = SaslStage.TOKENS
        sasl.has_headers = header.version > 0
        if not sasl.is_renewal or mechanism == sasl.mechanism:
            sasl.exchange = self._verifiers.begin(mechanism)
        sasl.mechanism = mechanism
        return answer

    # --- tokens -----------------------------------------------------------------------------------

    def _take_token(
        self, client: ClientConnection, token: bytes, answers: _Answers, *, again: bool = False
    ) -> Served:
        """Answer a token; `again` if the keys of the issuer were fetched for it."""
        sasl = _state(client)
        exchange = sasl.exchange
        if exchange is None:
            text = "a session is renewed by the mechanism that it began with"
            return self._fail(client, answers.failure(text), text)
        try:
            challenge = exchange.evaluate(token, self._wall_ms())
            lifetime_ms = 0
            if exchange.login is not None:
                lifetime_ms = self._succeed(client, sasl, exchange.login)
            return answers.success(challenge, lifetime_ms)
        except UnknownKeyError as error:
            if not again:
                return Reply.run(self._after_refresh(client, token, answers))
            return self._fail_login(client, sasl, answers, error)
        except SaslError as error:
            return self._fail_login(client, sasl, answers, error)

    async def _after_refresh(
        self, client: ClientConnection, token: bytes, answers: _Answers
    ) -> Response:
        await self._verifiers.refresh_keys()
        served = self._take_token(client, token, answers, again=True)
        return await served.wait() if isinstance(served, Reply) else served

    def _succeed(self, client: ClientConnection, sasl: SaslState, login: Login) -> int:
        """Begin the session, and return its lifetime in ms; 0 if it has no end.

        SaslError if a renewal would change the principal.
        """
        principal = Principal.of_user(login.name)
        if sasl.is_renewal and principal != client.principal:
            text = "the principal of a connection cannot change"
            raise SaslError(text, text)
        client.principal, client.token_id = principal, login.token_id
        sasl.stage, sasl.exchange = SaslStage.REQUESTS, None
        self._on_login(succeeded=True)
        lifetime_ms = self._lifetime_ms(sasl.mechanism, login)
        client.session_expires_at = None
        if lifetime_ms is not None:
            client.session_expires_at = self._loop.time() + lifetime_ms / 1000
        return lifetime_ms or 0

    def _lifetime_ms(self, mechanism: str, login: Login) -> int | None:
        bounds = []
        if login.expires_ms is not None:
            bounds.append(max(0, login.expires_ms - self._wall_ms()))
        if longest_ms := self._settings.mechanisms[mechanism].max_reauth_ms:
            bounds.append(longest_ms)
        return min(bounds, default=None)

    # --- failures ---------------------------------------------------------------------------------

    def _fail_login(
        self, client: ClientConnection, sasl: SaslState, answers: _Answers, error: SaslError
    ) -> Served:
        text = error.answer or f"{sasl.mechanism} failed: the credentials are not valid"
        return self._fail(client, answers.failure(text), f"{sasl.mechanism} failed: {error}")

    def _fail(self, client: ClientConnection, answer: Response, reason: str) -> Served:
        """End the connection once this answer has left, which waits a while.

        Only this connection waits. It makes guessing slow, and clients that try again and again.
        """
        sasl = _state(client)
        sasl.stage, sasl.exchange = SaslStage.NOTHING, None
        client.refusal = reason
        self._on_login(succeeded=False)
        return Reply.run(self._later(answer)) if self._failure_delay else answer

    async def _later(self, answer: Response) -> Response:
        await asyncio.sleep(self._failure_delay)
        return answer


def _state(client: ClientConnection) -> SaslState:
    assert client.sasl is not None, "a connection of a SASL listener has a state"
    return client.sasl


def _answers(header: RequestHeader) -> _Answers:
    def success(challenge: bytes, lifetime_ms: int) -> Response:
        fields = {"error_code": 0, "error_message": None, "auth_bytes": challenge}
        return _encoded(header, {**fields, "session_lifetime_ms": lifetime_ms})

    def failure(text: str) -> Response:
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return _encoded(header, {"error_code": code, "error_message": text, "auth_bytes": b""})

    return _Answers(success, failure)


def _encoded(header: RequestHeader, message: Message) -> Response:
    return encode_response(header.api_key, header.version, header.correlation_id, message)


def _raw(token: bytes) -> Response:
    return [len(token).to_bytes(4, "big") + token]
