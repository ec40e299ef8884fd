"""Contexts of TLS, made from the settings of a listener or of a client.

A context is never changed once it is made: a listener that loads its stores again gets another.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding

from raftctl.errors import ConfigError
from raftctl.security.tls._anonymous import anonymous_file
from raftctl.security.tls._ciphers import TLS_1_3, openssl_names
from raftctl.security.tls._stores import Identity, load_identity, load_trusted

if TYPE_CHECKING:
    from raftctl.config.security import TlsSettings
    from raftctl.runtime.api import FileSystem

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings, files: FileSystem, listener: str) -> ssl.SSLContext:
    """Return the context for those who connect; ConfigError if the settings cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Of two, which OpenSSL makes, a client that resumes its session uses one.
    context.num_tickets = 1
    _restrict(context, settings, listener)
    _identify(context, load_identity(settings, files, listener), listener)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none":
        if not settings.truststore.is_given:
            # Else everybody with a certificate of any public authority would get in.
            raise ConfigError(
                f"ssl.truststore.location{_owner(listener)}: it is not set, but ssl.client.auth is "
                f"{settings.client_auth}: name the certificates that clients' are signed with"
            )
        _trust(context, settings, files, listener)
    return context


def client_context(settings: TlsSettings, files: FileSystem, listener: str = "") -> ssl.SSLContext:
    """Return the context for connecting to others; ConfigError if the settings cannot be used.

    Without a trust store the system's authorities are trusted, as Java does with its own.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings, listener)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    if settings.keystore.is_given:
        _identify(context, load_identity(settings, files, listener), listener)
    if settings.truststore.is_given:
        _trust(context, settings, files, listener)
    else:
        context.load_default_certs()
    return context


def _owner(listener: str) -> str:
    return f" of listener {listener}" if listener else ""


def _identify(context: ssl.SSLContext, identity: Identity, listener: str) -> None:
    try:
        with anonymous_file(identity.pem()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.keystore{_owner(listener)}: OpenSSL does not take the certificate or its key "
            f"({error.reason}): make another, such as EC P-256 or RSA with 2048 bits or more"
        ) from error


def _trust(
    context: ssl.SSLContext, settings: TlsSettings, files: FileSystem, listener: str
) -> None:
    trusted = b"".join(
        one.public_bytes(Encoding.DER) for one in load_trusted(settings, files, listener)
    )
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.truststore{_owner(listener)}: OpenSSL does not take a certificate of it "
            f"({error.reason}): take it out"
        ) from error
    # What is in the trust store is trusted, be it a root or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _restrict(context: ssl.SSLContext, settings: TlsSettings, listener: str) -> None:
    """Set the versions and suites that are spoken."""
    newest = _VERSIONS[settings.protocol]
    versions = [_VERSIONS[one] for one in settings.enabled_protocols]
    allowed = [one for one in versions if one <= newest]
    suites = settings.cipher_suites
    if suites:
        allowed = _allowed_with(suites, allowed, listener)
    if not allowed:
        raise ConfigError(
            f"ssl.enabled.protocols{_owner(listener)}: none is left by ssl.protocol and "
            "ssl.cipher.suites: enable TLSv1.2 or TLSv1.3, with suites of it"
        )
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    older = [one for one in suites if one not in TLS_1_3]
    if not older:
        return
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offered.set_ciphers("ALL")
    try:
        names = openssl_names(older, {one["name"] for one in offered.get_ciphers()})
    except ValueError as error:
        raise ConfigError(f"ssl.cipher.suites{_owner(listener)}: {error}") from error
    context.set_ciphers(":".join(names))


def _allowed_with(
    suites: tuple[str, ...], versions: list[ssl.TLSVersion], listener: str
) -> list[ssl.TLSVersion]:
    """Return the versions that the suites leave: without a suite of its own a version is off."""
    newest = [one for one in TLS_1_3 if one in suites]
    if not newest:
        return [one for one in versions if one < ssl.TLSVersion.TLSv1_3]
    if len(newest) < len(TLS_1_3) and ssl.TLSVersion.TLSv1_3 in versions:
        # Python's ssl has no call to choose among them.
        lacking = ", ".join(one for one in TLS_1_3 if one not in newest)
        raise ConfigError(
            f"ssl.cipher.suites{_owner(listener)}: of TLS 1.3 all suites or none are offered: add "
            f"{lacking}, or set ssl.enabled.protocols to TLSv1.2"
        )
    if len(newest) == len(suites):
        return [one for one in versions if one > ssl.TLSVersion.TLSv1_2]
    return versions
