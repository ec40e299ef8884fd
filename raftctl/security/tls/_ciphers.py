"""Cipher suites: from the names that Java and IANA use to those of OpenSSL. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
"""The suites of TLS 1.3 that OpenSSL offers; their names are the same everywhere."""
_KEY_EXCHANGES = {
    "RSA": (),
    "DHE_RSA": ("DHE", "RSA"),
    "DHE_DSS": ("DHE", "DSS"),
    "ECDHE_RSA": ("ECDHE", "RSA"),
    "ECDHE_ECDSA": ("ECDHE", "ECDSA"),
}
_CIPHERS = {"AES_128": "AES128", "AES_256": "AES256"}
_NAMED_BY_MODE = {"GCM_SHA256": "GCM-SHA256", "GCM_SHA384": "GCM-SHA384", "CCM": "CCM"} | {
    "CBC_SHA": "SHA",
    "CBC_SHA256": "SHA256",
    "CBC_SHA384": "SHA384",
    "CCM_8": "CCM8",
}
_CHACHA = "CHACHA20_POLY1305_SHA256"


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite up to TLS 1.2; the name itself if it is no IANA name."""
    exchange, with_, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not (name.startswith("TLS_") and with_ and exchange in _KEY_EXCHANGES):
        return name
    if cipher == _CHACHA:
        return "-".join((*_KEY_EXCHANGES[exchange], "CHACHA20-POLY1305"))
    for prefix, short in _CIPHERS.items():
        mode = _NAMED_BY_MODE.get(cipher.removeprefix(f"{prefix}_"))
        if cipher.startswith(f"{prefix}_") and mode is not None:
            return "-".join((*_KEY_EXCHANGES[exchange], short, mode))
    return name


def openssl_names(suites: Iterable[str], offered: Collection[str]) -> list[str]:
    """Return OpenSSL's names of the suites up to TLS 1.2, in order.

    `offered` has what the library knows; ValueError with the first name that is not among them.
    """
    older = [name for name in suites if name not in TLS_1_3]
    names = [openssl_name(name) for name in older]
    for name, translated in zip(older, names, strict=True):
        if translated not in offered:
            raise ValueError(f"{name} is not offered by OpenSSL here: take it out")
    return names
