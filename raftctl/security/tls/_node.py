"""TLS of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.security.tls._endpoints import TlsClient, TlsListener
from raftctl.security.tls._handshakes import Handshakes

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from raftctl.config.security import TlsSettings
    from raftctl.runtime.api import Runtime
    from raftctl.security.tls._endpoints import ReloadedContext


class NodeTls:
    """The listeners and clients of one node, which share what handshakes may take."""

    def __init__(self, runtime: Runtime, log: FilteringBoundLogger) -> None:
        self._runtime = runtime
        self._log = log
        self.handshakes = Handshakes(runtime)
        self._contexts: list[ReloadedContext] = []

    def listener(self, settings: TlsSettings, name: str) -> TlsListener:
        """Load the stores of a listener; ConfigError with key and remedy if they cannot be used."""
        log = self._log.bind(listener=name)
        made = TlsListener(settings, name, self._runtime, self.handshakes, log)
        self._contexts.append(made.context)
        return made

    def client(self, settings: TlsSettings, name: str) -> TlsClient:
        """Load the stores for connecting to listeners of a name; ConfigError as `listener`."""
        log = self._log.bind(listener=name, side="client")
        made = TlsClient(settings, name, self._runtime, self.handshakes, log)
        self._contexts.append(made.context)
        return made

    def close(self) -> None:
        """End the handshakes, and look at no file any more."""
        for context in self._contexts:
            context.close()
        self.handshakes.close()
