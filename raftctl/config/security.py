"""What a listener asks for of TLS, SASL and limits: the values of its keys.

A listener's settings are those of the node with its own `listener.name.NAME.` in their place.
`NodeConfig.listener_security` makes them. Secrets are `SecretStr`: their text is in no repr.
Source: Apache Kafka's SslConfigs, BrokerSecurityConfigs and JaasConfig; KIP-103, KIP-226, KIP-651.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import SecretStr

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SECURITY_PROTOCOLS: tuple[SecurityProtocol, ...] = get_args(SecurityProtocol)
StoreType = Literal["JKS", "PKCS12", "PEM"]
ClientAuth = Literal["none", "requested", "required"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Certificates, and of a key store the private key: in a file, or given as text (KIP-651)."""

    type: StoreType = "JKS"
    location: str | None = None
    password: SecretStr | None = None
    """Of the file; a PEM file has none."""
    key: SecretStr | None = None
    """The private key as PEM text, in PKCS #8."""
    certificates: str | None = None
    """PEM text: the chain of the key, or the certificates that are trusted."""

    @property
    def is_given(self) -> bool:
        """True if there is a file or text."""
        return bool(self.location or self.key or self.certificates)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The `ssl.` keys of a listener, or of a client."""

    keystore: StoreSettings = StoreSettings()
    key_password: SecretStr | None = None
    """Of the private key, where it has one of its own."""
    truststore: StoreSettings = StoreSettings()
    client_auth: ClientAuth = "none"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    protocol: str = "TLSv1.3"
    """The newest version that is offered."""
    cipher_suites: tuple[str, ...] = ()
    """IANA's names; empty: what the library has."""
    principal_mapping_rules: str = "DEFAULT"
    endpoint_identification_algorithm: str = "https"
    """Of the client's side; empty: the name of a server is not checked."""


@dataclass(frozen=True, slots=True)
class Jaas:
    """A login module and its options, as `sasl.jaas.config` has them."""

    login_module: str
    options: Mapping[str, SecretStr] = field(default_factory=dict)

    def option(self, name: str) -> str | None:
        """Return the text of an option; None if it is not there."""
        value = self.options.get(name)
        return None if value is None else value.get_secret_value()


@dataclass(frozen=True, slots=True)
class OAuthBearerSettings:
    """The `sasl.oauthbearer.` keys: whose tokens are taken, and what in them counts."""

    jwks_endpoint_url: str | None = None
    """`https:`, `http:` or `file:`."""
    token_endpoint_url: str | None = None
    """Where the side that logs in gets its token."""
    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    clock_skew_s: int = 30
    sub_claim_name: str = "sub"
    jwks_endpoint_refresh_ms: int = 3_600_000
    jwks_endpoint_retry_backoff_ms: int = 100
    jwks_endpoint_retry_backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """The keys of one mechanism on one listener."""

    name: str
    """As clients ask for it: SCRAM-SHA-512."""
    jaas: Jaas | None = None
    max_reauth_ms: int = 0
    """How long a session lasts (KIP-368); 0: as long as its connection."""
    oauthbearer: OAuthBearerSettings = OAuthBearerSettings()


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The `sasl.` keys of a listener."""

    mechanisms: Mapping[str, MechanismSettings] = field(default_factory=dict)
    """Those that are enabled, by name, in order."""
    login: MechanismSettings | None = None
    """How a node logs in to others' listeners of this name; None if nodes do not speak there."""
    server_max_receive_size: int = 524_288
    """The largest frame before a client is authenticated, in bytes."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """What protects a listener. `tls` is there with SSL and SASL_SSL, `sasl` with SASL_*."""

    name: str
    protocol: SecurityProtocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """A user that logs in by a password, or gets a token with it."""

    mechanism: str
    user: str
    """With OAUTHBEARER the `clientId`, and the password is its `clientSecret`."""
    password: SecretStr
    token_endpoint_url: str | None = None
    """With OAUTHBEARER: where it gets its tokens."""
    scope: str | None = None

    @property
    def settings(self) -> MechanismSettings:
        """The keys with which a node would log in as this user."""
        names = ("username", "password")
        if self.token_endpoint_url is not None:
            names = ("clientId", "clientSecret")
        options = dict(zip(names, (SecretStr(self.user), self.password), strict=True))
        if self.scope is not None:
            options["scope"] = SecretStr(self.scope)
        return MechanismSettings(
            self.mechanism,
            Jaas(LOGIN_MODULES[self.mechanism], options),
            oauthbearer=OAuthBearerSettings(token_endpoint_url=self.token_endpoint_url),
        )


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects. `tls` is there with SSL and SASL_SSL, `login` with SASL_*."""

    protocol: SecurityProtocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    login: ClientLogin | None = None

    @property
    def has_secret(self) -> bool:
        """Whether there is a password or a key among its values."""
        tls = self.tls
        of_tls = () if tls is None else (tls.keystore.password, tls.keystore.key, tls.key_password)
        return self.login is not None or any(of_tls)


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Bounds of the connections of one listener (KIP-402, KIP-612)."""

    max_connections: int
    max_connection_creation_rate: int
    """A second."""


# --- JAAS -----------------------------------------------------------------------------------------

_PACKAGE = "org.apache.kafka.common.security"
LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
"""The login module of each mechanism, by Apache Kafka's names."""

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s=;"']+)|([=;]))""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}


def parse_jaas(text: str) -> Jaas:
    """Parse `MODULE required NAME="VALUE" ...;`. ValueError, without the text, if malformed."""
    tokens = _jaas_tokens(text)
    words, punctuation = [one for one, _ in tokens], [is_mark for _, is_mark in tokens]
    if len(words) < 3 or words.count(";") < 1 or any(punctuation[:2]):
        raise ValueError('malformed: write MODULE required NAME="VALUE" ...; in one line')
    if words[1].lower() not in _FLAGS:
        raise ValueError("the word after the login module is no control flag: write required")
    options = {}
    rest = list(tokens[2:])
    while rest and rest[0] != (";", True):
        if len(rest) < 3 or rest[1] != ("=", True) or rest[0][1] or rest[2][1]:
            raise ValueError('an option is malformed: write NAME="VALUE", and ; after the last')
        options[rest[0][0]] = SecretStr(rest[2][0])
        rest = rest[3:]
    if rest != [(";", True)]:
        raise ValueError("it must have one login module, and ; at its end: write it so")
    return Jaas(words[0], options)


def _jaas_tokens(text: str) -> list[tuple[str, bool]]:
    """Return (token, whether it is `=` or `;` outside of quotes)."""
    tokens, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark is not closed: close it")
        double, single, word, mark = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescaped, quoted), False))
        else:
            tokens.append((word or mark, word is None))
        position = match.end()
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    return _CONTROL.get(match[1], match[1])
