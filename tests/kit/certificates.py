"""Certificates for tests: an authority, and what it or nobody signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.timedelta(days=1)
HOSTS = ("localhost", "127.0.0.1")
_USAGES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key, and the one that has signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        """The key in PKCS #8."""
        return self.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    @property
    def pem(self) -> str:
        """The certificate."""
        return pem(self.certificate)

    @property
    def der(self) -> bytes:
        """The certificate as a connection has it."""
        return self.certificate.public_bytes(Encoding.DER)

    def store(self, path: Path, password: str | None = None) -> str:
        """Write the key and the chain as a PEM file, and return its path."""
        path.write_text(self.key_pem(password) + self.pem + pem(self.issuer))
        return str(path)

    def pkcs12(self, path: Path, password: str) -> str:
        """Write the key and the chain as a PKCS12 file, and return its path."""
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node", self.key, self.certificate, [self.issuer], _encryption(password)
            )
        )
        return str(path)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            _builder(subject, subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """Its own certificate."""
        return pem(self.certificate)

    def store(self, path: Path) -> str:
        """Write its certificate as a PEM file, and return the path."""
        path.write_text(self.pem)
        return str(path)

    def pkcs12(self, path: Path, password: str) -> str:
        """Write its certificate as a trust store that Java takes, and return the path."""
        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"authority")]
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, _encryption(password)))
        return str(path)

    def issue(
        self,
        name: str = "node",
        *,
        hosts: tuple[str, ...] = HOSTS,
        since: datetime.timedelta = -DAY,
        until: datetime.timedelta = 30 * DAY,
    ) -> Issued:
        """Sign a certificate for `CN=name,O=Test`, valid from and to so long from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(
            subject(name), self.certificate.subject, key.public_key(), since, until
        ).add_extension(_alternatives(hosts), critical=False)
        certificate = builder.add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False).sign(
            self._key, hashes.SHA256()
        )
        return Issued(key, certificate, self.certificate)


def self_signed(name: str = "node") -> Issued:
    """A certificate that nobody else has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject(name), subject(name), key.public_key())
    certificate = builder.add_extension(_alternatives(HOSTS), critical=False).sign(
        key, hashes.SHA256()
    )
    return Issued(key, certificate, certificate)


def subject(name: str) -> x509.Name:
    """`CN=name,O=Test`, as certificates have it: the organization first."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def pem(certificate: x509.Certificate) -> str:
    """A certificate as text."""
    return certificate.public_bytes(Encoding.PEM).decode()


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    since: datetime.timedelta = -DAY,
    until: datetime.timedelta = 30 * DAY,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + since)
        .not_valid_after(now + until)
    )


def _alternatives(hosts: tuple[str, ...]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
