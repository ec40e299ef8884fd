"""PLAIN: the user's name and password as they are, which only TLS keeps from others (RFC 4616)."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.security.sasl._mechanism import Login, SaslError, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

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
