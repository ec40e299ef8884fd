"""OAUTHBEARER: RFC 7628, with a validator that knows one token."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.security.sasl import (
    OAUTHBEARER,
    Credentials,
    Login,
    SaslError,
    ServerMechanism,
    UnknownKeyError,
    make_client,
    make_server,
)
from tests.unit.raftctl.security.sasl.exchanges import NOW_MS, credentials, exchange, jaas

pytestmark = pytest.mark.req("S3")
ALICE = Login("alice", NOW_MS + 1000)


def server() -> ServerMechanism:
    """A server that takes the token `good`."""
    return make_server(OAUTHBEARER, credentials({}), "")


def test_a_good_token_logs_in() -> None:
    assert exchange(make_client(OAUTHBEARER, jaas(), "", "good"), server()) == ALICE


@pytest.mark.parametrize(
    "response",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=bearer   good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01host=x\x01port=1\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_first_message_in_each_form_logs_in(response: bytes) -> None:
    there = server()
    assert there.evaluate(response, NOW_MS) == b""
    assert there.login == ALICE


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,\x01auth=Bearer good\x01\x01",
        b"x,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"n,bob,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_first_message_fails(response: bytes) -> None:
    there = server()
    with pytest.raises(SaslError):
        there.evaluate(response, NOW_MS)
    assert there.login is None


@pytest.mark.parametrize("last", [b"\x01", b"", b"n,,\x01auth=Bearer good\x01\x01"])
def test_a_bad_token_is_answered_and_fails_with_the_next_message(last: bytes) -> None:
    there = server()
    challenge = there.evaluate(b"n,,\x01auth=Bearer bad\x01\x01", NOW_MS)
    assert json.loads(challenge) == {"status": "invalid_token"}
    assert there.login is None
    with pytest.raises(SaslError) as refused:
        there.evaluate(last, NOW_MS)
    assert refused.value.answer == challenge.decode()
    assert there.login is None


def test_a_client_learns_that_its_token_is_bad() -> None:
    with pytest.raises(SaslError):
        exchange(make_client(OAUTHBEARER, jaas(), "", "bad"), server())


def test_after_an_unknown_key_the_same_message_may_come_again() -> None:
    known: list[str] = []

    def validate(token: str, _now_ms: int) -> Login:
        if token not in known:
            raise UnknownKeyError("unknown")
        return ALICE

    plain = credentials({})
    there = make_server(
        OAUTHBEARER,
        Credentials(plain.passwords, plain.find_scram, plain.scram_secret, validate),
        "",
    )
    message = b"n,,\x01auth=Bearer late\x01\x01"
    with pytest.raises(UnknownKeyError):
        there.evaluate(message, NOW_MS)
    known.append("late")
    assert there.evaluate(message, NOW_MS) == b""
    assert there.login == ALICE
    with pytest.raises(SaslError):
        there.evaluate(message, NOW_MS)


@given(st.binary())
def test_arbitrary_bytes_do_nothing_but_fail(response: bytes) -> None:
    there = server()
    with pytest.raises(SaslError):
        there.evaluate(response, NOW_MS)
    assert there.login is None
