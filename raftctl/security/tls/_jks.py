"""A reader of Java's key store format JKS, as keytool wrote it before Java 9. Pure.

A file is a list of entries and a digest of them and the password. A private key is encrypted with
a key stream that SHA-1 makes of its password and a salt. The format has no specification: this
follows what OpenJDK's `sun.security.provider.JavaKeyStore` reads and writes.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from raftctl.security.tls import _der

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
