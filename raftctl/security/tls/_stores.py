"""Key stores and trust stores: what the `ssl.` keys name, read and checked.

Every error is a ConfigError with the key, the file and the remedy, and never with a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from raftctl.errors import ConfigError
from raftctl.security.tls import _der

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import SecretStr

    from raftctl.config.security import StoreSettings, TlsSettings
    from raftctl.runtime.api import FileSystem


# --- names of certificates ------------------------------------------------------------------------


_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_STRINGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""Tags of UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED = str.maketrans({char: f"\\{char}" for char in ',=+<>#;"\\'} | {"\0": "\\00"})


def subject_of(certificate: bytes) -> str:
    """Return the subject of an X.509 certificate in DER; ValueError if it cannot be read."""
    return distinguished_name(x509.load_der_x509_certificate(certificate).subject.public_bytes())


def distinguished_name(name: bytes) -> str:
    """Return a Name in DER as text; ValueError if it is malformed."""
    parts = [
        "+".join(map(_attribute, attributes.children(_der.SET)))
        for attributes in _der.parse(name).children(_der.SEQUENCE)
    ]
    return ",".join(reversed(parts))


def _attribute(pair: _der.Element) -> str:
    kind, value = pair.children(_der.SEQUENCE)
    number = _der.object_identifier(kind)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - leading - len(inner)
    return "\\ " * leading + inner.translate(_ESCAPED) + "\\ " * trailing


# --- JKS ------------------------------------------------------------------------------------------


MAGIC = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES = hashlib.sha1(usedforsecurity=False).digest_size
_WHITENER = b"Mighty Aphrodite"
_PRIVATE_KEY, _TRUSTED = 1, 2
_PROTECTION = "1.3.6.1.4.1.42.2.17.1.1"


class WrongPasswordError(ValueError):
    """The password is not the one that the store, or a key in it, was written with."""


@dataclass(slots=True)
class PrivateKeyEntry:
    """A private key, still encrypted, with the certificates of it in DER, its own first."""

    encrypted: bytes
    chain: list[bytes]

    def decrypt(self, password: str) -> bytes:
        """Return the key in PKCS #8, DER. WrongPasswordError; ValueError if it is damaged."""
        algorithm, value = _der.parse(self.encrypted).children(_der.SEQUENCE)
        kind = _der.object_identifier(algorithm.children(_der.SEQUENCE)[0])
        if kind != _PROTECTION:
            raise ValueError(f"a key is protected by the unknown algorithm {kind}")
        data, secret = value.content, password.encode("utf-16-be")
        salt, check = data[:_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        encrypted = data[_DIGEST_BYTES:-_DIGEST_BYTES]
        stream, block = b"", salt
        while len(stream) < len(encrypted):
            block = _sha1(secret, block)
            stream += block
        key = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
        if not hmac.compare_digest(_sha1(secret, key), check):
            raise WrongPasswordError("ssl.key.password does not open the private key: correct it")
        return key


@dataclass(slots=True)
class JavaKeyStore:
    """What a file has, in its order."""

    keys: list[PrivateKeyEntry] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)
    """Certificates in DER."""


def parse_jks(data: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries; without a password the digest is not checked, as in Java.

    WrongPasswordError, also if the file is damaged; ValueError if it is no such store.
    """
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = _sha1(password.encode("utf-16-be"), _WHITENER, content)
        if not hmac.compare_digest(expected, digest):
            raise WrongPasswordError(
                "the password does not open it, or the file is damaged: correct the password"
            )
    reader = _Reader(content)
    if reader.take(4) != MAGIC:
        raise ValueError("it is no JKS store")
    version, store = reader.number(), JavaKeyStore()
    for _ in range(reader.number()):
        tag = reader.number()
        reader.short_text()
        reader.take(8)
        if tag == _PRIVATE_KEY:
            key = reader.take(reader.number())
            chain = [reader.certificate(version) for _ in range(reader.number())]
            store.keys.append(PrivateKeyEntry(key, chain))
        elif tag == _TRUSTED:
            store.trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"it has an entry of the unknown kind {tag}")
    return store


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; ValueError if there are fewer."""
        taken = self._data[self._position : self._position + size]
        if len(taken) < size:
            raise ValueError("it ends too early")
        self._position += size
        return taken

    def number(self) -> int:
        """Return a number of 4 bytes."""
        return int.from_bytes(self.take(4), "big")

    def short_text(self) -> bytes:
        """Return a text with its length of 2 bytes, as Java writes one."""
        return self.take(int.from_bytes(self.take(2), "big"))

    def certificate(self, version: int) -> bytes:
        """Return a certificate in DER."""
        if version > 1:
            kind = self.short_text()
            if kind != b"X.509":
                raise ValueError(f"it has a certificate of the unknown kind {kind!r}")
        return self.take(self.number())


def _sha1(*parts: bytes) -> bytes:
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).digest()


