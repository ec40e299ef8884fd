"""Where the Kafka clients of a test begin, and how they log in."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class Login(Protocol):
    """How clients log in to a secured cluster. What it returns holds passwords: for no text."""

    @property
    def has_user(self) -> bool:
        """Return whether a client logs in by SASL."""

    @property
    def generation(self) -> int:
        """Return how often the password has changed: a client made before has an older one."""
        return 0

    def librdkafka(self) -> AbstractContextManager[dict[str, Any]]:
        """Give librdkafka's settings, for a client that is made within the block."""

    def aiokafka(self) -> dict[str, Any]:
        """Return aiokafka's settings."""

    def context(self) -> ssl.SSLContext | None:
        """Return the context of TLS; None without TLS."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """The addresses of brokers, HOST:PORT and commas, with the login; None: plain connections."""

    bootstrap_servers: str
    login: Login | None = None
    command_config: str = ""
    """The path of the login's file, for tools that read it; empty without one."""

    @property
    def generation(self) -> int:
        """Return that of the login; 0 without one."""
        return 0 if self.login is None else self.login.generation

    @contextmanager
    def librdkafka(self) -> Iterator[dict[str, Any]]:
        """Give librdkafka's settings, for a client that is made within the block."""
        where = {"bootstrap.servers": self.bootstrap_servers}
        if self.login is None:
            yield where
            return
        with self.login.librdkafka() as settings:
            yield settings | where

    def aiokafka(self) -> dict[str, Any]:
        """Return aiokafka's settings."""
        settings = {} if self.login is None else self.login.aiokafka()
        return settings | {"bootstrap_servers": self.bootstrap_servers}
