"""Settings that cannot be in force are errors, with the key and the remedy (row S8)."""

from __future__ import annotations

import ssl
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.errors import ConfigError
from raftctl.runtime.real import RealFileSystem
from raftctl.security.tls._ciphers import openssl_name
from raftctl.security.tls._contexts import client_context, server_context
from tests.kit.certificates import Authority

pytestmark = pytest.mark.req("S2", "S8")
FILES = RealFileSystem()
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
GCM_256, GCM_128 = "TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"
CHACHA = "TLS_CHACHA20_POLY1305_SHA256"
ECDHE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture(scope="module")
def settings() -> TlsSettings:
    issued = Authority().issue()
    key = SecretStr(issued.key_pem())
    return TlsSettings(keystore=StoreSettings("PEM", key=key, certificates=issued.pem))


def server(settings: TlsSettings) -> ssl.SSLContext:
    return server_context(settings, FILES, "OUTSIDE")


@pytest.mark.parametrize(
    ("enabled", "newest", "suites", "versions"),
    [
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3", (), (V12, V13)),
        (("TLSv1.3",), "TLSv1.3", (), (V13, V13)),
        (("TLSv1.2",), "TLSv1.3", (), (V12, V12)),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.2", (), (V12, V12)),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3", (ECDHE,), (V12, V12)),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3", (GCM_256, CHACHA, GCM_128), (V13, V13)),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3", (GCM_256, CHACHA, GCM_128, ECDHE), (V12, V13)),
    ],
)
def test_versions_are_those_that_keys_and_suites_leave(
    settings: TlsSettings,
    enabled: tuple[str, ...],
    newest: str,
    suites: tuple[str, ...],
    versions: tuple[ssl.TLSVersion, ssl.TLSVersion],
) -> None:
    context = server(
        replace(settings, enabled_protocols=enabled, protocol=newest, cipher_suites=suites)
    )
    assert (context.minimum_version, context.maximum_version) == versions
    if ECDHE in suites:
        offered = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"}
        assert offered == {"ECDHE-ECDSA-AES128-GCM-SHA256"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"cipher_suites": (GCM_256, ECDHE)},
            f"of TLS 1.3 all suites or none are offered: add {CHACHA}, {GCM_128}, or set",
        ),
        ({"cipher_suites": ("TLS_NULL",)}, "TLS_NULL is not offered by OpenSSL here: take it out"),
        ({"cipher_suites": (ECDHE,), "enabled_protocols": ("TLSv1.3",)}, "none is left"),
        ({"protocol": "TLSv1.2", "enabled_protocols": ("TLSv1.3",)}, "none is left"),
        ({"client_auth": "required"}, "but ssl.client.auth is required: name the certificates"),
        ({"client_auth": "requested"}, "but ssl.client.auth is requested: name"),
        ({"keystore": StoreSettings()}, "ssl.keystore.location of listener OUTSIDE: it is not set"),
    ],
)
def test_what_cannot_be_in_force_is_an_error(
    settings: TlsSettings, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        server(replace(settings, **changes))
    assert said in str(raised.value)
    assert "of listener OUTSIDE" in str(raised.value)


def test_a_client_trusts_the_systems_authorities_if_none_are_named(settings: TlsSettings) -> None:
    context = client_context(settings, FILES)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_client_is_given_one_ticket(settings: TlsSettings) -> None:
    assert server(settings).num_tickets == 1


def test_a_client_without_identification_still_verifies(settings: TlsSettings) -> None:
    context = client_context(replace(settings, endpoint_identification_algorithm=""), FILES)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CCM_8", "DHE-RSA-AES256-CCM8"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_KRB5_WITH_RC4_128_MD5", "TLS_KRB5_WITH_RC4_128_MD5"),
    ],
)
def test_a_suite_of_iana_has_a_name_of_openssls(iana: str, openssl: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    assert openssl_name(iana) == openssl
    if iana != openssl:
        assert openssl in {one["name"] for one in context.get_ciphers()}


def test_a_node_without_tls_imports_nothing_for_certificates() -> None:
    """It would take as long as the start of a node."""
    code = "import sys, raftctl.node, broker.plugin; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
