"""TLS of one node."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError
from raftctl.security.tls._endpoints import ReloadedContext, TlsClient, TlsListener
from raftctl.security.tls._handshakes import Handshakes

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from structlog.typing import FilteringBoundLogger

    from raftctl.config.security import TlsSettings
    from raftctl.runtime.api import FileSystem, Runtime


class NodeTls:
    """The listeners and clients of one node, which share what handshakes may take."""

    def __init__(self, runtime: Runtime, log: FilteringBoundLogger) -> None:
        self._runtime = runtime
        self._log = log.bind(logger="raftctl.tls")
        self.handshakes = Handshakes(runtime)
        self._contexts: list[ReloadedContext] = []

    def listener(self, settings: TlsSettings, name: str) -> TlsListener:
        """Load the stores of a listener; ConfigError with key and remedy if they cannot be used."""
        from raftctl.security.tls._contexts import server_context

        log = self._log.bind(listener=name)
        context = self._context(server_context, settings, name, log)
        return TlsListener(settings, name, context, self.handshakes, log)

    async def check(self, settings: TlsSettings, former: TlsSettings, name: str) -> None:
        """Load the stores of a listener for nobody; ConfigError as `listener`.

        Or if its certificate is for others than that of the `former` settings, whose stores may
        be gone.
        """
        await self.handshakes.run(partial(_check, settings, former, self._runtime.files, name))

    def client(self, settings: TlsSettings, name: str) -> TlsClient:
        """Load the stores for connecting to listeners of a name; ConfigError as `listener`."""
        from raftctl.security.tls._contexts import client_context

        log = self._log.bind(listener=name, side="client")
        return TlsClient(self._context(client_context, settings, name, log), self.handshakes)

    def _context(
        self,
        make: Callable[[TlsSettings, FileSystem, str], SSLContext],
        settings: TlsSettings,
        name: str,
        log: FilteringBoundLogger,
    ) -> ReloadedContext:
        files = self._runtime.files
        context = ReloadedContext(
            lambda settings: make(settings, files, name),
            settings,
            self._runtime,
            self.handshakes,
            log,
        )
        self._contexts.append(context)
        return context

    def close(self) -> None:
        """End the handshakes, and look at no file any more."""
        for context in self._contexts:
            context.close()
        self.handshakes.close()


def _check(settings: TlsSettings, former: TlsSettings, files: FileSystem, name: str) -> None:
    from raftctl.security.tls._contexts import server_context
    from raftctl.security.tls._stores import check_names, load_identity

    server_context(settings, files, name)
    newer = load_identity(settings, files, name)
    try:
        before = load_identity(former, files, name)
    except ConfigError:
        return
    try:
        check_names(newer, before)
    except ValueError as error:
        raise ConfigError(f"ssl.keystore of listener {name}: {error}") from error
