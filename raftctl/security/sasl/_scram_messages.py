"""The four messages of SCRAM, read and written (RFC 5802 §7).

What is read is kept as it came, since both sides sign these bytes. A peer may add extensions; they
are ignored, but for `tokenauth` (KIP-48). The reserved one, `m`, must be refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from raftctl.security.sasl._mechanism import SaslError, decode

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
