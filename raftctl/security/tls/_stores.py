"""Key stores and trust stores: what the `ssl.` keys name, read and checked.

Every error is a ConfigError with the key, the file and the remedy, and never with a password.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from raftctl.errors import ConfigError
from raftctl.security.tls import _jks, _pem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import SecretStr

    from raftctl.config.security import StoreSettings, TlsSettings
    from raftctl.runtime.api import FileSystem

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_PEM = "PEM"


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key with its certificates: its own first, then those that lead to a root."""

    key: PrivateKeyTypes
    chain: tuple[x509.Certificate, ...]

    def pem(self) -> bytes:
        """Return the key, not encrypted, and the certificates, as OpenSSL reads them."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(one.public_bytes(Encoding.PEM) for one in self.chain)

    def check(self) -> Identity:
        """Return itself; ValueError unless the first certificate is that of the key."""
        owned, certified = (
            public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            for public in (self.key.public_key(), self.chain[0].public_key())
        )
        if owned != certified:
            raise ValueError(
                "the first certificate is not that of the private key: put the key's own first"
            )
        return self


def load_identity(settings: TlsSettings, files: FileSystem, listener: str) -> Identity:
    """Return what the keys `ssl.keystore.` name; ConfigError if that cannot be used."""
    store, place = settings.keystore, _Place("keystore", listener)
    place.check_pem(store)
    key_password = _text(settings.key_password)
    if store.key is not None or store.certificates is not None:
        if store.key is None or store.certificates is None:
            lacking = "key" if store.key is None else "certificate.chain"
            raise place.error(lacking, "only the other half of the pair is set: set it too")
        try:
            key = _pem.private_key(store.key.get_secret_value(), key_password)
        except ValueError as error:
            raise place.error("key", str(error)) from error
        try:
            return Identity(key, tuple(_pem.certificates(store.certificates))).check()
        except ValueError as error:
            raise place.error("certificate.chain", str(error)) from error
    data = place.read(store, files)
    try:
        if store.type == _PEM:
            text = data.decode("utf-8", "replace")
            key, chain = _pem.private_key(text, key_password), _pem.certificates(text)
        else:
            key, chain = _java_identity(data, _text(store.password), key_password)
        return Identity(key, tuple(chain)).check()
    except _jks.WrongPasswordError as error:
        raise place.wrong_password(store, error) from error
    except ValueError as error:
        raise place.error("location", f"{store.location}: {error}") from error


def check_names(newer: Identity, former: Identity) -> None:
    """Refuse a certificate that is not for whom the one before it was; ValueError says why.

    As with Apache Kafka, which checks this where a config changes a store: others know a node by
    these names, and a mistake would lock them out.
    """
    names, before = newer.chain[0].subject, former.chain[0].subject
    if names != before:
        raise ValueError(
            f"its certificate is for {names.rfc4514_string()}, the one before it for "
            f"{before.rfc4514_string()}: keep the name, or restart with the new one"
        )
    lacking = _alternatives(former) - _alternatives(newer)
    if lacking:
        raise ValueError(
            f"its certificate lacks names of the one before it ({', '.join(sorted(lacking))}): "
            "keep them, or restart without them"
        )


def _alternatives(identity: Identity) -> set[str]:
    try:
        found = identity.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found.value}


def load_trusted(
    settings: TlsSettings, files: FileSystem, listener: str
) -> tuple[x509.Certificate, ...]:
    """Return the certificates that the keys `ssl.truststore.` name; ConfigError if there is none.

    Each of them is trusted as it is, whether or not it is a root, as Java does.
    """
    store, place = settings.truststore, _Place("truststore", listener)
    place.check_pem(store)
    if store.certificates is not None:
        try:
            return tuple(_pem.certificates(store.certificates))
        except ValueError as error:
            raise place.error("certificates", str(error)) from error
    data = place.read(store, files)
    try:
        if store.type == _PEM:
            return tuple(_pem.certificates(data.decode("utf-8", "replace")))
        return _java_trusted(data, _text(store.password))
    except _jks.WrongPasswordError as error:
        raise place.wrong_password(store, error) from error
    except ValueError as error:
        raise place.error("location", f"{store.location}: {error}") from error


def open_key_file(settings: TlsSettings, files: FileSystem) -> str | None:
    """Return the path of a private key that every user of the machine could read and use.

    None if only its owner and group can read the file, or a password protects the key in it.
    """
    store = settings.keystore
    if store.location is None or not files.is_readable_by_all(store.location):
        return None
    if store.type != _PEM:
        return None
    text = files.read(store.location).decode("utf-8", "replace")
    return store.location if _pem.has_open_key(text) else None


class _Place:
    """Where a store comes from, for errors: its keys, and its listener if it is of one."""

    def __init__(self, kind: str, listener: str) -> None:
        self._kind = kind
        self._owner = f" of listener {listener}" if listener else ""

    def error(self, key: str, text: str) -> ConfigError:
        """Return an error about a key of this store."""
        return ConfigError(f"ssl.{self._kind}.{key}{self._owner}: {text}")

    def wrong_password(self, store: StoreSettings, error: Exception) -> ConfigError:
        """Return an error about the password of the store."""
        return self.error("password", f"{store.location}: {error}")

    def check_pem(self, store: StoreSettings) -> None:
        """Raise where keys contradict each other, as in Apache Kafka."""
        is_text = store.key is not None or store.certificates is not None
        if is_text and store.type != _PEM:
            raise self.error("type", f"it is {store.type}, but PEM text is set: set PEM")
        if is_text and store.location:
            raise self.error("location", "PEM text is set as well: take one of them out")
        if store.type == _PEM and store.password is not None:
            raise self.error("password", "a PEM store has none: set ssl.key.password instead")

    def read(self, store: StoreSettings, files: FileSystem) -> bytes:
        """Return the content of the file."""
        if not store.location:
            raise self.error("location", "it is not set: name the file")
        try:
            return files.read(store.location)
        except OSError as error:
            reason = error.strerror or str(error)
            raise self.error(
                "location", f"{store.location} cannot be read ({reason}): name a readable file"
            ) from error


def _text(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _java_identity(
    data: bytes, password: str | None, key_password: str | None
) -> tuple[PrivateKeyTypes, list[x509.Certificate]]:
    """Read JKS or PKCS12, whichever it is: Java takes either for either, so files are misnamed."""
    if data.startswith(_jks.MAGIC):
        store = _jks.parse_jks(data, password)
        if not store.keys:
            raise ValueError("it has no private key: import one with its certificates")
        entry = store.keys[0]
        key = load_der_private_key(entry.decrypt(key_password or password or ""), None)
        return key, [x509.load_der_x509_certificate(one) for one in entry.chain]
    found = _pkcs12(data, password)
    if found.key is None or found.cert is None:
        raise ValueError("it has no private key with a certificate: import one")
    leaf = found.cert.certificate
    return found.key, _ordered(leaf, [one.certificate for one in found.additional_certs])


def _java_trusted(data: bytes, password: str | None) -> tuple[x509.Certificate, ...]:
    if data.startswith(_jks.MAGIC):
        encoded = _jks.parse_jks(data, password).trusted
        trusted = tuple(x509.load_der_x509_certificate(one) for one in encoded)
    else:
        trusted = tuple(one.certificate for one in _pkcs12(data, password).additional_certs)
    if not trusted:
        raise ValueError("it has no trusted certificate: import one")
    return trusted


def _pkcs12(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    if data.startswith(_JCEKS_MAGIC):
        raise ValueError("JCEKS is not supported: convert it by keytool -importkeystore to PKCS12")
    if not data.startswith(b"\x30"):
        raise ValueError("it is neither JKS nor PKCS12: set the type, PEM for text")
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise _jks.WrongPasswordError(
            "the password does not open it, or the file is damaged: correct the password"
        ) from error


def _ordered(leaf: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the certificates from the leaf towards the root: PKCS12 keeps them in any order."""
    chain, left = [leaf], list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((one for one in left if one.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return chain
