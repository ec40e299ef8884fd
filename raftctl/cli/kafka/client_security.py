"""`--command-config`: how a command connects to a secured cluster, for each library that it uses.

The file has the keys of Apache Kafka's tools (`raftctl.config.parse_client_properties`). Passwords
and keys are in no error of these functions; clients are made at once from what they return.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raftctl.cli._output import say_progress
from raftctl.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.config.security import ClientSecurity
    from raftctl.http_security import HttpSecurity

_OPTION = "--command-config"
UNANSWERED = (
    "do brokers listen at the addresses of --bootstrap-server, with the protocol that "
    "--command-config names?"
)
"""What to look at if no node answers."""


def read_client_security(path: str | None) -> ClientSecurity:
    """Return what the file asks for; without one, a plain connection. ConfigError names the key."""
    from raftctl.config import parse_client_properties
    from raftctl.config.security import ClientSecurity
    from raftctl.runtime.real import RealFileSystem

    if path is None:
        return ClientSecurity()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(
            f"{_OPTION} {path}: cannot be read ({reason}): name a readable file"
        ) from None
    try:
        security = parse_client_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{_OPTION} {path}: {error}") from None
    if security.has_secret and RealFileSystem().is_readable_by_all(path):
        say_progress(f"{_OPTION} {path}: all users may read it, and it holds a secret: chmod 600")
    return security


def read_http_security(path: str | None) -> HttpSecurity:
    """Return how HTTP connects to controllers; see `read_client_security`."""
    from raftctl.http_security import NO_SECURITY

    return NO_SECURITY if path is None else to_http(read_client_security(path))


def to_http(security: ClientSecurity) -> HttpSecurity:
    """Return how HTTP connects, of what the file asks for."""
    from raftctl.runtime.real import RealFileSystem
    from raftctl.security.clients import http_security

    return http_security(security, RealFileSystem())


@contextmanager
def librdkafka_security(path: str | None) -> Iterator[dict[str, Any]]:
    """Give the settings for librdkafka, whose client is to be made within the block.

    The client's `poll` raises KafkaError(SASL_AUTHENTICATION_FAILED) once a login was refused.
    librdkafka itself would log in again and again, and not say why no broker answers.
    """
    # Most commands need neither, and both take long to import.
    from raftctl.runtime.real import RealFileSystem
    from raftctl.security.clients import librdkafka_settings

    with librdkafka_settings(read_client_security(path), RealFileSystem()) as settings:
        yield settings | {"error_cb": _raise_refusal}


def _raise_refusal(error: Any) -> None:
    from confluent_kafka import KafkaError as Errors

    if error.code() == Errors._AUTHENTICATION:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.str())


def kafka_python_security(path: str | None) -> dict[str, Any]:
    """Return the settings for kafka-python."""
    from raftctl.runtime.real import RealFileSystem
    from raftctl.security.clients import python_settings, token_source

    security, files = read_client_security(path), RealFileSystem()
    settings, source = python_settings(security, files), token_source(security, files)
    if source is not None:
        settings["sasl_oauth_token_provider"] = _token_provider(source)
    return settings


def _token_provider(source: Callable[[], str]) -> object:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    @AbstractTokenProvider.register
    class Tokens:
        def token(self) -> str:
            """Get a token."""
            return source()

        def extensions(self) -> dict[str, str]:
            """Return what else is sent with it."""
            return {}

    return Tokens()
