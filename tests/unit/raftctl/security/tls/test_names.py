"""Subjects are written as Java writes them; rules map them as Apache Kafka's do.

Both tables were made by OpenJDK 17 (`X500Principal.getName()`) and kafka-clients 4.3
(`SslPrincipalMapper`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftctl.security.tls._mapping import PrincipalMapper
from raftctl.security.tls._names import distinguished_name, subject_of
from tests.kit.certificates import Authority

pytestmark = pytest.mark.req("S2")
HERE = Path(__file__).parent
NAMES: list[tuple[str, str]] = json.loads((HERE / "java_names.json").read_text())
RULES: list[tuple[str, str, str | None]] = json.loads((HERE / "java_rules.json").read_text())


@pytest.mark.parametrize(("der", "written"), NAMES, ids=[written for _, written in NAMES])
def test_a_subject_is_written_as_java_writes_it(der: str, written: str) -> None:
    assert distinguished_name(bytes.fromhex(der)) == written


@pytest.mark.parametrize("der", ["", "30", "3003020101", "0c0161", "30053103300106", "308200ff"])
def test_a_malformed_name_is_an_error(der: str) -> None:
    with pytest.raises(ValueError, match=r"value|tag|unpack|identifier"):
        distinguished_name(bytes.fromhex(der))


def test_the_subject_of_a_certificate_has_the_last_attribute_first() -> None:
    issued = Authority().issue("broker, 1")
    assert subject_of(issued.der) == "CN=broker\\, 1,O=Test"


@pytest.mark.parametrize(("rules", "subject", "name"), RULES)
def test_rules_map_a_subject_as_apache_kafka_does(
    rules: str, subject: str, name: str | None
) -> None:
    """`=` begins a name, `none` is no rule, `error` a malformed one."""
    try:
        mapped = PrincipalMapper(rules).name(subject)
    except ValueError:
        outcome = "error"
    else:
        outcome = "none" if mapped is None else f"={mapped}"
    assert outcome == name


def test_the_first_rule_that_fits_decides() -> None:
    mapper = PrincipalMapper("RULE:CN=(\\w+)/first-$1/, RULE:CN=(\\w+)/second-$1/, DEFAULT")
    assert mapper.name("CN=a") == "first-a"
    assert mapper.name("CN=a,O=b") == "CN=a,O=b"


def test_a_rule_is_for_the_whole_subject() -> None:
    mapper = PrincipalMapper("RULE:CN=admin/admin/")
    assert mapper.name("CN=admin") == "admin"
    assert mapper.name("CN=admin,O=Elsewhere") is None
    assert mapper.name("CN=x\\,CN\\=admin") is None


def test_an_error_of_a_rule_has_the_rule_and_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"'DEFAULT/L' is no rule: write DEFAULT or RULE:"):
        PrincipalMapper("RULE:a/b/, DEFAULT/L")
