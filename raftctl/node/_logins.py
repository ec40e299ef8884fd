"""Logins at a controllers' listener that speaks SASL: of nodes over RPC, of clients over HTTP.

A node logs in by the messages of the mechanism before its hello. An HTTP client has no connection
of its own, so each request has the credentials: `Basic` for those of PLAIN and SCRAM, `Bearer` for
a token. To verify a password of SCRAM takes milliseconds. So it is done on a worker, and a password
that was right is known by a keyed hash while the credential stays.

The first nodes log in before there is metadata. The credentials of SCRAM are then those with which
the disk was formatted (KIP-900), or those of the newest snapshot.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pydantic import SecretStr

from raftctl.config.security import Jaas
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    Credentials,
    Login,
    SaslError,
    UnknownKeyError,
    make_client,
    make_server,
    plain_passwords,
)
from raftctl.security.sasl.scram import SCRAM_IDS, ScramCredential, stand_in_secret
from raftctl.security.sasl.tokens import TokenIssuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.config.security import SaslSettings
    from raftctl.metadata.records import UserScramCredentialRecord
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl import ServerMechanism

    FindScram = Callable[[str, int], "UserScramCredentialRecord | None"]
    """The credential of a user, by the number of the mechanism."""

T = TypeVar("T")

KNOWN_MAX = 1_024
"""Passwords that are known to be right."""
WAITING_MAX = 64
"""Passwords that wait to be verified."""
REFUSED = "the credentials are not valid"


class _Known(NamedTuple):
    """A password that was right."""

    login: Login
    mechanism: str
    credential: UserScramCredentialRecord | None
    """Of SCRAM: the password counts as long as the user has this one."""


class ControllerLogins:
    """Those of one listener."""

    def __init__(
        self,
        settings: SaslSettings,
        find_scram: FindScram,
        runtime: Runtime,
        cluster_id: str,
    ) -> None:
        """ConfigError if OAUTHBEARER is enabled and its library is not installed."""
        self._find_scram = find_scram
        self._runtime = runtime
        self.mechanisms = tuple(settings.mechanisms)
        self._settings = settings
        plain = settings.mechanisms.get(PLAIN)
        bearer = settings.mechanisms.get(OAUTHBEARER)
        self._issuer = None if bearer is None else TokenIssuer(bearer.oauthbearer, runtime)
        self._credentials = Credentials(
            plain_passwords(None if plain is None else plain.jaas),
            self._find,
            stand_in_secret(settings, cluster_id),
            self._validate,
        )
        self._worker = runtime.worker("passwords")
        self._waiting = 0
        self._known: dict[bytes, _Known] = {}
        self._known_key = runtime.uuid().bytes
        """Makes what passwords are known by."""

    async def start(self) -> None:
        """Fetch the keys of the issuer of tokens; ConfigError if their file has none."""
        if self._issuer is not None:
            await self._issuer.start()

    def close(self) -> None:
        """End the workers."""
        self._worker.close()
        if self._issuer is not None:
            self._issuer.close()

    # --- of nodes ---------------------------------------------------------------------------------

    def begin(self, mechanism: str) -> ServerMechanism:
        """Return the server's side of an exchange.

        KafkaError: UNSUPPORTED_SASL_MECHANISM if it is not enabled.
        """
        if mechanism not in self.mechanisms:
            why = f"the listener's mechanisms are {', '.join(self.mechanisms)}"
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, why)
        if mechanism == OAUTHBEARER and self._issuer is not None:
            self._issuer.refresh_if_old()
        return make_server(mechanism, self._credentials, self._runtime.uuid().hex)

    async def evaluate(self, exchange: ServerMechanism, response: bytes) -> bytes:
        """Return the challenge to a response. SaslError ends the exchange."""
        return await self._with_newest_keys(
            lambda: exchange.evaluate(response, self._runtime.wall_ms())
        )

    async def _with_newest_keys(self, verify: Callable[[], T]) -> T:
        """Verify; once more with newer keys of the issuer if a token's is unknown."""
        try:
            return verify()
        except UnknownKeyError:
            if self._issuer is None:
                raise
            await self._issuer.refresh()
            return verify()

    def lifetime_s(self, mechanism: str, login: Login) -> float | None:
        """Return how long a session lasts (KIP-368); None: as long as its connection."""
        bounds = []
        if login.expires_ms is not None:
            bounds.append(max(0, login.expires_ms - self._runtime.wall_ms()))
        if longest_ms := self._settings.mechanisms[mechanism].max_reauth_ms:
            bounds.append(longest_ms)
        return min(bounds) / 1000 if bounds else None

    # --- of clients over HTTP ---------------------------------------------------------------------

    async def log_in(self, authorization: str) -> Login:
        """Return who logs in by the value of an `Authorization` header.

        SaslError if nobody does. KafkaError: THROTTLING_QUOTA_EXCEEDED if too many passwords wait
        to be verified.
        """
        scheme, _, given = authorization.strip().partition(" ")
        match scheme.lower():
            case "basic":
                return await self._log_in_by_password(given.strip())
            case "bearer" if self._issuer is not None:
                self._issuer.refresh_if_old()
                token = given.strip()
                return await self._with_newest_keys(
                    lambda: self._validate(token, self._runtime.wall_ms())
                )
        raise SaslError(f"no login by the scheme {scheme:.20} here")

    async def _log_in_by_password(self, encoded: str) -> Login:
        digest = hmac.digest(self._known_key, encoded.encode(), "sha256")
        known = self._known.get(digest)
        if known is not None and known.credential == self._record(known.mechanism, known.login):
            return known.login
        user, password = _user_and_password(encoded)
        if self._waiting >= WAITING_MAX:
            why = "too many passwords wait to be verified: ask again"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why)
        self._waiting += 1
        try:
            found = await self._worker.submit(lambda: self._verify(user, password))
        finally:
            self._waiting -= 1
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[digest] = found
        return found.login

    def _verify(self, user: str, password: str) -> _Known:
        """Log in by each mechanism of passwords, until one succeeds; called on a worker.

        Who fails has failed by all of them, so it costs the same whether there is such a user.
        """
        options = {"username": SecretStr(user), "password": SecretStr(password)}
        for name in self.mechanisms:
            if name == OAUTHBEARER:
                continue
            record = self._record(name, Login(user))
            client = make_client(name, Jaas("", options), self._runtime.uuid().hex)
            server = make_server(name, self._credentials, self._runtime.uuid().hex)
            challenge = b""
            try:
                while (response := client.respond(challenge)) is not None:
                    challenge = server.evaluate(response, self._runtime.wall_ms())
            except SaslError:
                continue
            invariant(server.login is not None, "an exchange without an error is a login")
            if server.login is not None:
                return _Known(server.login, name, record)
        raise SaslError("wrong password, or no such user")

    def _record(self, mechanism: str, login: Login) -> UserScramCredentialRecord | None:
        number = SCRAM_IDS.get(mechanism)
        return None if number is None else self._find_scram(login.name, number)

    # --- credentials ------------------------------------------------------------------------------

    def _find(self, mechanism: str, user: str, by_token: bool) -> ScramCredential | None:
        record = None if by_token else self._find_scram(user, SCRAM_IDS[mechanism])
        return None if record is None else ScramCredential.of(record)

    def _validate(self, token: str, now_ms: int) -> Login:
        assert self._issuer is not None, "OAUTHBEARER is enabled with an issuer"
        return self._issuer.validate(token, now_ms)


