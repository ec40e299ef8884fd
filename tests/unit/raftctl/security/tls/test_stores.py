"""Key stores and trust stores: PEM, PKCS12 and JKS, and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.errors import ConfigError
from raftctl.runtime.real import RealFileSystem
from raftctl.security.tls._jks import WrongPasswordError, parse_jks
from raftctl.security.tls._stores import Identity, load_identity, load_trusted, open_key_file
from tests.kit.certificates import Authority, Issued, self_signed

pytestmark = pytest.mark.req("S2", "S8")
HERE = Path(__file__).parent
FILES = RealFileSystem()
SECRET = "correct horse"
"""A password that no error may have in it."""


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue()


def keystore(key_password: str | None = None, **values: Any) -> TlsSettings:
    return TlsSettings(keystore=settings(values), key_password=secret(key_password))


def truststore(**values: Any) -> TlsSettings:
    return TlsSettings(truststore=settings(values))


def settings(values: dict[str, Any]) -> StoreSettings:
    for name in ("password", "key"):
        if isinstance(text := values.get(name), str):
            values[name] = SecretStr(text)
    return replace(StoreSettings(), **values)


def secret(text: str | None) -> SecretStr | None:
    return None if text is None else SecretStr(text)


def identity(given: TlsSettings) -> Identity:
    return load_identity(given, FILES, "OUTSIDE")


def problem(given: TlsSettings, *, trusted: bool = False) -> str:
    """The text of the error that loading ends with."""
    with pytest.raises(ConfigError) as raised:
        _ = (load_trusted if trusted else load_identity)(given, FILES, "OUTSIDE")
    assert SECRET not in str(raised.value)
    return str(raised.value)


# --- PEM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("password", [None, SECRET])
def test_a_pem_file_has_key_and_chain(issued: Issued, tmp_path: Path, password: str | None) -> None:
    path = issued.store(tmp_path / "node.pem", password)
    found = identity(keystore(password, type="PEM", location=path))
    assert found.chain == (issued.certificate, issued.issuer)
    assert issued.key_pem().encode() in found.pem()
    assert issued.key_pem() not in repr(found)


@pytest.mark.parametrize("password", [None, SECRET])
def test_pem_text_may_be_one_line(issued: Issued, password: str | None) -> None:
    """A properties file joins continued lines, so a line break may be a blank or nothing."""
    key = issued.key_pem(password).replace("\n", " ")
    chain = issued.pem.replace("\n", "")
    found = identity(keystore(password, type="PEM", key=key, certificates=chain))
    assert found.chain == (issued.certificate,)


def test_a_pem_trust_store_has_all_its_certificates(authority: Authority, tmp_path: Path) -> None:
    other = Authority("Other CA")
    path = tmp_path / "trusted.pem"
    path.write_text(f"# ours\n{authority.pem}\n# theirs\n{other.pem}")
    both = (authority.certificate, other.certificate)
    assert load_trusted(truststore(type="PEM", location=str(path)), FILES, "") == both
    text = truststore(type="PEM", certificates=authority.pem + other.pem)
    assert load_trusted(text, FILES, "") == both


# --- Java's stores --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_has_key_and_chain_whatever_it_is_called(
    issued: Issued, tmp_path: Path, kind: str
) -> None:
    path = issued.pkcs12(tmp_path / "node.p12", SECRET)
    found = identity(keystore(type=kind, location=path, password=SECRET))
    assert found.chain == (issued.certificate, issued.issuer)


@pytest.mark.parametrize(("name", "kind"), [("node.jks", "JKS"), ("node.p12", "PKCS12")])
def test_a_key_store_of_keytool_is_read(name: str, kind: str) -> None:
    given = keystore(type=kind, location=str(HERE / name), password="changeit")
    found = identity(given)
    assert [one.subject.rfc4514_string() for one in found.chain] == ["CN=node,O=Test", "CN=Root"]


@pytest.mark.parametrize(("name", "kind"), [("trusted.jks", "JKS"), ("trusted.p12", "PKCS12")])
def test_a_trust_store_of_keytool_is_read(name: str, kind: str) -> None:
    given = truststore(type=kind, location=str(HERE / name), password="changeit")
    assert [one.subject.rfc4514_string() for one in load_trusted(given, FILES, "")] == ["CN=Root"]


def test_a_jks_trust_store_needs_no_password() -> None:
    given = truststore(type="JKS", location=str(HERE / "trusted.jks"))
    assert len(load_trusted(given, FILES, "")) == 1


def test_a_key_in_jks_may_have_a_password_of_its_own() -> None:
    location = str(HERE / "own_password.jks")
    right = keystore("changethat", type="JKS", location=location, password="changeit")
    assert len(identity(right).chain) == 1
    assert "ssl.key.password does not open" in problem(replace(right, key_password=None))


@pytest.mark.parametrize("cut", [4, 20, 100, 1_000])
def test_a_damaged_jks_is_an_error(cut: int) -> None:
    data = (HERE / "node.jks").read_bytes()
    with pytest.raises(WrongPasswordError):
        parse_jks(data[:-cut], "changeit")
    with pytest.raises(ValueError, match=r"early|JKS|kind"):
        parse_jks(data[:-cut], None)


# --- what is wrong --------------------------------------------------------------------------------


def test_an_error_names_the_key_the_listener_and_the_remedy(tmp_path: Path) -> None:
    text = problem(keystore(type="PEM", location=str(tmp_path / "none.pem")))
    assert text == (
        f"ssl.keystore.location of listener OUTSIDE: {tmp_path}/none.pem cannot be read "
        "(No such file or directory): name a readable file"
    )
    assert "it is not set" in problem(TlsSettings())
    assert "it is not set" in problem(TlsSettings(), trusted=True)


def test_a_wrong_password_is_named_by_its_key(issued: Issued, tmp_path: Path) -> None:
    path = issued.pkcs12(tmp_path / "node.p12", SECRET)
    wrong = keystore(type="PKCS12", location=path, password=f"not {SECRET}")
    assert problem(wrong).startswith(f"ssl.keystore.password of listener OUTSIDE: {path}: ")
    wrong = keystore(type="JKS", location=str(HERE / "node.jks"), password=SECRET)
    assert problem(wrong).startswith("ssl.keystore.password of listener OUTSIDE: ")
    path = issued.store(tmp_path / "node.pem", SECRET)
    assert "set ssl.key.password" in problem(keystore(type="PEM", location=path))
    wrong = keystore(f"not {SECRET}", type="PEM", location=path)
    assert "ssl.key.password does not open the private key" in problem(wrong)


def test_a_trust_store_of_somebody_else_is_not_taken() -> None:
    """Its digest is what shows that nobody has put another certificate in."""
    wrong = truststore(type="JKS", location=str(HERE / "trusted.jks"), password=SECRET)
    assert problem(wrong, trusted=True).startswith("ssl.truststore.password of listener OUTSIDE: ")


def test_keys_that_contradict_each_other_are_errors(issued: Issued, tmp_path: Path) -> None:
    """Apache Kafka refuses the same ones."""
    pair = {"key": issued.key_pem(), "certificates": issued.pem}
    assert "set PEM" in problem(keystore(type="JKS", **pair))
    assert "take one of them out" in problem(keystore(type="PEM", location="/a", **pair))
    assert "a PEM store has none" in problem(keystore(type="PEM", password=SECRET, **pair))
    assert "ssl.keystore.key" in problem(keystore(type="PEM", certificates=issued.pem))
    assert "certificate.chain" in problem(keystore(type="PEM", key=issued.key_pem()))
    path = issued.store(tmp_path / "node.pem")
    with_password = truststore(type="PEM", location=path, password=SECRET)
    assert "a PEM store has none" in problem(with_password, trusted=True)


def test_a_certificate_of_another_key_is_an_error(issued: Issued) -> None:
    wrong = keystore(type="PEM", key=issued.key_pem(), certificates=self_signed().pem)
    assert "not that of the private key: put the key's own first" in problem(wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither JKS nor PKCS12"),
        (b"-----BEGIN CERTIFICATE-----", "set the type, PEM for text"),
        (b"\xce\xce\xce\xce", "keytool -importkeystore"),
        (b"0\x00", "the password does not open it, or the file is damaged"),
    ],
)
def test_a_file_that_is_no_store_is_an_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    assert said in problem(keystore(location=str(path), password=SECRET))


def test_pem_without_key_or_certificates_is_an_error(issued: Issued, tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    path.write_text(issued.pem)
    given = keystore(type="PEM", location=str(path))
    assert "it has no BEGIN PRIVATE KEY" in problem(given)
    path.write_text(issued.key_pem())
    assert "it has no BEGIN CERTIFICATE" in problem(given)
    path.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----")
    assert "malformed" in problem(given)


def test_a_key_that_every_user_could_take_is_noticed(issued: Issued, tmp_path: Path) -> None:
    path = issued.store(tmp_path / "node.pem")
    given = keystore(type="PEM", location=path)
    (tmp_path / "node.pem").chmod(0o640)
    assert open_key_file(given, FILES) is None
    (tmp_path / "node.pem").chmod(0o644)
    assert open_key_file(given, FILES) == path
    issued.store(tmp_path / "node.pem", SECRET)
    assert open_key_file(given, FILES) is None
