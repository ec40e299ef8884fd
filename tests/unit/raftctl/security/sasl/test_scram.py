"""SCRAM: the vectors of RFC 7677, an oracle, and what must not succeed."""

from __future__ import annotations

import base64
import hashlib
import hmac
from itertools import count
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient as OracleClient
from scramp import ScramMechanism as OracleMechanism

from raftctl.security.sasl import Login, SaslError, make_client, make_server
from raftctl.security.sasl.scram import (
    HASHES,
    ScramClient,
    ScramCredential,
    ScramServer,
    scram_keys,
)
from tests.unit.raftctl.security.sasl.exchanges import (
    NOW_MS,
    SALT,
    SECRET,
    credential,
    credentials,
    exchange,
    jaas,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MECHANISMS = sorted(HASHES)
SHA_256 = "SCRAM-SHA-256"
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
ALICE = {one: credential(one, "alice", "secret") for one in MECHANISMS}

pytestmark = pytest.mark.req("S3")


def server(mechanism: str = SHA_256, nonce: str = "server") -> ScramServer:
    """A server that knows alice."""
    return ScramServer(
        mechanism,
        lambda user, by_token: ALICE[mechanism] if user == "alice" and not by_token else None,
        nonce,
        SECRET,
    )


def test_the_vector_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = credential(SHA_256, "user", "pencil", salt)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    there = ScramServer(SHA_256, lambda _user, _by_token: known, nonce, SECRET)
    here = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    first = here.respond(b"")
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = there.evaluate(first, NOW_MS)
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = here.respond(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proof = there.evaluate(final, NOW_MS)
    assert proof == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert here.respond(proof) is None
    assert there.login == Login("user")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_of_another_author_logs_in(mechanism: str) -> None:
    oracle = OracleClient([mechanism], "alice", "secret")
    there = server(mechanism)
    challenge = there.evaluate(oracle.get_client_first().encode(), NOW_MS)
    oracle.set_server_first(challenge.decode())
    proof = there.evaluate(oracle.get_client_final().encode(), NOW_MS)
    oracle.set_server_final(proof.decode())
    assert there.login == Login("alice")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_server_of_another_author_lets_in(mechanism: str) -> None:
    oracle = OracleMechanism(mechanism)
    auth = oracle.make_auth_info("secret", iteration_count=4096, salt=b"0123456789abcdef")
    there = oracle.make_server(lambda _user: auth)
    here = ScramClient(mechanism, "alice", "secret", "client")
    first = here.respond(b"")
    assert first is not None
    there.set_client_first(first.decode())
    final = here.respond(there.get_server_first().encode())
    assert final is not None
    there.set_client_final(final.decode())
    assert here.respond(there.get_server_final().encode()) is None


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(MECHANISMS), NAMES, NAMES, st.binary(min_size=1, max_size=64))
def test_who_knows_the_password_logs_in(
    mechanism: str, user: str, password: str, salt: bytes
) -> None:
    known = credentials({}, {user: credential(mechanism, user, password, salt)})
    here = make_client(mechanism, jaas(username=user, password=password), "client")
    assert exchange(here, make_server(mechanism, known, "server")) == Login(user)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(MECHANISMS), NAMES.filter(lambda text: text != "secret"))
def test_a_wrong_password_does_not(mechanism: str, password: str) -> None:
    there = server(mechanism)
    with pytest.raises(SaslError) as refused:
        exchange(ScramClient(mechanism, "alice", password, "client"), there)
    assert there.login is None
    assert refused.value.answer is None
    with pytest.raises(SaslError):
        there.evaluate(b"n,,n=alice,r=again", NOW_MS)


NONCES = count()


def failure_of(user: str, secret: bytes = SECRET) -> tuple[int, list[bytes], str, int]:
    """(step of the failure, salt and iterations before it, its reason, hash operations)."""
    there = ScramServer(
        SHA_256,
        lambda name, _by_token: ALICE[SHA_256] if name == "alice" else None,
        f"server{next(NONCES)}",
        secret,
    )
    here = ScramClient(SHA_256, user, "wrong", "client")
    first = here.respond(b"")
    assert first is not None
    digest, new = hmac.digest, hashlib.new
    with (
        mock.patch("hmac.digest", wraps=digest) as macs,
        mock.patch("hashlib.new", wraps=new) as hashes,
    ):
        challenge = there.evaluate(first, NOW_MS)
        operations = macs.call_count + hashes.call_count
    final = here.respond(challenge)
    assert final is not None
    with (
        mock.patch("hmac.digest", wraps=digest) as macs,
        mock.patch("hashlib.new", wraps=new) as hashes,
    ):
        with pytest.raises(SaslError) as refused:
            there.evaluate(final, NOW_MS)
        operations += macs.call_count + hashes.call_count
    return 2, challenge.split(b",")[1:], str(refused.value), operations


def test_an_unknown_user_fails_where_a_wrong_password_does() -> None:
    known, unknown = failure_of("alice"), failure_of("bob")
    assert unknown[0] == known[0]
    assert unknown[2:] == known[2:], "the same reason after as many hashes"


def test_the_salt_of_an_unknown_user_is_stable() -> None:
    assert failure_of("bob")[1] == failure_of("bob")[1]
    assert failure_of("bob")[1] != failure_of("carol")[1]
    assert failure_of("bob")[1] != failure_of("bob", b"of another cluster")[1]


