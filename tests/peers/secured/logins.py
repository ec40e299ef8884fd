"""How clients of Python log in: by a name, or a token that is given or of the token endpoint."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers.secured.cases import Login

TIMEOUT_S = 10


def login_settings(
    login: Login | None, token_provider: Callable[[Login], object]
) -> dict[str, Any]:
    """Return the keys of a login, which are the same for aiokafka and kafka-python."""
    if login is None:
        return {}
    found: dict[str, Any] = {"sasl_mechanism": login.mechanism}
    if login.mechanism == "OAUTHBEARER":
        return found | {"sasl_oauth_token_provider": token_provider(login)}
    return found | {"sasl_plain_username": login.user, "sasl_plain_password": login.password}


def token(login: Login) -> str:
    """Return the token that a client logs in with. Blocks."""
    if login.token:
        return login.token
    pair = b64encode(f"{login.user}:{login.password}".encode()).decode()
    request = Request(
        login.token_url,
        b"grant_type=client_credentials&scope=kafka",
        {"Authorization": f"Basic {pair}"},
    )
    with urlopen(request, timeout=TIMEOUT_S) as response:
        return str(json.load(response)["access_token"])


def expiry() -> float:
    """Return a time that a client takes for a token's end, whatever the token says."""
    return time.time() + 600
