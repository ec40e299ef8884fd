"""OAUTHBEARER: a token that an authorization server signed (RFC 7628, KIP-255)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from raftctl.security.sasl._mechanism import Login, SaslError, UnknownKeyError, decode

if TYPE_CHECKING:
    from collections.abc import Callable

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
