"""How clients are given what their `.properties` ask for: Kafka's libraries, and HTTP.

Clients are made at once from what the functions return: it holds passwords. ConfigError, with key
and remedy, for a store that cannot be used.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from raftctl.http_security import HttpSecurity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.config.security import ClientSecurity, TlsSettings
    from raftctl.runtime.api import FileSystem
    from raftctl.security.tls import PemFiles


def http_security(security: ClientSecurity, files: FileSystem) -> HttpSecurity:
    """Return how HTTP is secured. A user of SCRAM sends the password as well: use TLS."""
    from raftctl.security.tls import ClientStores

    login = security.login
    return HttpSecurity(
        None if security.tls is None else ClientStores(security.tls, files).context(),
        None if login is None else (login.user, login.password.get_secret_value()),
    )


@contextmanager
def librdkafka_settings(security: ClientSecurity, files: FileSystem) -> Iterator[dict[str, Any]]:
    """Give the settings for librdkafka, whose client is to be made within the block."""
    settings: dict[str, Any] = {"security.protocol": security.protocol}
    if security.login is not None:
        settings |= {
            "sasl.mechanism": security.login.mechanism,
            "sasl.username": security.login.user,
            "sasl.password": security.login.password.get_secret_value(),
        }
    if security.tls is None:
        yield settings
        return
    from raftctl.security.tls import ClientStores

    with ClientStores(security.tls, files).pem_files() as stores:
        yield settings | _librdkafka_tls(security.tls, stores)


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
    """Return the settings for aiokafka and kafka-python, which have the same names."""
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    if security.login is not None:
        settings |= {
            "sasl_mechanism": security.login.mechanism,
            "sasl_plain_username": security.login.user,
            "sasl_plain_password": security.login.password.get_secret_value(),
        }
    if security.tls is not None:
        from raftctl.security.tls import ClientStores

        settings["ssl_context"] = ClientStores(security.tls, files).context()
    return settings
