"""The security keys of a client: what Apache Kafka's tools take by `--command-config`. Pure.

A key without an effect is refused: its writer counts on what it promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import ValidationError

from raftctl.config._complaints import complaint
from raftctl.config._definition import key, key_of, parsed_by
from raftctl.config._listeners import JAAS_KEY, tls_settings
from raftctl.config._properties import parse_properties
from raftctl.config._security_keys import Mechanism, Secret, TlsKeys, Url
from raftctl.config.security import (
    LOGIN_MODULES,
    ClientLogin,
    ClientSecurity,
    Jaas,
    SecurityProtocol,
    TlsSettings,
    parse_jaas,
)
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTHBEARER)
"""Those by which commands log in."""
_PROTOCOL, _MECHANISM = "security.protocol", "sasl.mechanism"
_ENDPOINT = "ssl.endpoint.identification.algorithm"
_STORES = ("ssl.keystore.", "ssl.truststore.")
_NAME_AND_SECRET = {_OAUTHBEARER: ("clientId", "clientSecret")}
_USER_AND_PASSWORD = ("username", "password")
_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_HANDLER = "sasl.login.callback.handler.class"
_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
"""Classes of Apache Kafka that get a token at the endpoint: files of its tools have to name one."""


class _ClientKeys(TlsKeys):
    """Those of TLS, and how a client logs in."""

    security_protocol: Annotated[SecurityProtocol, parsed_by(lambda text: text.strip().upper())] = (
        key("PLAINTEXT", "What the brokers' listener speaks.")
    )
    sasl_mechanism: Mechanism = key("", "How the client logs in.")
    sasl_jaas_config: Secret = key(None, "With which user and password.")
    sasl_oauthbearer_token_endpoint_url: Url = key(None, "Where the client gets its tokens.")
    sasl_login_callback_handler_class: str = key("", "The class that gets tokens there.")


_OF_LISTENERS = (
    "ssl.client.auth",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.principal.mapping.rules",
    "ssl.protocol",
)
"""Keys of TLS that only listeners have here."""
CLIENT_KEYS: tuple[str, ...] = tuple(
    name for name in map(key_of, _ClientKeys.model_fields) if name not in _OF_LISTENERS
)
"""Keys of a client that have an effect."""


def parse_client_properties(text: str) -> ClientSecurity:
    """Return how a client connects by its `.properties`.

    Raises ConfigError, with the key and the remedy and without a secret, for a key that has no
    effect, an invalid value, or keys that contradict each other.
    """
    values = {name: value.strip() for name, value in parse_properties(text).items()}
    for name in values:
        if name not in CLIENT_KEYS:
            raise ConfigError(
                f"{name}: it has no effect here: leave it out; the keys are "
                f"{', '.join(CLIENT_KEYS)}"
            )
    try:
        keys = _ClientKeys.model_validate(values)
    except ValidationError as error:
        raise ConfigError(complaint(error)) from None
    protocol = keys.security_protocol
    for prefix, kind in (("ssl.", "SSL"), ("sasl.", "SASL")):
        useless = [name for name in values if name.startswith(prefix)]
        if useless and kind not in protocol:
            raise ConfigError(
                f"{useless[0]}: {_PROTOCOL}={protocol} does not use it: set the protocol of the "
                "brokers' listener, or leave the key out"
            )
    return ClientSecurity(
        protocol,
        _checked_tls(keys, values) if protocol.endswith("SSL") else None,
        _login(keys) if protocol.startswith("SASL") else None,
    )


def _checked_tls(keys: _ClientKeys, values: Mapping[str, str]) -> TlsSettings:
    """Return the settings of TLS; ConfigError for a key that is about no store."""
    settings = tls_settings(keys)
    for prefix, store in zip(_STORES, (settings.keystore, settings.truststore), strict=True):
        related = [name for name in values if name.startswith(prefix)]
        if prefix == _STORES[0] and "ssl.key.password" in values:
            related.append("ssl.key.password")
        if related and not store.is_given:
            raise ConfigError(f"{related[0]}: it is about no file: set {prefix}location too")
    algorithm = settings.endpoint_identification_algorithm
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(f"{_ENDPOINT}={algorithm}: write https, or nothing for no check")
    return settings


def _login(keys: _ClientKeys) -> ClientLogin:
    """Return the name and the secret of `sasl.jaas.config`; ConfigError without them."""
    mechanism = keys.sasl_mechanism
    if mechanism not in MECHANISMS:
        given = f"={mechanism}" if mechanism else ""
        raise ConfigError(
            f"{_MECHANISM}{given}: commands log in by {', '.join(MECHANISMS)}: set one of them"
        )
    endpoint = _token_endpoint(keys)
    name, secret = _NAME_AND_SECRET.get(mechanism, _USER_AND_PASSWORD)
    jaas = _login_module(keys, name, secret)
    user = jaas.options[name].get_secret_value()
    return ClientLogin(mechanism, user, jaas.options[secret], endpoint, jaas.option("scope"))


def _token_endpoint(keys: _ClientKeys) -> str | None:
    """Return where tokens are; ConfigError without it, or with it for another mechanism."""
    url, handler = keys.sasl_oauthbearer_token_endpoint_url, keys.sasl_login_callback_handler_class
    if keys.sasl_mechanism != _OAUTHBEARER:
        for name, value in ((_TOKEN_ENDPOINT, url), (_HANDLER, handler)):
            if value:
                raise ConfigError(f"{name}: {keys.sasl_mechanism} has no tokens: leave it out")
        return None
    if handler and handler not in _HANDLERS:
        raise ConfigError(f"{_HANDLER}: classes of Java are not loaded: write {_HANDLERS[0]}")
    if url is None or not url.startswith(("https:", "http:")):
        raise ConfigError(f"{_TOKEN_ENDPOINT}: commands get tokens there: write https://HOST/PATH")
    return url


def _login_module(keys: _ClientKeys, name: str, secret: str) -> Jaas:
    """Return the login module with these options; ConfigError for another module or option."""
    mechanism = keys.sasl_mechanism
    module = LOGIN_MODULES[mechanism]
    remedy = f'write {module} required {name}="NAME" {secret}="SECRET";'
    if keys.sasl_jaas_config is None:
        raise ConfigError(f"{JAAS_KEY}: it is not set: {remedy}")
    try:
        jaas = parse_jaas(keys.sasl_jaas_config.get_secret_value())
    except ValueError as error:
        raise ConfigError(f"{JAAS_KEY}: {error}") from None
    if jaas.login_module != module:
        raise ConfigError(f"{JAAS_KEY}: it has no login module of {mechanism}: {remedy}")
    known = {name, secret, *(("scope",) if mechanism == _OAUTHBEARER else ())}
    useless = sorted(jaas.options.keys() - known)
    if useless:
        raise ConfigError(f"{JAAS_KEY}: the option {useless[0]} has no effect: leave it out")
    lacking = [one for one in (name, secret) if not jaas.option(one)]
    if lacking:
        raise ConfigError(f"{JAAS_KEY}: the option {lacking[0]} is not set: {remedy}")
    return jaas
