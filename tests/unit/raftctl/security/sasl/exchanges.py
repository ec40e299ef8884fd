"""Exchanges between the two sides of a mechanism, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import SecretStr

from raftctl.config.security import Jaas
from raftctl.security.sasl import Credentials, Login, SaslError
from raftctl.security.sasl.scram import HASHES, ScramCredential, salted_password, scram_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.security.sasl import ClientMechanism, ServerMechanism

NOW_MS = 1_800_000_000_000
SECRET = b"of the cluster"
SALT = b"of sixteen bytes"


def jaas(**options: str) -> Jaas:
    """A login module with these options."""
    return Jaas("Module", {name: SecretStr(value) for name, value in options.items()})


def credential(
    mechanism: str, user: str, password: str, salt: bytes = SALT, iterations: int = 4096
) -> ScramCredential:
    """What a server stores for a password."""
    digest = HASHES[mechanism]
    keys = scram_keys(digest, salted_password(digest, password, salt, iterations))
    return ScramCredential(salt, iterations, keys, Login(user))


def credentials(
    passwords: Mapping[str, str], scram: Mapping[str, ScramCredential] | None = None
) -> Credentials:
    """Of these users; tokens are refused."""
    known = scram or {}

    def find(_mechanism: str, user: str, by_token: bool) -> ScramCredential | None:
        return None if by_token else known.get(user)

    def validate(token: str, _now_ms: int) -> Login:
        if token != "good":  # nothing secret about it
            raise SaslError("a bad token")
        return Login("alice", NOW_MS + 1000)

    return Credentials(passwords, find, SECRET, validate)


def exchange(client: ClientMechanism, server: ServerMechanism) -> Login | None:
    """Let the two sides talk until the client is content. SaslError of either side."""
    challenge = b""
    for _ in range(5):
        response = client.respond(challenge)
        if response is None:
            return server.login
        challenge = server.evaluate(response, NOW_MS)
    raise AssertionError("the exchange has no end")
