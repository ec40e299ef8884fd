"""How clients are given what their `.properties` ask for: Kafka's libraries, and HTTP.

Clients are made at once from what the functions return: it holds passwords. ConfigError, with key
and remedy, for a store that cannot be used.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from raftctl.config.security import Jaas
from raftctl.errors import ConfigError
from raftctl.http_security import HttpSecurity
from raftctl.security.sasl import OAUTHBEARER
from raftctl.security.sasl.tokens import check_url, read_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.config.security import ClientLogin, ClientSecurity, TlsSettings
    from raftctl.runtime.api import FileSystem
    from raftctl.security.tls import PemFiles


def http_security(security: ClientSecurity, files: FileSystem) -> HttpSecurity:
    """Return how HTTP is secured. A user of SCRAM sends the password as well: use TLS.

    With OAUTHBEARER a token is got at once, and sent until it expires.
    """
    from raftctl.security.tls import ClientStores

    tls = None if security.tls is None else ClientStores(security.tls, files).context()
    source = token_source(security, files)
    if source is not None:
        try:
            return HttpSecurity(tls, token=source())
        except (OSError, ValueError) as error:
            raise ConfigError(f"no token can be had: {type(error).__name__}") from None
    login = security.login
    secret = None if login is None else (login.user, login.password.get_secret_value())
    return HttpSecurity(tls, secret)


@contextmanager
def librdkafka_settings(security: ClientSecurity, files: FileSystem) -> Iterator[dict[str, Any]]:
    """Give the settings for librdkafka, whose client is to be made within the block."""
    settings: dict[str, Any] = {"security.protocol": security.protocol}
    if security.login is not None:
        settings |= _librdkafka_login(security.login)
    if security.tls is None:
        yield settings
        return
    from raftctl.security.tls import ClientStores

    with ClientStores(security.tls, files).pem_files() as stores:
        yield settings | _librdkafka_tls(security.tls, stores)


def _librdkafka_login(login: ClientLogin) -> dict[str, Any]:
    secret = login.password.get_secret_value()
    if login.mechanism != OAUTHBEARER:
        return {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": secret,
        }
    return {
        "sasl.mechanism": login.mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": login.user,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": _token_endpoint(login),
        **({} if login.scope is None else {"sasl.oauthbearer.scope": login.scope}),
    }


def _librdkafka_tls(settings: TlsSettings, stores: PemFiles) -> dict[str, Any]:
    is_checked = bool(settings.endpoint_identification_algorithm)
    given = {
        "ssl.endpoint.identification.algorithm": "https" if is_checked else "none",
        "ssl.ca.location": stores.trusted,
        "ssl.certificate.location": stores.identity,
        "ssl.key.location": stores.identity,
    }
    return {key: value for key, value in given.items() if value is not None}


def python_settings(security: ClientSecurity, files: FileSystem) -> dict[str, Any]:
    """Return the settings for aiokafka and kafka-python, which have the same names.

    With OAUTHBEARER they lack `sasl_oauth_token_provider`, an object of each library's own, which
    is made of what `token_source` returns.
    """
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    login = security.login
    if login is not None:
        settings["sasl_mechanism"] = login.mechanism
    if login is not None and login.mechanism != OAUTHBEARER:
        settings |= {
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password.get_secret_value(),
        }
    if security.tls is not None:
        from raftctl.security.tls import ClientStores

        settings["ssl_context"] = ClientStores(security.tls, files).context()
    return settings


def token_source(security: ClientSecurity, files: FileSystem) -> Callable[[], str] | None:
    """Return what gets a token, and blocks meanwhile; None if the client logs in without one.

    It raises OSError or ValueError, without a secret, if there is no token.
    """
    login = security.login
    if login is None or login.mechanism != OAUTHBEARER:
        return None
    url = _token_endpoint(login)
    module = login.settings.jaas or Jaas("")
    return lambda: read_token(url, module, files)


def _token_endpoint(login: ClientLogin) -> str:
    """Return where tokens are; ConfigError if the secret could be read on its way there."""
    url = login.token_endpoint_url or ""
    try:
        check_url(url)
    except ValueError as error:
        raise ConfigError(f"sasl.oauthbearer.token.endpoint.url={url}: {error}") from None
    return url
