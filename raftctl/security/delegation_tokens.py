"""Delegation tokens: what the secret of the cluster makes of a token's id (KIP-48).

A token is an id and its HMAC under `delegation.token.secret.key`. The HMAC is what its bearer has:
in Base64 it is the password of a SCRAM login, and a request names the token by it. Records hold the
id alone, so the metadata log lets nobody log in.

Source: Apache Kafka's DelegationTokenManager and DelegationTokenCache.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

from raftctl.errors import invariant
from raftctl.security._principal import Principal
from raftctl.security.sasl import Login
from raftctl.security.sasl.scram import (
    DERIVED_SALT_BYTES,
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    ScramKeys,
    salted_password,
    scram_keys,
)

if TYPE_CHECKING:
    from immutables import Map

    from raftctl.config import NodeConfig
    from raftctl.metadata.records import DelegationTokenRecord

_SALT = b"salt of a delegation token"


class TokenSecret:
    """The key that makes the HMAC of a token's id. No text shows it."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        invariant(bool(key), "an empty secret makes HMACs that everybody knows")
        self._key = key.encode()

    def __repr__(self) -> str:
        return "TokenSecret(...)"

    @classmethod
    def of(cls, config: NodeConfig) -> TokenSecret | None:
        """Return the secret of a node's configuration; None if it has none."""
        key = config.delegation_token_secret_key
        return cls(key.get_secret_value()) if key and key.get_secret_value() else None

    def hmac(self, token_id: str) -> bytes:
        """Return what the bearer of a token has: HMAC-SHA512."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def scram_keys(self, mechanism: str, token_id: str) -> tuple[bytes, ScramKeys]:
        """Return the salt and the keys of a login with the token; takes some ms.

        Brokers derive the same salt, as for unknown users: a login that fails shows no difference.
        """
        secret, digest = self.hmac(token_id), HASHES[mechanism]
        salt = hmac.digest(secret, _SALT, "sha256")[:DERIVED_SALT_BYTES]
        password = base64.b64encode(secret).decode()
        return salt, scram_keys(digest, salted_password(digest, password, salt, ITERATIONS_MIN))


def token_credential(token: DelegationTokenRecord, salt: bytes, keys: ScramKeys) -> ScramCredential:
    """Return what a login with the token is verified with; its client acts for the owner."""
    owner = Principal.parse(token.owner)
    login = Login(owner.name, token.expires_ms, token.token_id)
    return ScramCredential(salt, ITERATIONS_MIN, keys, login)


class TokenIndex:
    """Finds tokens by their HMACs. It holds digests of these, so the memory of it is no secret.

    A look-up compares digests: the time it takes says nothing about the HMAC of any token.
    """

    def __init__(self, secret: TokenSecret) -> None:
        self._secret = secret
        self._tokens: Map[str, DelegationTokenRecord] | None = None
        """Those that the index has; None before the first question."""
        self._ids: dict[bytes, str] = {}
        self._digests: dict[str, bytes] = {}

    def find(
        self, tokens: Map[str, DelegationTokenRecord], given: bytes
    ) -> DelegationTokenRecord | None:
        """Return the one of `tokens` that has this HMAC."""
        if tokens is not self._tokens:
            self._follow(tokens)
        token_id = self._ids.get(_digest(given))
        if token_id is None or not hmac.compare_digest(self._secret.hmac(token_id), given):
            return None
        return tokens[token_id]

    def _follow(self, tokens: Map[str, DelegationTokenRecord]) -> None:
        for token_id in [one for one in self._digests if one not in tokens]:
            del self._ids[self._digests.pop(token_id)]
        for token_id in tokens:
            if token_id not in self._digests:
                digest = self._digests[token_id] = _digest(self._secret.hmac(token_id))
                self._ids[digest] = token_id
        self._tokens = tokens
        invariant(len(self._ids) == len(tokens), "each token is found by one HMAC")


def _digest(given: bytes) -> bytes:
    return hashlib.sha256(given).digest()


def may_renew(token: DelegationTokenRecord, principal: str) -> bool:
    """Return whether a principal may renew a token or let it expire: its owner, or a renewer."""
    return principal == token.owner or principal in token.renewers


def concerned(token: DelegationTokenRecord) -> tuple[str, ...]:
    """Return the principals that may always see a token: owner, requester and renewers."""
    return token.owner, token.requester, *token.renewers
