"""An issuer of tokens for tests: an HTTP server of loopback, with keys and a token endpoint."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from joserfc import jwk, jws

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME, AUDIENCE = "https://issuer.test", "kafka"
ALGORITHM = "RS256"


@dataclass(frozen=True, slots=True)
class Issuer:
    """Signs a token for each client that knows its secret (RFC 6749 §4.4)."""

    url: str
    secrets: Mapping[str, str] = field(repr=False)
    """Of clients, by their ids, which are the subjects of their tokens."""
    key: jwk.RSAKey = field(repr=False)
    seconds: float
    """For which a token is good."""

    @property
    def keys_url(self) -> str:
        """Where its public keys are (RFC 7517)."""
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        """The token endpoint."""
        return f"{self.url}/token"

    def token(
        self, client: str, *, key: jwk.RSAKey | None = None, seconds: float | None = None
    ) -> str:
        """Return a token for a client; signed with a key that is not the issuer's, it is forged."""
        good_for = self.seconds if seconds is None else seconds
        now = int(time.time())
        claims = {
            "sub": client,
            "iss": NAME,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + int(good_for),
            "scope": "kafka",
        }
        header = {"alg": ALGORITHM, "kid": self.key.kid, "typ": "JWT"}
        return jws.serialize_compact(header, json.dumps(claims), key or self.key, [ALGORITHM])

    def answer(self, authorization: str, fields: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return status and body for a client that shows its secret in a header or in the form."""
        if authorization.startswith("Basic "):
            shown = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            client, _, secret = shown.partition(":")
        else:
            client, secret = fields.get("client_id", ""), fields.get("client_secret", "")
        if not secret or self.secrets.get(client) != secret:
            return 401, {"error": "invalid_client"}
        return 200, {
            "access_token": self.token(client),
            "token_type": "Bearer",
            "expires_in": int(self.seconds),
            "scope": "kafka",
        }


def new_key() -> jwk.RSAKey:
    """Return a key to sign tokens with; all have the same id."""
    return jwk.RSAKey.generate_key(2048, {"kid": "tests", "use": "sig", "alg": ALGORITHM})


@contextlib.contextmanager
def issuing(secrets: Mapping[str, str], seconds: float = 3600) -> Iterator[Issuer]:
    """Serve clients with these secrets; a token is good for so long."""
    key = new_key()
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}", secrets, key, seconds)
    server.RequestHandlerClass = _handler(issuer)
    thread = threading.Thread(target=server.serve_forever, name="issuer", daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"keys": [issuer.key.as_dict(private=False)]})

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            fields = {name: values[0] for name, values in parse_qs(form).items()}
            self._send(*issuer.answer(self.headers.get("Authorization", ""), fields))

        def _send(self, status: int, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Write nothing: a request line may have a secret."""

    return Handler
