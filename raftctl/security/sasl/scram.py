"""SCRAM: both sides prove that they know the password, and nobody sends it (RFC 5802, RFC 7677).

The server has two keys that are derived from the password and suffice to verify it. Names and
passwords are not prepared in any way, as in Apache Kafka: they count byte by byte in UTF-8.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import invariant
from raftctl.security.sasl._mechanism import SCRAM_SHA_256, SCRAM_SHA_512, Login, SaslError
from raftctl.security.sasl._scram_messages import (
    ClientFirst,
    ServerFirst,
    read_client_final,
    read_client_first,
    read_server_final,
    read_server_first,
    write_client_final,
    write_client_first,
    write_server_final,
    write_server_first,
    write_without_proof,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from raftctl.config.security import SaslSettings
    from raftctl.metadata.records import UserScramCredentialRecord

HASHES: Mapping[str, str] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""From a mechanism to its hash."""
SCRAM_IDS: Mapping[str, int] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""From a mechanism to its number in requests and records."""
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""Apache Kafka's bounds; a client computes as many rounds of the hash to log in."""
DERIVED_SALT_BYTES = 16
"""Of unknown users and of delegation tokens, which must look the same."""


class ScramKeys(NamedTuple):
    """The two keys by which a server verifies a client, and proves itself."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys(...)"


class ScramCredential(NamedTuple):
    """What a server knows of a user."""

    salt: bytes
    iterations: int
    keys: ScramKeys
    login: Login
    """Whom a client with this credential acts for."""

    @classmethod
    def of(cls, record: UserScramCredentialRecord) -> ScramCredential:
        """Return what a record says of a user."""
        keys = ScramKeys(record.stored_key, record.server_key)
        return cls(record.salt, record.iterations, keys, Login(record.user))


def salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return what a client derives from the password; takes some ms. `digest` as hashlib's."""
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


def scram_keys(digest: str, salted: bytes) -> ScramKeys:
    """Return the keys that a server stores for a salted password (RFC 5802 §3)."""
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    invariant(salted not in (stored_key, server_key), "no password to log in with is stored")
    return ScramKeys(stored_key, server_key)


def stand_in_secret(sasl: SaslSettings | None, cluster_id: str) -> bytes:
    """Return what makes the salts of unknown users: the same on all nodes, for a long time.

    Salts that differed between two nodes would reveal that nobody has the name. `sasl` is of the
    listener on which the nodes log in to each other. Their password is known to them alone; without
    one it is the cluster's id, which no client learns before it has authenticated.
    """
    login = None if sasl is None or sasl.login is None else sasl.login.jaas
    password = (login and login.option("password")) or ""
    return hmac.digest(cluster_id.encode(), password.encode(), "sha256")


class _Begun(NamedTuple):
    """An exchange between its two responses."""

    client: ClientFirst
    server: ServerFirst
    credential: ScramCredential
    is_known: bool
    """False: the credential is a stand-in."""


