"""Makers of the two sides of an exchange, by the name of the mechanism."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.security.sasl._mechanism import (
    OAUTHBEARER,
    PLAIN,
    Login,
    SaslError,
    UnknownKeyError,
    decode,
)
from raftctl.security.sasl.scram import ScramClient, ScramCredential, ScramServer

if TYPE_CHECKING:
    from raftctl.config.security import Jaas
    from raftctl.security.sasl._mechanism import ClientMechanism, ServerMechanism


# --- OAUTHBEARER ----------------------------------------------------------------------------------


_SEPARATOR = "\x01"
_AUTH = re.compile(r"(?i:bearer) +([-_.a-zA-Z0-9]+)")
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_REFUSAL = json.dumps({"status": "invalid_token"})
"""The same for every token: why is in the log."""


class OAuthBearerServer:
    """The server's side.

    A token that is refused is answered with a challenge; the client must send one byte more, and
    only then the exchange fails (RFC 7628 §3.2.3). `validate` returns whom a token stands for, and
    raises SaslError.
    """

    def __init__(self, validate: Callable[[str, int], Login]) -> None:
        self._validate = validate
        self.refusal: SaslError | None = None
        self.login: Login | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """See `ServerMechanism.evaluate`."""
        if self.login is not None:
            raise SaslError("a response after the exchange")
        if self.refusal is not None:
            raise SaslError(str(self.refusal), _REFUSAL)
        authorization_id, token = _read(response)
        try:
            login = self._validate(token, now_ms)
        except UnknownKeyError:
            raise
        except SaslError as error:
            self.refusal = error
            return _REFUSAL.encode()
        if authorization_id not in ("", login.name):
            raise SaslError("the authorization id is not the token's principal")
        self.login = login
        return b""


class OAuthBearerClient:
    """The client's side."""

    def __init__(self, token: str) -> None:
        separator = _SEPARATOR
        message = f"n,,{separator}auth=Bearer {token}{separator}{separator}"
        self._message: bytes | None = message.encode()
        self._is_refused = False

    def respond(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism.respond`."""
        if self._message is not None:
            message, self._message = self._message, None
            return message
        if not challenge:
            return None
        if self._is_refused:
            raise SaslError("the server refuses the token")
        self._is_refused = True
        return _SEPARATOR.encode()


def _read(response: bytes) -> tuple[str, str]:
    """Return (authorization id, token) of the client's first message (RFC 7628 §3.1)."""
    where = "the client's first message"
    header, separator, rest = decode(response, where).partition(_SEPARATOR)
    flags = header.split(",")
    authorization = flags[1] if len(flags) == 3 else None
    if not separator or authorization is None or flags[0] not in ("n", "y") or flags[2]:
        raise SaslError(f"{where} has a malformed header")
    if authorization and not authorization.startswith("a="):
        raise SaslError(f"{where} has a malformed authorization id")
    if not rest.endswith(_SEPARATOR):
        raise SaslError(f"{where} is not ended")
    found = {}
    for pair in rest[:-1].removesuffix(_SEPARATOR).split(_SEPARATOR):
        name, _, value = pair.partition("=")
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in found:
            raise SaslError(f"{where} has a malformed pair")
        found[name] = value
    match = _AUTH.fullmatch(found.get("auth", ""))
    if match is None:
        raise SaslError(f"{where} has no bearer token")
    name = authorization.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return name, match[1]


# --- PLAIN ----------------------------------------------------------------------------------------


_REFUSED = "Authentication failed: Invalid username or password"


class PlainServer:
    """The server's side. It does the same work whether or not the user exists."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.login: Login | None = None
        self.refusal: SaslError | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """See `ServerMechanism.evaluate`. There is one response, and its challenge is empty."""
        del now_ms
        if self.login is not None:
            raise SaslError("a response after the exchange")
        parts = decode(response, "the response").split("\0")
        if len(parts) != 3:
            raise SaslError(f"the response has {len(parts)} parts, not 3")
        authorization_id, user, password = parts
        if not user or not password:
            raise SaslError("the response has no user or no password")
        expected = self._passwords.get(user)
        # Of digests, since a comparison of texts takes as long as the shorter one.
        is_equal = hmac.compare_digest(_digest(password), _digest(expected or ""))
        if not is_equal or expected is None:
            raise SaslError("wrong password, or no such user", _REFUSED)
        if authorization_id not in ("", user):
            raise SaslError("the authorization id is not the user's name")
        invariant(expected == password, "nobody logs in with a password that is not theirs")
        self.login = Login(user)
        return b""


class PlainClient:
    """The client's side."""

    def __init__(self, user: str, password: str) -> None:
        self._message: bytes | None = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism.respond`."""
        if challenge:
            raise SaslError("PLAIN has no challenges")
        message, self._message = self._message, None
        return message


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# --- any mechanism --------------------------------------------------------------------------------


_USER = "user_"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server verifies its clients with."""

    passwords: Mapping[str, str] = field(repr=False)
    """Of PLAIN, by user."""
    find_scram: Callable[[str, str, bool], ScramCredential | None] = field(repr=False)
    """Of a mechanism, by user; of a delegation token by its id, if the third is true."""
    scram_secret: bytes = field(repr=False)
    """Makes the salts of unknown users; all brokers have the same."""
    validate_token: Callable[[str, int], Login] = field(repr=False)
    """Of OAUTHBEARER: whom a token stands for at a time in ms; SaslError if it is refused."""


def make_server(mechanism: str, credentials: Credentials, nonce: str) -> ServerMechanism:
    """Return the server's side of a mechanism; `nonce` is fresh, printable, without commas."""
    if mechanism == PLAIN:
        return PlainServer(credentials.passwords)
    if mechanism == OAUTHBEARER:
        return OAuthBearerServer(credentials.validate_token)
    find = credentials.find_scram
    return ScramServer(
        mechanism,
        lambda user, by_token: find(mechanism, user, by_token),
        nonce,
        credentials.scram_secret,
    )


def make_client(mechanism: str, login: Jaas, nonce: str, token: str = "") -> ClientMechanism:
    """Return the client's side of a mechanism.

    Name and password are the options `username` and `password`; `token` is for OAUTHBEARER.
    """
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(token)
    user, password = login.option("username") or "", login.option("password") or ""
    if mechanism == PLAIN:
        return PlainClient(user, password)
    by_token = (login.option("tokenauth") or "").lower() == "true"
    return ScramClient(mechanism, user, password, nonce, by_token=by_token)


def plain_passwords(login: Jaas | None) -> dict[str, str]:
    """Return the passwords of PLAIN by user, as options `user_NAME` have them."""
    if login is None:
        return {}
    users = (name for name in login.options if name.startswith(_USER) and name != _USER)
    return {name.removeprefix(_USER): login.option(name) or "" for name in users}
