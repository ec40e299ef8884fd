"""The subject of a certificate, written as Java's `X500Principal.getName()` writes it. Pure.

Rules of `ssl.principal.mapping.rules` and names of principals in ACLs are written for this text:
RFC 2253, the last attribute first. Java's own habits are kept, since another spelling would be
another principal: `=` and every `#` are escaped, NUL is `\\00`, and the bytes of a T61String or
BMPString are taken for UTF-8. Attributes and types that RFC 2253 does not name are numbers:
`1.2.840.113549.1.9.1=#16...`.
"""

from __future__ import annotations

from cryptography import x509

from raftctl.security.tls import _der

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
