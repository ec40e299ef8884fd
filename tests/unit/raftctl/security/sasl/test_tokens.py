"""Tokens of an issuer: which are taken, which are refused, and when keys are fetched again."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk, jws
from structlog.testing import LogCapture

from raftctl.config.security import Jaas
from raftctl.runtime import MemoryDisk
from raftctl.security.sasl import Login, SaslError, UnknownKeyError
from raftctl.security.sasl.tokens import (
    ALGORITHMS,
    IssuerKeys,
    TokenRules,
    TokenValidator,
    check_url,
    parse_keys,
    read_document,
    read_token,
)
from tests.unit.raftctl.security.sasl.exchanges import NOW_MS, jaas

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("S3")

NOW = NOW_MS // 1000
RSA = jwk.RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
OTHER = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
ED = jwk.OKPKey.generate_key("Ed25519", {"kid": "ed"})
SHARED = jwk.OctKey.import_key({"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "s"})
KEYS = {"keys": [key.as_dict(private=False) for key in (RSA, EC, ED)]}
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW - 10,
    "exp": NOW + 60,
}


def signed(claims: Any = None, key: Any = EC, algorithm: str = "ES256", **header: Any) -> str:
    """A token with these claims."""
    whole = {"alg": algorithm, "kid": key.kid, **header}
    body = json.dumps(CLAIMS if claims is None else claims)
    return jws.serialize_compact(whole, body, key, algorithms=[algorithm])


def validator(**rules: Any) -> TokenValidator:
    """One that has the issuer's keys."""
    keys = parse_keys(json.dumps(KEYS).encode())

    def find(key_id: str | None) -> Any:
        if key_id not in keys:
            raise UnknownKeyError("unknown")
        return keys[key_id]

    return TokenValidator(TokenRules(**rules), find)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "Ed25519")],
    ids=["RS256", "PS512", "ES256", "Ed25519"],
)
def test_a_token_stands_for_its_subject_until_it_expires(key: Any, algorithm: str) -> None:
    token = signed(key=key, algorithm=algorithm)
    assert validator().validate(token, NOW_MS) == Login("alice", (NOW + 60) * 1000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exp": None}, "exp"),
        ({"exp": NOW - 31}, "expired"),
        ({"exp": "tomorrow"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"iat": None}, "iat"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iss": "https://other"}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other"]}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": 7}, "sub"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(change: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in (CLAIMS | change).items() if value is not None}
    rules = validator(audiences=("kafka",), issuer="https://issuer")
    with pytest.raises(SaslError, match=reason):
        rules.validate(signed(claims), NOW_MS)


@pytest.mark.parametrize(
    "change", [{"exp": NOW - 29}, {"nbf": NOW + 29}, {"aud": ["x", "kafka"]}, {"iat": NOW + 1000}]
)
def test_a_token_within_the_skew_is_taken(change: dict[str, Any]) -> None:
    rules = validator(audiences=("kafka", "other"), issuer="https://issuer")
    assert rules.validate(signed(CLAIMS | change), NOW_MS).name == "alice"


def test_the_principal_may_be_another_claim() -> None:
    token = signed(CLAIMS | {"client": "bob"})
    assert validator(principal_claim="client").validate(token, NOW_MS).name == "bob"


def unsigned() -> str:
    header, body, _ = signed().split(".")
    del header
    return f"eyJhbGciOiJub25lIn0.{body}."  # {"alg":"none"}


def with_public_key_as_secret() -> str:
    """HS256 over the text of the public key, which a naive verifier takes for the secret."""
    body = signed().split(".")[1]
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"ec"}').rstrip(b"=").decode()
    mac = hmac.digest(EC.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def with_header(header: Any) -> str:
    """A token whose header is any JSON; the libraries look for alg in it."""
    head = urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{head}.{signed().partition('.')[2]}"


FORGED: dict[str, Callable[[], str]] = {
    "unsigned": unsigned,
    "HS256 over a public key": with_public_key_as_secret,
    "HS256 over a shared key": lambda: signed(key=SHARED, algorithm="HS256"),
    "key of another": lambda: signed(key=OTHER),
    "no JSON": lambda: jws.serialize_compact({"alg": "ES256", "kid": "ec"}, "x", EC),
    "no object": lambda: signed(["sub"]),
    "changed": lambda: signed()[:-4] + "AAAA",
    "cut": lambda: signed().rpartition(".")[0],
    "too long": lambda: signed(CLAIMS | {"x": "y" * 70_000}),
    "empty": lambda: "",
    "header is a list": lambda: with_header(["alg"]),
    "header is a text": lambda: with_header("alg"),
    "wrong type of key": lambda: signed().replace(
        signed().partition(".")[0], signed(key=RSA, algorithm="RS256").partition(".")[0]
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("forgery", sorted(FORGED))
def test_a_forged_token_is_refused(forgery: str) -> None:
    with pytest.raises(SaslError) as refused:
        validator().validate(FORGED[forgery](), NOW_MS)
    assert not isinstance(refused.value, UnknownKeyError)


def test_no_algorithm_is_one_of_a_shared_key() -> None:
    assert not [one for one in ALGORITHMS if one.startswith("HS") or one == "none"]


@given(st.text(st.sampled_from("abcABC019-_.="), max_size=80))
def test_arbitrary_text_is_refused(token: str) -> None:
    with pytest.raises(SaslError):
        validator().validate(token, NOW_MS)


def test_only_public_keys_for_signatures_are_kept() -> None:
    keys = [
        *KEYS["keys"],
        SHARED.as_dict(private=True),
        {**EC.as_dict(private=False), "kid": "enc", "use": "enc"},
        {"kty": "RSA", "kid": "broken"},
        "no key",
        OTHER.as_dict(private=True) | {"kid": "private"},
    ]
    found = parse_keys(json.dumps({"keys": keys}).encode())
    assert sorted(found) == ["ec", "ed", "private", "rsa"]
    assert not found["private"].is_private


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": 7}', b"\xff"])
def test_a_document_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_keys(document)


class Issuer:
    """What is published, and how often it was asked."""

    def __init__(self) -> None:
        self.document: bytes | OSError = json.dumps(KEYS).encode()
        self.asked = 0
        self.now = 1000.0
        self.log = LogCapture()
        self.keys = IssuerKeys(
            self.fetch,
            lambda: self.now,
            structlog.wrap_logger(structlog.PrintLogger(), processors=[self.log]),
            refresh_seconds=100,
            retry_seconds=1,
            pause_seconds=10,
        )

    def fetch(self) -> asyncio.Future[bytes]:
        self.asked += 1
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if isinstance(self.document, OSError):
            future.set_exception(self.document)
        else:
            future.set_result(self.document)
        return future


async def test_keys_are_fetched_for_an_unknown_one_with_pauses() -> None:
    issuer = Issuer()
    with pytest.raises(UnknownKeyError):
        issuer.keys.find("ec")
    await asyncio.gather(issuer.keys.refresh(), issuer.keys.refresh())
    assert issuer.asked == 1, "fetches do not overlap"
    assert issuer.keys.find("ec").kid == "ec"
    for _ in range(100):
        with pytest.raises(UnknownKeyError):
            issuer.keys.find("invented")
        await issuer.keys.refresh()
    assert issuer.asked == 1, "who invents keys does not make the node ask"
    issuer.now += 10
    await issuer.keys.refresh()
    assert issuer.asked == 2


@pytest.mark.req("S8")
async def test_an_issuer_that_fails_is_asked_again_after_longer_and_longer() -> None:
    issuer = Issuer()
    document, issuer.document = issuer.document, OSError("not there")
    asked_at = []
    for tenth in range(600):
        issuer.now = 1000.0 + tenth / 10
        before = issuer.asked
        await issuer.keys.refresh()
        await asyncio.sleep(0)
        if issuer.asked > before:
            asked_at.append(tenth / 10)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_at)]
    assert [round(pause) for pause in pauses] == [1, 2, 4, 8, 10, 10, 10, 10]
    issuer.document = document
    issuer.now += 10
    await issuer.keys.refresh()
    assert issuer.keys.find("ec").kid == "ec"


async def test_old_keys_are_fetched_again_and_stay_if_that_fails() -> None:
    issuer = Issuer()
    issuer.keys.refresh_if_old()
    await asyncio.sleep(0)
    issuer.keys.refresh_if_old()
    assert issuer.asked == 1
    issuer.now += 100
    issuer.document = OSError("secret text")
    issuer.keys.refresh_if_old()
    await asyncio.sleep(0)
    assert issuer.asked == 2
    assert issuer.keys.find("ec").kid == "ec"
    assert issuer.log.entries == [
        {"event": "issuer_keys_not_fetched", "reason": "OSError", "log_level": "warning"}
    ]
    issuer.now += 100
    issuer.document = json.dumps({"keys": [RSA.as_dict(private=False)]}).encode()
    await issuer.keys.refresh()
    with pytest.raises(UnknownKeyError):
        issuer.keys.find("ec")
    assert issuer.keys.find(None).kid == "rsa", "the only one needs no id"


@pytest.mark.parametrize(
    "url", ["https://issuer/keys", "file:///keys.json", "http://127.0.0.1:1/x", "http://localhost/"]
)
def test_a_url_that_others_cannot_change(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url", ["", "keys.json", "http://issuer/keys", "ftp://x/y", "file://host/x", "https://"]
)
def test_a_url_that_others_could_change_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        check_url(url)


def test_keys_and_tokens_come_from_files() -> None:
    files = MemoryDisk(None)
    for path, content in (("/keys", b"{}"), ("/token", b"abc.def.ghi\n"), ("/long", b"x" * 2**21)):
        file = files.open(path, create=True)
        file.append([content])
        file.close()
    assert read_document("file:///keys", files) == b"{}"
    assert read_token("file:///token", Jaas("M"), files) == "abc.def.ghi"
    with pytest.raises(ValueError, match="longer"):
        read_document("file:///long", files)
    with pytest.raises(FileNotFoundError):
        read_document("file:///absent", files)


async def test_a_token_is_asked_of_a_server() -> None:
    asked: list[bytes] = []
    answer = b'{"access_token": "abc", "expires_in": 60}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"ength:" in line)
        asked.append(head + await reader.readexactly(length))
        status = b"200 OK" if b"/token" in head else b"302 Found\r\nLocation: http://127.0.0.1:1/"
        writer.write(b"HTTP/1.0 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(answer))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    login = jaas(clientId="me", clientSecret="secret", scope="kafka")
    files = MemoryDisk(None)
    assert await asyncio.to_thread(read_token, f"{url}/token", login, files) == "abc"
    assert b"Authorization: Basic bWU6c2VjcmV0\r\n" in asked[0]
    assert asked[0].endswith(b"grant_type=client_credentials&scope=kafka")
    with pytest.raises(OSError, match="no answer") as failed:
        await asyncio.to_thread(read_token, f"{url}/elsewhere", login, files)
    assert "secret" not in str(failed.value)
    server.close()
    await server.wait_closed()
