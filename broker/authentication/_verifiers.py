"""What clients are verified with: the configuration, the newest image, and an issuer's keys."""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.apis.handler import HangUpError, Reply
from broker.protocol.codec import decode_body, decode_header, encode_response
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import SaslStage, SaslState
from raftctl.errors import ConfigError, ErrorCode, invariant
from raftctl.security import Principal
from raftctl.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    Credentials,
    Login,
    SaslError,
    UnknownKeyError,
    make_server,
    plain_passwords,
)
from raftctl.security.sasl.scram import SCRAM_IDS, ScramCredential, ScramKeys
from raftctl.security.sasl.tokens import (
    IssuerKeys,
    TokenRules,
    TokenValidator,
    check_url,
    read_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config import NodeConfig
    from raftctl.config.security import OAuthBearerSettings, SaslSettings
    from raftctl.metadata.image import MetadataImage
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl import ServerMechanism


# --- the state of a connection --------------------------------------------------------------------


if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.apis import Response, Serve
    from broker.protocol.codec import Frame, Message, RequestHeader
    from broker.request_context import ClientConnection, RequestContext
    from raftctl.config.security import SaslSettings

    Served = Reply[Response] | Response

_HANDSHAKE = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
RENEWAL_SECONDS_MIN = 1.0
"""Between two renewals of a session: each costs more than most requests."""
_BEFORE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


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
    ) -> None:
        """`serve` takes the requests of connections that have authenticated.

        `failure_delay_ms` is `connection.failed.authentication.delay.ms`.
        """
        self._settings = settings
        self._verifiers = verifiers
        self._serve = serve
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
        principal = Principal("User", login.name)
        if sasl.is_renewal and principal != client.principal:
            text = "the principal of a connection cannot change"
            raise SaslError(text, text)
        client.principal = principal
        sasl.stage, sasl.exchange = SaslStage.REQUESTS, None
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


# --- verifiers ------------------------------------------------------------------------------------


JWKS_KEY = "sasl.oauthbearer.jwks.endpoint.url"
_REMEDY = "write the issuer's public keys there, as a JWKS"


class Verifiers:
    """Those of one listener. `begin` starts an exchange with one client."""

    def __init__(
        self,
        config: NodeConfig,
        settings: SaslSettings,
        image: Callable[[], MetadataImage],
        runtime: Runtime,
        cluster_id: str,
    ) -> None:
        """`settings` are those of the listener; `image` returns the newest one.

        ConfigError if OAUTHBEARER is enabled and its library is not installed.
        """
        self._image = image
        self._runtime = runtime
        self._issuer: _Issuer | None = None
        if (bearer := settings.mechanisms.get(OAUTHBEARER)) is not None:
            self._issuer = _Issuer(bearer.oauthbearer, runtime)
        plain = settings.mechanisms.get(PLAIN)
        self._credentials = Credentials(
            plain_passwords(None if plain is None else plain.jaas),
            self._find_scram,
            _scram_secret(config, cluster_id),
            self._validate_token,
        )

    def begin(self, mechanism: str) -> ServerMechanism:
        """Return the server's side of an exchange."""
        if mechanism == OAUTHBEARER and self._issuer is not None:
            self._issuer.keys.refresh_if_old()
        return make_server(mechanism, self._credentials, self._runtime.uuid().hex)

    async def start(self) -> None:
        """Fetch the keys of the issuer, so that the first client need not wait for them.

        ConfigError if they are in a file that has none. A server that cannot be reached may be
        there later: until then nobody logs in with a token.
        """
        if self._issuer is not None:
            await self._issuer.keys.refresh()
            if self._issuer.url.startswith("file:") and not self._issuer.keys.are_known:
                raise ConfigError(f"{JWKS_KEY}={self._issuer.url}: no keys are there: {_REMEDY}")

    async def refresh_keys(self) -> None:
        """Fetch the keys of the issuer again, unless that was tried a moment ago."""
        if self._issuer is not None:
            await self._issuer.keys.refresh()

    def close(self) -> None:
        """End the worker that fetches keys."""
        if self._issuer is not None:
            self._issuer.worker.close()

    def _find_scram(self, mechanism: str, user: str, by_token: bool) -> ScramCredential | None:
        record = None if by_token else self._image().scram.get((user, SCRAM_IDS[mechanism]))
        if record is None:
            return None
        keys = ScramKeys(record.stored_key, record.server_key)
        return ScramCredential(record.salt, record.iterations, keys, Login(user))

    def _validate_token(self, token: str, now_ms: int) -> Login:
        assert self._issuer is not None, "OAUTHBEARER is enabled with an issuer"
        return self._issuer.validator.validate(token, now_ms)


class _Issuer:
    """The issuer of the tokens of one listener."""

    def __init__(self, settings: OAuthBearerSettings, runtime: Runtime) -> None:
        url = self.url = settings.jwks_endpoint_url or ""
        if importlib.util.find_spec("joserfc") is None:
            raise ConfigError(
                "sasl.enabled.mechanisms has OAUTHBEARER, which needs the library joserfc: "
                "install raftctl[oauth]"
            )
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigError(f"{JWKS_KEY}={url}: {error}") from error
        self.worker = runtime.worker("issuer-keys")
        self.keys = IssuerKeys(
            lambda: self.worker.submit(partial(read_document, url, runtime.files)),
            asyncio.get_running_loop().time,
            runtime.log.bind(part="authentication", url=url),
            refresh_seconds=settings.jwks_endpoint_refresh_ms / 1000,
            pause_seconds=settings.jwks_endpoint_retry_backoff_max_ms / 1000,
        )
        rules = TokenRules(
            settings.expected_audience,
            settings.expected_issuer,
            settings.clock_skew_s,
            settings.sub_claim_name,
        )
        self.validator = TokenValidator(rules, self.keys.find)


def _scram_secret(config: NodeConfig, cluster_id: str) -> bytes:
    """Return what makes the salts of unknown users: the same on all brokers, for a long time.

    Salts that differed between two brokers would reveal that nobody has the name. The password of
    the brokers is known to them alone; without one it is the cluster's id, which no client learns
    before it has authenticated.
    """
    sasl = config.listener_security(config.inter_broker_listener).sasl
    login = None if sasl is None or sasl.login is None else sasl.login.jaas
    password = (login and login.option("password")) or ""
    return hmac.digest(cluster_id.encode(), password.encode(), "sha256")