class RpcLogin:
    """The login of one node that connects (`raftctl.rpc`)."""

    def __init__(
        self, logins: ControllerLogins, admit: Callable[[Login], None], delay_s: float
    ) -> None:
        """`admit` raises KafkaError for whom the rules do not let act as a node.

        A failure is answered after `delay_s`, so that guessing is slow.
        """
        self._logins = logins
        self._admit = admit
        self._delay_s = delay_s
        self._exchange: ServerMechanism | None = None
        self._mechanism = ""
        self.lifetime_s: float | None = None

    async def take(self, mechanism: str, token: bytes) -> tuple[bytes, bool]:
        """See `raftctl.rpc.PeerLogin`."""
        if self._exchange is None:
            self._exchange, self._mechanism = self._logins.begin(mechanism), mechanism
        try:
            challenge = await self._logins.evaluate(self._exchange, token)
        except SaslError as error:
            await asyncio.sleep(self._delay_s)
            why = f"{self._mechanism} failed: {error.answer or REFUSED}"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, why) from error
        login = self._exchange.login
        if login is None:
            return challenge, False
        self._admit(login)
        self.lifetime_s = self._logins.lifetime_s(self._mechanism, login)
        return challenge, True


def _user_and_password(encoded: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise SaslError("the credentials are not base64 of UTF-8") from None
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise SaslError("the credentials are not USER:PASSWORD")
    return user, password
