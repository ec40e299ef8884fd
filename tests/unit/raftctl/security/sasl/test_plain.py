"""PLAIN: RFC 4616."""

from __future__ import annotations

import hashlib
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.security.sasl import (
    PLAIN,
    Login,
    SaslError,
    make_client,
    make_server,
    plain_passwords,
)
from tests.unit.raftctl.security.sasl.exchanges import NOW_MS, credentials, exchange, jaas

KNOWN = credentials({"tim": "tanstaaftanstaaf", "empty": ""})
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)

pytestmark = pytest.mark.req("S3")


@pytest.mark.parametrize("response", [b"\0tim\0tanstaaftanstaaf", b"tim\0tim\0tanstaaftanstaaf"])
def test_the_example_of_rfc_4616(response: bytes) -> None:
    server = make_server(PLAIN, KNOWN, "")
    assert server.evaluate(response, NOW_MS) == b""
    assert server.login == Login("tim")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"tim",
        b"\0tim",
        b"\0tim\0",
        b"\0\0tanstaaftanstaaf",
        b"\0empty\0",
        b"\0tim\0tanstaaftanstaaf\0",
        b"\0tim\0tanstaaftanstaaf\0more",
        b"Ursel\0tim\0tanstaaftanstaaf",
        b"\0tim\0TANSTAAFTANSTAAF",
        b"\0tim\0tanstaaf",
        b"\0bob\0tanstaaftanstaaf",
        b"\0tim\0\xff",
    ],
)
def test_anything_else_fails(response: bytes) -> None:
    server = make_server(PLAIN, KNOWN, "")
    with pytest.raises(SaslError):
        server.evaluate(response, NOW_MS)
    assert server.login is None


def test_an_unknown_user_fails_as_a_wrong_password_does() -> None:
    seen = []
    for user in ("tim", "bob"):
        with mock.patch("hashlib.sha256", wraps=hashlib.sha256) as hashes:
            with pytest.raises(SaslError) as refused:
                make_server(PLAIN, KNOWN, "").evaluate(f"\0{user}\0wrong".encode(), NOW_MS)
            seen.append((str(refused.value), refused.value.answer, hashes.call_count))
    assert seen[0] == seen[1]


@given(TEXTS, TEXTS, TEXTS)
def test_the_password_decides(user: str, password: str, tried: str) -> None:
    options = {f"user_{user}": password, "username": user, "password": tried}
    server = make_server(PLAIN, credentials(plain_passwords(jaas(**options))), "")
    client = make_client(PLAIN, jaas(**options), "")
    if tried == password:
        assert exchange(client, server) == Login(user)
        with pytest.raises(SaslError):
            server.evaluate(b"\0a\0b", NOW_MS)
    else:
        with pytest.raises(SaslError):
            exchange(client, server)


@given(st.binary())
def test_arbitrary_bytes_do_nothing_but_fail(response: bytes) -> None:
    server = make_server(PLAIN, KNOWN, "")
    with pytest.raises(SaslError):
        server.evaluate(response, NOW_MS)
    assert server.login is None


def test_options_that_are_no_user_are_none() -> None:
    options = jaas(user_a="1", user_="2", username="b", password="3")
    assert plain_passwords(options) == {"a": "1"}
    assert plain_passwords(None) == {}
    with pytest.raises(SaslError):
        make_client(PLAIN, jaas(username="a", password="b"), "").respond(b"more")
