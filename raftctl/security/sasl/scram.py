"""SCRAM: both sides prove that they know the password, and nobody sends it (RFC 5802, RFC 7677).

The server has two keys that are derived from the password and suffice to verify it. Names and
passwords are not prepared in any way, as in Apache Kafka: they count byte by byte in UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import invariant
from raftctl.security.sasl._mechanism import SCRAM_SHA_256, SCRAM_SHA_512, Login, SaslError, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- messages -------------------------------------------------------------------------------------


_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_NAME = re.compile(r"(?:[^\0=,]|=2C|=3D)+")
_EXTENSION = re.compile(r"[A-Za-z]=[^\0,]+|[A-Za-z]{2,}=[^\0,]+")
_ITERATIONS = re.compile(r"[1-9][0-9]{0,8}")
_TOKEN_AUTH = "tokenauth"  # the name of an extension, no secret


class ClientFirst(NamedTuple):
    """`gs2-header n=USER,r=NONCE[,extensions]`."""

    gs2_header: str
    bare: str
    authorization_id: str
    user: str
    nonce: str
    by_token: bool
    """Whether the user's name is the id of a delegation token."""


class ServerFirst(NamedTuple):
    """`r=NONCE,s=SALT,i=ITERATIONS[,extensions]`."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`c=BINDING,r=NONCE[,extensions],p=PROOF`."""

    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_first(message: bytes) -> ClientFirst:
    """Return the client's first message; SaslError if it is malformed."""
    text = decode(message, "the client's first message")
    parts = text.split(",", 2)
    # A client that could bind to a channel says y, since no server here can.
    if len(parts) < 3 or parts[0] not in ("n", "y"):
        raise SaslError("the client's first message has no header for a channel without binding")
    flag, authorization, bare = parts
    attributes = bare.split(",")
    user = _value(attributes, 0, "n", _NAME, "the client's first message")
    nonce = _value(attributes, 1, "r", _NONCE, "the client's first message")
    authorization_id = ""
    if authorization:
        found = _value([authorization], 0, "a", _NAME, "the client's first message")
        authorization_id = _plain_name(found)
    extensions = _extensions(attributes[2:], "the client's first message")
    by_token = extensions.get(_TOKEN_AUTH, "").lower() == "true"
    header = f"{flag},{authorization},"
    return ClientFirst(header, bare, authorization_id, _plain_name(user), nonce, by_token)


def write_client_first(user: str, nonce: str, *, by_token: bool) -> ClientFirst:
    """Return the client's first message."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}" + (f",{_TOKEN_AUTH}=true" if by_token else "")
    return ClientFirst("n,,", bare, "", user, nonce, by_token)


def read_server_first(message: bytes) -> ServerFirst:
    """Return the server's first message; SaslError if it is malformed."""
    where = "the server's first message"
    text = decode(message, where)
    attributes = text.split(",")
    nonce = _value(attributes, 0, "r", _NONCE, where)
    salt = _base64(_value(attributes, 1, "s", None, where), where)
    iterations = int(_value(attributes, 2, "i", _ITERATIONS, where))
    _extensions(attributes[3:], where)
    return ServerFirst(text, nonce, salt, iterations)


def write_server_first(nonce: str, salt: bytes, iterations: int) -> ServerFirst:
    """Return the server's first message; the nonce begins with the client's."""
    text = f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"
    return ServerFirst(text, nonce, salt, iterations)


def read_client_final(message: bytes) -> ClientFinal:
    """Return the client's last message; SaslError if it is malformed."""
    where = "the client's final message"
    text = decode(message, where)
    attributes = text.split(",")
    binding = _base64(_value(attributes, 0, "c", None, where), where)
    nonce = _value(attributes, 1, "r", _NONCE, where)
    proof = _base64(_value(attributes, len(attributes) - 1, "p", None, where), where)
    _extensions(attributes[2:-1], where)
    return ClientFinal(text.rpartition(",")[0], binding, nonce, proof)


def write_without_proof(gs2_header: str, nonce: str) -> str:
    """Return the client's last message up to its proof."""
    return f"c={base64.b64encode(gs2_header.encode()).decode()},r={nonce}"


def write_client_final(without_proof: str, proof: bytes) -> bytes:
    """Return the client's last message."""
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def read_server_final(message: bytes) -> bytes:
    """Return the server's signature; SaslError if there is an error in its place."""
    where = "the server's final message"
    attributes = decode(message, where).split(",")
    if attributes[0].startswith("e="):
        raise SaslError("the server refuses the client")
    signature = _base64(_value(attributes, 0, "v", None, where), where)
    _extensions(attributes[1:], where)
    return signature


def write_server_final(signature: bytes) -> bytes:
    """Return the server's last message."""
    return b"v=" + base64.b64encode(signature)


def _value(
    attributes: list[str], index: int, name: str, form: re.Pattern[str] | None, where: str
) -> str:
    """Return the value of the attribute at a position, where it must be."""
    if index >= len(attributes) or not attributes[index].startswith(f"{name}="):
        raise SaslError(f"{where} lacks {name}= in its place")
    value = attributes[index].partition("=")[2]
    if form is not None and not form.fullmatch(value):
        raise SaslError(f"{where} has a malformed {name}=")
    return value


def _extensions(attributes: list[str], where: str) -> dict[str, str]:
    found = {}
    for one in attributes:
        if not _EXTENSION.fullmatch(one) or one.startswith("m="):
            raise SaslError(f"{where} has a malformed or a mandatory extension")
        name, _, value = one.partition("=")
        found[name] = value
    return found


def _plain_name(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _base64(text: str, where: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError(f"{where} has malformed Base64") from None
    # Bits that are beyond the last byte would let two texts stand for the same bytes.
    if base64.b64encode(found).decode() != text:
        raise SaslError(f"{where} has malformed Base64")
    return found


# --- both sides -----------------------------------------------------------------------------------


HASHES: Mapping[str, str] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""From a mechanism to its hash."""
SCRAM_IDS: Mapping[str, int] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""From a mechanism to its number in requests and records."""
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""Apache Kafka's bounds; a client computes as many rounds of the hash to log in."""


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
        return ScramCredential(made[:16], ITERATIONS_MIN, keys, Login(user))

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
