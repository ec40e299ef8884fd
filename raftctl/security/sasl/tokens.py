"""Tokens of OAUTHBEARER: JSON web tokens, verified with the public keys of their issuer.

`TokenValidator` decides on a token; `IssuerKeys` holds the keys and has them fetched again, with
`read_document`. `read_token` gets a token for the side that logs in. Only
signatures by public keys are taken: a token that says `none`, or HS256 over a key that everybody
may read, proves nothing. Sources: RFC 7519, RFC 7517; KIP-768 and Apache Kafka's BrokerJwtValidator
for the claims.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from raftctl.security.sasl._mechanism import Login, SaslError, UnknownKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from raftctl.config.security import Jaas
    from raftctl.runtime.api import FileSystem


# --- documents of keys ----------------------------------------------------------------------------


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


# --- tokens ---------------------------------------------------------------------------------------


__all__ = [
    "ALGORITHMS",
    "IssuerKeys",
    "TokenRules",
    "TokenValidator",
    "check_url",
    "parse_keys",
    "read_document",
    "read_token",
]

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Those of public keys (RFC 7518, RFC 9864)."""
_KEY_TYPES = ("RSA", "EC", "OKP")
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth")
_TOKEN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say, besides that it has not expired."""

    audiences: tuple[str, ...] = ()
    """One of them must be its audience; empty: any may be."""
    issuer: str | None = None
    """None: any."""
    clock_skew_seconds: int = 30
    principal_claim: str = "sub"


class TokenValidator:
    """Decides whom a token stands for, with the keys that `find_key` has.

    `find_key` takes the id of a key, or None, and the algorithm. It raises UnknownKeyError.
    """

    def __init__(self, rules: TokenRules, find_key: Callable[[str | None], Any]) -> None:
        self._rules = rules
        self._find_key = find_key

    def validate(self, token: str, now_ms: int) -> Login:
        """Return the principal of a token and when it expires; SaslError if it is refused."""
        from joserfc import jws
        from joserfc.errors import JoseError

        if len(token) > _TOKEN_BYTES_MAX:
            raise SaslError("the token is too long")
        try:
            header = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError):
            raise SaslError("the token is malformed") from None
        if header.get("alg") not in ALGORITHMS:
            raise SaslError("the token's algorithm is not one of public keys")
        key_id = header.get("kid")
        key = self._find_key(key_id if isinstance(key_id, str) else None)
        try:
            signed = jws.deserialize_compact(token, key, algorithms=ALGORITHMS)
            claims = json.loads(signed.payload)
        except (JoseError, ValueError, TypeError):
            raise SaslError("the token's signature is wrong") from None
        if not isinstance(claims, dict):
            raise SaslError("the token has no claims")
        return self._checked(claims, now_ms)

    def _checked(self, claims: dict[str, Any], now_ms: int) -> Login:
        rules = self._rules
        now, skew = now_ms / 1000, rules.clock_skew_seconds
        expires = _time(claims, "exp")
        if expires is None:
            raise SaslError("the token has no exp")
        if _time(claims, "iat") is None:
            raise SaslError("the token has no iat")
        if expires + skew <= now:
            raise SaslError("the token has expired")
        begins = _time(claims, "nbf")
        if begins is not None and begins - skew > now:
            raise SaslError("the token is not valid yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise SaslError("the token is of another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if rules.audiences and not any(one in rules.audiences for one in named):
            raise SaslError("the token is for another audience")
        name = claims.get(rules.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise SaslError(f"the token has no {rules.principal_claim}")
        return Login(name, int(expires * 1000))


def _time(claims: dict[str, Any], name: str) -> float | None:
    """Return a claim in seconds since 1970; None if it is absent."""
    value = claims.get(name)
    if value is None:
        return None
    # Beyond some thousand years it would be no time of a clock, but nan or infinity.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise SaslError(f"the token's {name} is no time")
    return float(value)


def parse_keys(document: bytes) -> dict[str, Any]:
    """Return the public keys of a JWKS by their ids; ValueError if it is none.

    Keys that verify nothing here are left out: for encryption, or known to both sides.
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    listed = json.loads(document)
    keys = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(keys, list):
        raise ValueError("there is no list of keys")
    found: dict[str, Any] = {}
    for one in keys:
        if not isinstance(one, dict) or one.get("kty") not in _KEY_TYPES:
            continue
        if one.get("use", "sig") != "sig":
            continue
        public = {name: value for name, value in one.items() if name not in _PRIVATE}
        try:
            found[str(one.get("kid", ""))] = import_key(public)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    return found


class IssuerKeys:
    """The keys of an issuer, fetched when they are old, or when a token names an unknown one.

    Fetches never overlap, and between two is a pause: a client that invents ids of keys must not
    make this node ask the issuer again and again. While the issuer cannot be reached, the keys
    that were fetched last stay.
    """

    def __init__(
        self,
        fetch: Callable[[], asyncio.Future[bytes]],
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        *,
        refresh_seconds: float,
        pause_seconds: float,
    ) -> None:
        """`fetch` reads the document off the event loop; `clock` is the loop's, in seconds."""
        self._fetch = fetch
        self._clock = clock
        self._log = log
        self._refresh_seconds = refresh_seconds
        self._pause_seconds = pause_seconds
        self._keys: Mapping[str, Any] = {}
        self._tried_at: float | None = None
        self._fetching: asyncio.Future[bytes] | None = None

    @property
    def are_known(self) -> bool:
        """Whether there is any key."""
        return bool(self._keys)

    def find(self, key_id: str | None) -> Any:
        """Return a key by its id; the only one if the id is None. UnknownKeyError if absent."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id or "")
        if found is None:
            raise UnknownKeyError("the token's key is unknown")
        return found

    def refresh_if_old(self) -> None:
        """Begin to fetch the keys again if they are old; meanwhile they count."""
        if self._tried_at is None or self._clock() >= self._tried_at + self._refresh_seconds:
            self._begin()

    async def refresh(self) -> None:
        """Fetch the keys, unless that was tried a moment ago; errors are logged."""
        if (fetching := self._begin()) is not None:
            await asyncio.wait([fetching])

    def _begin(self) -> asyncio.Future[bytes] | None:
        """Return the fetch that is under way, or begins; None: the pause is not over."""
        if self._fetching is None:
            now, tried_at = self._clock(), self._tried_at
            if tried_at is not None and now < tried_at + self._pause_seconds:
                return None
            self._tried_at = now
            self._fetching = self._fetch()
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, future: asyncio.Future[bytes]) -> None:
        self._fetching = None
        if future.cancelled():
            return
        try:
            self._keys = parse_keys(future.result())
        except (OSError, ValueError) as error:
            self._log.warning("issuer_keys_not_fetched", reason=type(error).__name__)