def test_nobody_logs_in_with_the_stand_in_of_an_unknown_user() -> None:
    """One who knows the secret could make its proof; the user is unknown all the same."""
    there = server()
    first = there.evaluate(b"n,,n=bob,r=client", NOW_MS).decode()
    stand_in = hmac.digest(SECRET, b"bob", "sha256")
    signed = f"n=bob,r=client,{first},c=biws,r=clientserver".encode()
    signature = hmac.digest(stand_in, signed, "sha256")
    with mock.patch("hashlib.new", return_value=mock.Mock(digest=lambda: stand_in)):
        proof = base64.b64encode(signature).decode()
        with pytest.raises(SaslError):
            there.evaluate(f"c=biws,r=clientserver,p={proof}".encode(), NOW_MS)
    assert there.login is None


@pytest.mark.parametrize("iterations", [1, 4095, 16385, 10**8])
def test_a_client_bounds_the_iterations(iterations: int) -> None:
    here = ScramClient(SHA_256, "alice", "secret", "client")
    here.respond(b"")
    with pytest.raises(SaslError, match="iterations"):
        here.respond(f"r=clientserver,s=b2Ygc2l4dGVlbiBieXRlcw==,i={iterations}".encode())


@pytest.mark.parametrize("nonce", ["client", "server", "Client1", "x"])
def test_a_client_wants_a_longer_nonce_that_begins_with_its_own(nonce: str) -> None:
    here = ScramClient(SHA_256, "alice", "secret", "client")
    here.respond(b"")
    with pytest.raises(SaslError, match="nonce"):
        here.respond(f"r={nonce},s=b2Ygc2l4dGVlbiBieXRlcw==,i=4096".encode())


@pytest.mark.parametrize(
    "final",
    [b"e=other-error", b"v=" + base64.b64encode(bytes(32)), b"", b"v="],
    ids=["error", "wrong", "none", "empty"],
)
def test_a_client_does_not_trust_a_server_without_the_password(final: bytes) -> None:
    here = ScramClient(SHA_256, "alice", "secret", "client")
    here.respond(b"")
    here.respond(b"r=clientserver,s=b2Ygc2l4dGVlbiBieXRlcw==,i=4096")
    with pytest.raises(SaslError):
        here.respond(final)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "nonce": lambda final: final.replace(b"r=clientserver", b"r=clientServer"),
    "header": lambda final: final.replace(b"c=biws", b"c=eSws"),
    "no proof": lambda final: final.rpartition(b",p=")[0],
    "short proof": lambda final: final.rpartition(b",p=")[0] + b",p=AAAA",
    "empty proof": lambda final: final.rpartition(b",p=")[0] + b",p=",
    "extension": lambda final: final.replace(b",p=", b",x=y,p="),
    "reserved": lambda final: b"m=x," + final,
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_final_message_that_was_changed_fails(change: str) -> None:
    there = server()
    here = ScramClient(SHA_256, "alice", "secret", "client")
    challenge = there.evaluate(here.respond(b"") or b"", NOW_MS)
    with pytest.raises(SaslError):
        there.evaluate(CHANGES[change](here.respond(challenge) or b""), NOW_MS)
    assert there.login is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,r=x,n=alice",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=x,n=alice,r=x",
        b"n,,n=alice,r=x,m=y",
        b"n,,n=alice,r=x,",
        b"n,,n=alice,r=",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,b=alice,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,r=\xff",
        b"n,,n=alice,r=x y",
    ],
)
def test_a_malformed_first_message_fails(first: bytes) -> None:
    with pytest.raises(SaslError):
        server().evaluate(first, NOW_MS)


@pytest.mark.parametrize(
    "first", [b"n,,n=alice,r=x", b"y,,n=alice,r=x", b"n,a=alice,n=alice,r=x,ext=1"]
)
def test_a_first_message_in_each_form_is_answered(first: bytes) -> None:
    assert server().evaluate(first, NOW_MS) == b"r=xserver,s=b2Ygc2l4dGVlbiBieXRlcw==,i=4096"


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=200), max_size=4), st.booleans())
def test_arbitrary_bytes_do_nothing_but_fail(messages: list[bytes], begins_well: bool) -> None:
    there = server()
    if begins_well:
        messages = [b"n,,n=alice,r=client", *messages]
    for number, message in enumerate(messages):
        if number == 0 and begins_well:
            there.evaluate(message, NOW_MS)
            continue
        with pytest.raises(SaslError):
            there.evaluate(message, NOW_MS)
    assert there.login is None


def test_an_expired_delegation_token_does_not_log_in() -> None:
    keys = ALICE[SHA_256].keys
    token = ScramCredential(SALT, 4096, keys, Login("alice", NOW_MS, token_id="id"))
    there = ScramServer(SHA_256, lambda _id, by_token: token if by_token else None, "s", SECRET)
    with pytest.raises(SaslError, match="expired"):
        exchange(ScramClient(SHA_256, "id", "secret", "c", by_token=True), there)
    live = token._replace(login=Login("alice", NOW_MS + 1, token_id="id"))
    there = ScramServer(SHA_256, lambda _id, by_token: live if by_token else None, "s", SECRET)
    found = exchange(ScramClient(SHA_256, "id", "secret", "c", by_token=True), there)
    assert found == Login("alice", NOW_MS + 1, token_id="id")


def test_nothing_secret_is_in_a_repr() -> None:
    keys = scram_keys("sha256", b"x" * 32)
    known = credentials({"alice": "secret"}, {"alice": ALICE[SHA_256]})
    shown = f"{keys!r} {ALICE[SHA_256]!r} {known!r}"
    for secret in ("secret", repr(keys.stored_key), repr(ALICE[SHA_256].keys.server_key)):
        assert secret not in shown
