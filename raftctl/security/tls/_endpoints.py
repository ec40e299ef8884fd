"""The two ends of TLS: a listener that others connect to, and a client that connects to others.

Both keep the newest context, and make another when a file of their stores has changed. A store that
cannot be used is reported once, and the context before it stays.

What reads stores and names is imported where the first of them is made: its libraries take as long
to import as a node to start, and a node without TLS needs none of them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from raftctl.errors import ConfigError
from raftctl.security.tls._connection import RECEIVE_BYTES, Gate, TlsConnection
from raftctl.security.tls._mapping import PrincipalMapper

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from raftctl.config.security import TlsSettings
    from raftctl.runtime.api import Runtime
    from raftctl.security.tls._handshakes import Handshakes

    Stamp = tuple[tuple[str, int | None], ...]
    """The files of the stores, each with when it was last written; None: it is not there."""
    MakeContext = Callable[[TlsSettings], ssl.SSLContext]

RELOAD_S = 3.0
"""How often files are looked at for a change."""


P = TypeVar("P", bound=asyncio.BaseProtocol)


class _Loaded(NamedTuple):
    """What came of loading the stores."""

    settings: TlsSettings
    stamp: Stamp
    outcome: ssl.SSLContext | ConfigError


class ReloadedContext:
    """A context, made again when a file of its stores changes."""

    def __init__(
        self,
        make: MakeContext,
        settings: TlsSettings,
        runtime: Runtime,
        handshakes: Handshakes,
        log: FilteringBoundLogger,
    ) -> None:
        """ConfigError if the settings cannot be used."""
        self._make = make
        self._settings = settings
        self._runtime = runtime
        self._handshakes = handshakes
        self._log = log
        self._loaded, self._stamp = settings, self._look(settings)
        self.newest = make(settings)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._watch()
        from raftctl.security.tls._stores import open_key_file

        path = open_key_file(settings, runtime.files)
        if path is not None:
            self._log.warning(
                "private_key_readable_by_all",
                file=path,
                remedy="chmod 600, or 640 with the node's group",
            )

    def update(self, settings: TlsSettings) -> None:
        """Take up other settings; the context stays until one is made of them."""
        if settings != self._settings:
            self._settings = settings
            self._look_aside()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(RELOAD_S, self._look_aside)

    def close(self) -> None:
        """Look at the files no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, settings: TlsSettings) -> Stamp:
        found: list[tuple[str, int | None]] = []
        for store in (settings.keystore, settings.truststore):
            if store.location:
                try:
                    found.append((store.location, self._runtime.files.modified_ms(store.location)))
                except OSError:
                    found.append((store.location, None))
        return tuple(found)

    def _look_aside(self) -> None:
        if not self._handshakes.is_closed:
            load = partial(self._load_if_changed, self._settings, self._loaded, self._stamp)
            self._handshakes.run(load).add_done_callback(self._take)

    def _load_if_changed(
        self, settings: TlsSettings, loaded: TlsSettings, last: Stamp
    ) -> _Loaded | None:
        """Make a context if the settings or a file have changed; called on a worker."""
        stamp = self._look(settings)
        if (settings, stamp) == (loaded, last):
            return None
        try:
            return _Loaded(settings, stamp, self._make(settings))
        except ConfigError as error:
            return _Loaded(settings, stamp, error)

    def _take(self, future: asyncio.Future[_Loaded | None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._watch()
        loaded = future.result()
        if loaded is None or loaded.settings != self._settings:
            # Settings that came meanwhile are loaded by a call of their own.
            return
        self._loaded, self._stamp = loaded.settings, loaded.stamp
        if isinstance(loaded.outcome, ConfigError):
            self._log.error(
                "certificates_not_reloaded", reason=str(loaded.outcome), effect="the old ones stay"
            )
            return
        self.newest = loaded.outcome
        self._log.info("certificates_reloaded")


class TlsListener:
    """TLS for those who connect to a listener; made by `NodeTls`."""

    def __init__(
        self,
        settings: TlsSettings,
        listener: str,
        context: ReloadedContext,
        handshakes: Handshakes,
        log: FilteringBoundLogger,
    ) -> None:
        """See `NodeTls.listener`."""
        from raftctl.security.tls._names import subject_of

        try:
            self._mapper = PrincipalMapper(settings.principal_mapping_rules)
        except ValueError as error:
            raise ConfigError(
                f"ssl.principal.mapping.rules of listener {listener}: {error}"
            ) from error
        self._subject_of = subject_of
        self._context = context
        self._handshakes = handshakes
        self._log = log
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def update(self, settings: TlsSettings) -> None:
        """Take up other stores; connections that are made from then on have them."""
        self._context.update(settings)

    def wrap(
        self,
        inner: asyncio.BaseProtocol,
        identify: Callable[[str | None], None],
        gate: Gate | None = None,
    ) -> TlsConnection:
        """Return the protocol of an accepted connection, with another inside.

        `identify` takes the principal's name by the peer's certificate, None if it has shown none,
        before `inner` is connected. The handshake begins when `gate` says so, without one at once.
        """

        return TlsConnection(
            inner,
            self._context.newest,
            self._handshakes,
            self._scratch,
            on_shaken=lambda connection: self._refusal(connection, identify),
            on_failed=self._failed,
            gate=gate,
        )

    def _refusal(
        self, connection: TlsConnection, identify: Callable[[str | None], None]
    ) -> str | None:
        """Identify a peer, or return the reason to refuse it."""
        certificate = connection.certificate
        if certificate is None:
            identify(None)
            return None
        try:
            subject = self._subject_of(certificate)
        except ValueError as error:
            return f"its certificate cannot be read: {error}"
        name = self._mapper.name(subject)
        if name is None:
            return f"no rule of ssl.principal.mapping.rules is for its certificate, {subject}"
        identify(name)
        return None

    def _failed(self, connection: TlsConnection, reason: str) -> None:
        peer = connection.peer
        address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._log.warning("connection_closed", peer=address, reason=reason)


class TlsClient:
    """TLS for connecting to others; made by `NodeTls`."""

    def __init__(self, context: ReloadedContext, handshakes: Handshakes) -> None:
        """See `NodeTls.client`."""
        self._context = context
        self._handshakes = handshakes
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def update(self, settings: TlsSettings) -> None:
        """Take up other stores; connections that are made from then on have them."""
        self._context.update(settings)

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect, and return the protocol once the handshake is done; OSError if that fails."""
        loop = asyncio.get_running_loop()
        shaken: asyncio.Future[None] = loop.create_future()

        def succeeded(connection: TlsConnection) -> None:
            del connection
            if not shaken.done():
                shaken.set_result(None)

        def failed(connection: TlsConnection, reason: str) -> None:
            del connection
            if not shaken.done():
                shaken.set_exception(ConnectionError(reason))

        inner = make_protocol()
        transport, _ = await loop.create_connection(
            lambda: TlsConnection(
                inner,
                self._context.newest,
                self._handshakes,
                self._scratch,
                server_hostname=host,
                on_shaken=succeeded,
                on_failed=failed,
            ),
            host,
            port,
        )
        try:
            await shaken
        except asyncio.CancelledError:
            transport.abort()
            raise
        return inner
