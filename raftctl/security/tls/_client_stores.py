"""The stores of a client whose connections another library makes."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from raftctl.security.tls._anonymous import anonymous_file

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from raftctl.config.security import TlsSettings
    from raftctl.runtime.api import FileSystem


class PemFiles(NamedTuple):
    """Paths of PEM files; None: the settings name no such store."""

    trusted: str | None
    identity: str | None
    """The private key, not encrypted, and its certificates."""


class ClientStores:
    """What the `ssl.` keys of a client name, whatever the type of its stores.

    Both methods raise ConfigError with key and remedy if a store cannot be used. What reads stores
    is imported where it is used, see `_endpoints`.
    """

    def __init__(self, settings: TlsSettings, files: FileSystem) -> None:
        self._settings = settings
        self._files = files

    def context(self) -> ssl.SSLContext:
        """Return a context, for a library in Python."""
        from raftctl.security.tls._contexts import client_context

        return client_context(self._settings, self._files)

    @contextmanager
    def pem_files(self) -> Iterator[PemFiles]:
        """Give the stores as files, for a library that reads them while its client is made.

        The files are in memory, and gone after the block.
        """
        from cryptography.hazmat.primitives.serialization import Encoding

        from raftctl.security.tls._stores import load_identity, load_trusted

        trusted = identity = None
        with ExitStack() as stack:
            if self._settings.truststore.is_given:
                certificates = load_trusted(self._settings, self._files, "")
                pem = b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
                trusted = stack.enter_context(anonymous_file(pem))
            if self._settings.keystore.is_given:
                loaded = load_identity(self._settings, self._files, "")
                identity = stack.enter_context(anonymous_file(loaded.pem()))
            yield PemFiles(trusted, identity)
