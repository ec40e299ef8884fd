"""What an issuer of tokens publishes and hands out: keys and tokens, from a file or a URL.

All of it blocks: call it on a worker.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

if TYPE_CHECKING:
    from typing import Any

    from raftctl.config.security import Jaas
    from raftctl.runtime.api import FileSystem

BYTES_MAX = 1024 * 1024
TIMEOUT_SECONDS = 10.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _NoRedirects(HTTPRedirectHandler):
    """A redirection could lead away from TLS, and credentials with it."""

    def redirect_request(self, *_request: Any) -> None:
        """Follow none."""


def check_url(url: str) -> None:
    """Raise ValueError unless it is `file:` or `https:`, or `http:` of this host."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        return
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:
        return
    raise ValueError("it must be https://HOST/PATH or file:///PATH: others could change it")


def read_document(url: str, files: FileSystem) -> bytes:
    """Return the bytes at a URL. OSError if it cannot be had, ValueError if it is too long."""
    check_url(url)
    if url.startswith("file:"):
        return _read_file(unquote(urlsplit(url).path), files)
    return _ask(Request(url, headers={"Accept": "application/json"}))


def read_token(url: str, login: Jaas, files: FileSystem) -> str:
    """Return a token to log in with.

    A file has it as it is. Of a server it is asked with the options `clientId`, `clientSecret` and
    `scope` of the login (RFC 6749 §4.4). OSError if it cannot be had, ValueError if there is none.
    """
    check_url(url)
    if url.startswith("file:"):
        return _read_file(unquote(urlsplit(url).path), files).decode().strip()
    fields = {"grant_type": "client_credentials"}
    if scope := login.option("scope"):
        fields["scope"] = scope
    pair = f"{login.option('clientId') or ''}:{login.option('clientSecret') or ''}"
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    answer = json.loads(_ask(Request(url, urlencode(fields).encode(), headers)))
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the answer has no access_token")
    return token


def _ask(request: Request) -> bytes:
    opener = build_opener(_NoRedirects())
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
            body: bytes = response.read(BYTES_MAX + 1)
    except URLError as error:
        if isinstance(error, HTTPError):
            error.close()
        # Its text may have the request in it.
        raise OSError(f"{type(error).__name__}: no answer that can be used") from None
    return _bounded(body)


def _read_file(path: str, files: FileSystem) -> bytes:
    file = files.open(path)
    try:
        return _bounded(file.read_at(0, BYTES_MAX + 1))
    finally:
        file.close()


def _bounded(document: bytes) -> bytes:
    if len(document) > BYTES_MAX:
        raise ValueError(f"it is longer than {BYTES_MAX} bytes")
    return document