class ScramServer:
    """The server's side. An unknown user fails where a wrong password does, after as much work.

    `find` returns the credential of a user, or of a delegation token if its second argument is
    true. `secret` makes the salts of unknown users: each has always the same one.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str, bool], ScramCredential | None],
        nonce: str,
        secret: bytes,
    ) -> None:
        """`nonce` must be fresh and not to be guessed: printable, without commas."""
        self._digest = HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self._secret = secret
        self._begun: _Begun | None = None
        self._has_failed = False
        self.login: Login | None = None
        self.refusal: SaslError | None = None

    def evaluate(self, response: bytes, now_ms: int) -> bytes:
        """See `ServerMechanism.evaluate`. There are two responses."""
        if self.login is not None or self._has_failed:
            raise SaslError("a response after the exchange")
        try:
            if self._begun is None:
                return self._begin(response)
            return self._end(self._begun, response, now_ms)
        except SaslError:
            self._has_failed = True
            raise

    def _begin(self, response: bytes) -> bytes:
        message = read_client_first(response)
        if message.authorization_id not in ("", message.user):
            raise SaslError("the authorization id is not the user's name")
        credential = self._find(message.user, message.by_token)
        stand_in = self._stand_in(message.user)
        is_known = credential is not None
        credential = credential or stand_in
        first = write_server_first(
            message.nonce + self._nonce, credential.salt, credential.iterations
        )
        self._begun = _Begun(message, first, credential, is_known)
        return first.text.encode()

    def _stand_in(self, user: str) -> ScramCredential:
        """Return the credential that an unknown user seems to have; nobody knows its password."""
        made = hmac.digest(self._secret, user.encode(), self._digest)
        keys = ScramKeys(made, made)
        return ScramCredential(made[:DERIVED_SALT_BYTES], ITERATIONS_MIN, keys, Login(user))

    def _end(self, begun: _Begun, response: bytes, now_ms: int) -> bytes:
        first, server_first, credential, is_known = begun
        message = read_client_final(response)
        if message.nonce != server_first.nonce:
            raise SaslError("the client's final message has another nonce")
        if message.binding != first.gs2_header.encode():
            raise SaslError("the client's final message has another header")
        signed = f"{first.bare},{server_first.text},{message.without_proof}".encode()
        signature = hmac.digest(credential.keys.stored_key, signed, self._digest)
        client_key = _xor(signature, message.proof)
        stored_key = hashlib.new(self._digest, client_key).digest()
        is_proved = hmac.compare_digest(stored_key, credential.keys.stored_key)
        proof = hmac.digest(credential.keys.server_key, signed, self._digest)
        if not (is_proved and is_known):
            raise SaslError("wrong password, or no such user")
        expires_ms = credential.login.expires_ms
        if expires_ms is not None and expires_ms <= now_ms:
            raise SaslError("the delegation token has expired")
        self.login = credential.login
        return write_server_final(proof)


class ScramClient:
    """The client's side. It derives keys for some ms: `respond` may be called on a worker."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, by_token: bool = False
    ) -> None:
        """`nonce` must be fresh and not to be guessed: printable, without commas."""
        self._digest = HASHES[mechanism]
        self._password = password
        self._first = write_client_first(user, nonce, by_token=by_token)
        self._signature = b""
        self._next: Callable[[bytes], bytes | None] = self._begin

    def respond(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism.respond`."""
        return self._next(challenge)

    def _begin(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslError("a challenge before the first message")
        self._next = self._prove
        return (self._first.gs2_header + self._first.bare).encode()

    def _prove(self, challenge: bytes) -> bytes:
        server = read_server_first(challenge)
        own = self._first.nonce
        if not server.nonce.startswith(own) or server.nonce == own:
            raise SaslError("the server's nonce does not begin with the client's")
        # A server that asks for few rounds learns a digest that is cheap to guess from; for very
        # many, it keeps this process busy.
        if not ITERATIONS_MIN <= server.iterations <= ITERATIONS_MAX:
            raise SaslError(
                f"the server asks for {server.iterations} iterations, not {ITERATIONS_MIN} to "
                f"{ITERATIONS_MAX}"
            )
        salted = salted_password(self._digest, self._password, server.salt, server.iterations)
        keys = scram_keys(self._digest, salted)
        without_proof = write_without_proof(self._first.gs2_header, server.nonce)
        signed = f"{self._first.bare},{server.text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(keys.stored_key, signed, self._digest)
        self._signature = hmac.digest(keys.server_key, signed, self._digest)
        self._next = self._verify
        return write_client_final(without_proof, _xor(signature, client_key))

    def _verify(self, challenge: bytes) -> None:
        invariant(len(self._signature) > 0, "the client has proved itself before")
        if not hmac.compare_digest(read_server_final(challenge), self._signature):
            raise SaslError("the server does not know the password")


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise SaslError("the client's proof is not as long as the mechanism's hash")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
