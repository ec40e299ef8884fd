"""Makers of the two sides of an exchange, by the name of the mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftctl.security.sasl._mechanism import OAUTHBEARER, PLAIN, Login
from raftctl.security.sasl._oauthbearer import OAuthBearerClient, OAuthBearerServer
from raftctl.security.sasl._plain import PlainClient, PlainServer
from raftctl.security.sasl.scram import ScramClient, ScramCredential, ScramServer

if TYPE_CHECKING:
    from raftctl.config.security import Jaas
    from raftctl.security.sasl._mechanism import ClientMechanism, ServerMechanism

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
