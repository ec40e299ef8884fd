"""PEM: private keys and certificates as text (RFC 7468, KIP-651). Pure.

Text in a properties file is often one line, or indented: base64 counts, white space does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

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
