"""Certificates of a test's cluster: authorities, and what they sign. They live for a day or two."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY = datetime.timedelta(days=1)
"""From a day ago to in a day: a test may set clocks wrong."""
_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Issued(NamedTuple):
    """A certificate, by its form in DER, and the key store with it."""

    der: bytes
    store: str
    """PEM: the private key, the certificate and its issuer's; for the file of its owner alone."""


class Authority:
    """Signs certificates of nodes and clients."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, "")
        self._certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """Its own certificate, for trust stores."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str, unit: str, hosts: Sequence[str]) -> Issued:
        """Sign a certificate for `CN=name,OU=unit` at these addresses, with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name, unit), self._certificate.subject, key.public_key())
        if hosts:
            addresses = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False).sign(
            self._key, hashes.SHA256()
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        pem = certificate.public_bytes(Encoding.PEM).decode()
        return Issued(certificate.public_bytes(Encoding.DER), private + pem + self.pem)


def _subject(name: str, unit: str) -> x509.Name:
    # The more general part stands first, as in all certificates; texts have it last.
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
