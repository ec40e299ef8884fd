"""ApiVersions, and what is not in the table of versions at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.protocol.versions import SERVED, ApiKey
from tests.peers.differential.language import Ask, Script

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ApiKey.API_VERSIONS
UNKNOWN = 99


def scripts() -> Iterator[Script]:
    """All of this family."""
    names = {
        "plain": ("client", "1.0"),
        "dots": ("a.b-c", "1.0-x"),
        "empty name": ("", "1.0"),
        "empty version": ("client", ""),
        "blank in name": ("a b", "1.0"),
        "blank in version": ("client", "1 0"),
        "dash first": ("-client", "1.0"),
        "dash last": ("client-", "1.0"),
        "dot first": (".client", "1.0"),
        "letters of others": ("clié", "1.0"),
        "underscore": ("a_b", "1.0"),
        "long": ("a" * 200, "1.0"),
    }
    asks = [
        Ask(
            name,
            VERSIONS,
            {"client_software_name": one, "client_software_version": other},
            None if name == "plain" else [3, 4],
        )
        for name, (one, other) in names.items()
    ]
    yield Script("api versions", asks)
    yield Script(
        "api versions unknown", [Ask("version", VERSIONS, versions=[5, 99], raw=b"\0\x02a\x021\0")]
    )
    shakes = {"plain": "PLAIN", "scram": "SCRAM-SHA-256", "empty": "", "unknown": "NOTHING"}
    for name, mechanism in shakes.items():
        shake = Ask(name, ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
        yield Script(f"sasl handshake {name}", [shake])
    for name, data in {"plain": b"\0a\0b", "empty": b""}.items():
        tried = Ask(name, ApiKey.SASL_AUTHENTICATE, {"auth_bytes": data})
        yield Script(f"sasl authenticate {name}", [tried])
    for api in SERVED:
        if api != VERSIONS:
            ask = Ask("version", ApiKey(api), versions=[UNKNOWN], raw=b"\0\0\0\0")
            yield Script(f"unknown version of {ApiKey(api).name}", [ask])
            garbage = Ask("body", ApiKey(api), versions=[SERVED[api][-1]], raw=b"\xff" * 7)
            yield Script(f"garbage for {ApiKey(api).name}", [garbage])