# --- PEM ------------------------------------------------------------------------------------------


_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE")
_KEY = "PRIVATE KEY"


def certificates(text: str) -> list[x509.Certificate]:
    """Return the certificates in order; ValueError if there is none or one is malformed."""
    found = [
        x509.load_pem_x509_certificate(_written("CERTIFICATE", body))
        for label, body in _blocks(text)
        if label in _CERTIFICATES
    ]
    if not found:
        raise ValueError("it has no BEGIN CERTIFICATE: add the certificates")
    return found


def has_open_key(text: str) -> bool:
    """Return whether the text has a private key that needs no password."""
    return any(
        label.endswith(_KEY) and not _is_encrypted(label, body) for label, body in _blocks(text)
    )


def private_key(text: str, password: str | None) -> PrivateKeyTypes:
    """Return the first private key. ValueError, without the text, if there is none or the password
    does not open it.
    """
    for label, body in _blocks(text):
        if not label.endswith(_KEY):
            continue
        secret = None
        if _is_encrypted(label, body):
            if password is None:
                raise ValueError("the private key is encrypted: set ssl.key.password")
            secret = password.encode()
        try:
            return load_pem_private_key(_written(label, body), secret)
        except (ValueError, TypeError) as error:
            if secret is not None:
                reason = "ssl.key.password does not open the private key: correct it"
            else:
                reason = "the private key is malformed: write it in PKCS #8"
            raise ValueError(reason) from error
    raise ValueError("it has no BEGIN PRIVATE KEY: add the key")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    for match in _BLOCK.finditer(text):
        yield match[1], match[2]


def _is_encrypted(label: str, body: str) -> bool:
    return label.startswith("ENCRYPTED") or "ENCRYPTED" in body


def _written(label: str, body: str) -> bytes:
    """Return the block as its readers expect it, in lines."""
    if ":" not in body:  # Headers of old encrypted keys are lines already.
        data = "".join(body.split())
        lines = [data[start : start + 64] for start in range(0, len(data), 64)]
        body = "\n" + "\n".join(lines) + "\n"
    return f"-----BEGIN {label}-----{body}-----END {label}-----\n".encode()


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
            key = private_key(store.key.get_secret_value(), key_password)
        except ValueError as error:
            raise place.error("key", str(error)) from error
        try:
            return Identity(key, tuple(certificates(store.certificates))).check()
        except ValueError as error:
            raise place.error("certificate.chain", str(error)) from error
    data = place.read(store, files)
    try:
        if store.type == _PEM:
            text = data.decode("utf-8", "replace")
            key, chain = private_key(text, key_password), certificates(text)
        else:
            key, chain = _java_identity(data, _text(store.password), key_password)
        return Identity(key, tuple(chain)).check()
    except WrongPasswordError as error:
        raise place.wrong_password(store, error) from error
    except ValueError as error:
        raise place.error("location", f"{store.location}: {error}") from error


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
            return tuple(certificates(store.certificates))
        except ValueError as error:
            raise place.error("certificates", str(error)) from error
    data = place.read(store, files)
    try:
        if store.type == _PEM:
            return tuple(certificates(data.decode("utf-8", "replace")))
        return _java_trusted(data, _text(store.password))
    except WrongPasswordError as error:
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
    return store.location if has_open_key(text) else None


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
    if data.startswith(MAGIC):
        store = parse_jks(data, password)
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
    if data.startswith(MAGIC):
        encoded = parse_jks(data, password).trusted
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
        raise WrongPasswordError(
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
