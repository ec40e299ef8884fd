"""How a client of Python gets a token: the one it is given, or one of the token endpoint."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from tests.peers.secured.cases import Login

TIMEOUT_S = 10


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
