"""Tokens of OAUTHBEARER: JSON web tokens, verified with the public keys of their issuer.

`TokenValidator` decides on a token; `IssuerKeys` holds the keys and has them fetched again, with
`read_document`. A `TokenIssuer` is both, for one listener. `read_token` gets a token for the side
that logs in. Only signatures by public keys are taken: a token that says `none`, or HS256 over a
key that everybody may read, proves nothing. Sources: RFC 7519, RFC 7517; KIP-768 and Apache Kafka's
BrokerJwtValidator for the claims.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from raftctl.errors import ConfigError
from raftctl.security.sasl._documents import check_url, read_document, read_token
from raftctl.security.sasl._mechanism import Login, SaslError, UnknownKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from raftctl.config.security import OAuthBearerSettings
    from raftctl.runtime.api import Runtime

__all__ = [
    "ALGORITHMS",
    "IssuerKeys",
    "TokenIssuer",
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
_DOUBLINGS_MAX = 30
_JWKS_KEY = "sasl.oauthbearer.jwks.endpoint.url"
_REMEDY = "write the issuer's public keys there, as a JWKS"


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
        if not isinstance(header, dict):
            raise SaslError("the token's header is no object")
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
    make this node ask the issuer again and again. After a failure the pause is short at first, and
    doubles. While the issuer cannot be reached, the keys that were fetched last stay.
    """

    def __init__(
        self,
        fetch: Callable[[], asyncio.Future[bytes]],
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        *,
        refresh_seconds: float,
        retry_seconds: float,
        pause_seconds: float,
    ) -> None:
        """`fetch` reads the document off the event loop; `clock` is the loop's, in seconds.

        A pause is `pause_seconds`; after the first failure it is `retry_seconds`.
        """
        self._retry_seconds = retry_seconds
        self._failures = 0
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
            if tried_at is not None and now < tried_at + self._pause:
                return None
            self._tried_at = now
            self._fetching = self._fetch()
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    @property
    def _pause(self) -> float:
        if self._failures == 0:
            return self._pause_seconds
        doublings = min(self._failures - 1, _DOUBLINGS_MAX)
        return min(self._retry_seconds * (1 << doublings), self._pause_seconds)

    def _fetched(self, future: asyncio.Future[bytes]) -> None:
        self._fetching = None
        if future.cancelled():
            return
        try:
            self._keys = parse_keys(future.result())
            self._failures = 0
        except (OSError, ValueError) as error:
            self._failures += 1
            self._log.warning("issuer_keys_not_fetched", reason=type(error).__name__)


class TokenIssuer:
    """The issuer of the tokens of one listener."""

    def __init__(self, settings: OAuthBearerSettings, runtime: Runtime) -> None:
        """ConfigError if the library that verifies tokens is not installed."""
        url = self._url = settings.jwks_endpoint_url or ""
        if importlib.util.find_spec("joserfc") is None:
            raise ConfigError(
                "sasl.enabled.mechanisms has OAUTHBEARER, which needs the library joserfc: "
                "install raftctl[oauth]"
            )
        try:
            check_url(url)
        except ValueError as error:
            raise ConfigError(f"{_JWKS_KEY}={url}: {error}") from error
        self._worker = runtime.worker("issuer-keys")
        self._keys = IssuerKeys(
            lambda: self._worker.submit(partial(read_document, url, runtime.files)),
            asyncio.get_running_loop().time,
            runtime.log.bind(logger="raftctl.authentication", url=url),
            refresh_seconds=settings.jwks_endpoint_refresh_ms / 1000,
            retry_seconds=settings.jwks_endpoint_retry_backoff_ms / 1000,
            pause_seconds=settings.jwks_endpoint_retry_backoff_max_ms / 1000,
        )
        rules = TokenRules(
            settings.expected_audience,
            settings.expected_issuer,
            settings.clock_skew_s,
            settings.sub_claim_name,
        )
        self.validate = TokenValidator(rules, self._keys.find).validate
        """See `TokenValidator.validate`."""

    async def start(self) -> None:
        """Fetch the keys, so that the first client need not wait for them.

        ConfigError if they are in a file that has none. A server that cannot be reached may be
        there later: until then nobody logs in with a token.
        """
        await self._keys.refresh()
        if self._url.startswith("file:") and not self._keys.are_known:
            raise ConfigError(f"{_JWKS_KEY}={self._url}: no keys are there: {_REMEDY}")

    async def refresh(self) -> None:
        """Fetch the keys, unless that was tried a moment ago."""
        await self._keys.refresh()

    def refresh_if_old(self) -> None:
        """Begin to fetch the keys again if they are old."""
        self._keys.refresh_if_old()

    def close(self) -> None:
        """End the worker that fetches keys."""
        self._worker.close()
