"""What the mechanisms have in common: the two sides of an exchange, its end, and its failure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"

MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms of both sides, as SASL registers them."""


class SaslError(Exception):
    """A failed exchange. Its text is for the log, and names no secret.

    `answer` is what the peer may read. None means the sentence that every failure of the mechanism
    has, so that nobody learns from it whether a user exists.
    """

    def __init__(self, reason: str, answer: str | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class UnknownKeyError(SaslError):
    """A token is signed with a key that is not known yet: fetch keys, then ask again."""


class Login(NamedTuple):
    """The end of a successful exchange."""

    name: str
    """Of the principal."""
    expires_ms: int | None = None
    """When the credential expires, in ms of the wall clock; None: never."""
    token_id: str | None = None
    """Of the delegation token that it has logged in with; None: with credentials of its own."""


class ServerMechanism(Protocol):
    """The server's side of one exchange."""

    login: Login | None
    """None until the exchange has succeeded."""
    refusal: SaslError | None
    """Why it will fail, where the client must send one message more before it does."""

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """Return the challenge to a response of the client; it may be empty.

        `now_ms` is the wall clock. SaslError ends the exchange. UnknownKeyError does not: the same
        response may be evaluated again.
        """


class ClientMechanism(Protocol):
    """The client's side of one exchange."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, the first of which is empty.

        None once the server has proved all that the mechanism makes it prove. SaslError if the
        server refuses, or proves the wrong thing.
        """


def decode(message: bytes, name: str) -> str:
    """Return the text of a message; SaslError if it is not UTF-8."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError(f"{name} is not UTF-8") from None
