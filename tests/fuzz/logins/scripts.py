"""What a peer sends on one connection, by chance: strangers' frames, and logins that go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from broker.protocol import codec
from broker.protocol.versions import SERVED, ApiKey
from raftctl.security.sasl import SaslError, make_client
from tests.fuzz.logins.broker import (
    MECHANISMS,
    PASSWORD,
    RECEIVE_SIZE,
    STRANGER,
    USER,
    WRONG_PASSWORD,
)
from tests.fuzz.mutation import LENGTH_BYTES, generated, mutated
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    import random

    from raftctl.security.sasl import ClientMechanism
    from tests.fuzz.logins.broker import Stores
    from tests.fuzz.logins.judge import Judge

TOPIC_ID = UUID(int=1)
_LOGIN_APIS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_SOFTWARE = {"client_software_name": "fuzz", "client_software_version": "1"}
_OTHER_PROTOCOLS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"EHLO localhost\r\n",
    b"\x05\x01\x00",
    b"*1\r\n$4\r\nPING\r\n",
)
_GSSAPI = (
    b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00\x6e\x82",
    b"\x60\x28\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x1e\x30\x1c\xa0\x1a",
    b"NTLMSSP\0\1\0\0\0",
)
"""How a client without SaslHandshake begins: Kerberos, SPNEGO, NTLM."""
_MAY_BE_ASKED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "", "é" * 50)


def framed(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def request(key: int, version: int, chance: random.Random, message: dict[str, Any]) -> bytes:
    """A sound request, with a correlation id by chance."""
    return codec.encode_request(key, version, chance.getrandbits(31), "fuzz", message)


def handshake(chance: random.Random, mechanism: str, version: int) -> bytes:
    """A SaslHandshake."""
    return request(ApiKey.SASL_HANDSHAKE, version, chance, {"mechanism": mechanism})


# --- before a login -------------------------------------------------------------------------------


async def before(judge: Judge, chance: random.Random) -> None:
    """One to six frames of a peer that has no secret."""
    for _ in range(chance.choice((1, 1, 2, 3, 4, 6))):
        if judge.link.is_ended:
            return
        await judge.send(stray(chance))


def stray(chance: random.Random) -> bytes:
    """A frame that is out of place, or none at all."""
    kind = chance.random()
    if kind < 0.1:
        return framed(chance.randbytes(chance.choice((0, 1, 8, 9, 20, 200, 5_000))))
    if kind < 0.14:
        return chance.randbytes(chance.randint(1, 40))
    if kind < 0.26:
        return generated(chance, TOPIC_ID)
    if kind < 0.3:
        token = chance.choice(_GSSAPI) + chance.randbytes(chance.randint(0, 300))
        return framed(token) if chance.random() < 0.8 else token
    if kind < 0.33:
        return chance.choice(_OTHER_PROTOCOLS)
    if kind < 0.37:
        size = chance.choice((RECEIVE_SIZE, RECEIVE_SIZE + 1, 2**31 - 1, -1, -(2**31), 7))
        return size.to_bytes(LENGTH_BYTES, "big", signed=True) + chance.randbytes(20)
    frame = _of_a_login(chance)
    if kind < 0.6:
        return frame
    return mutated(frame, _of_a_login(chance), chance)


def _of_a_login(chance: random.Random) -> bytes:
    key = chance.choice(_LOGIN_APIS)
    version = chance.choice(SERVED[key])
    if key == ApiKey.API_VERSIONS:
        return request(key, version, chance, _SOFTWARE if version > 2 else {})
    if key == ApiKey.SASL_HANDSHAKE:
        return handshake(chance, chance.choice(_MAY_BE_ASKED), version)
    token = chance.choice((b"", b"\0a\0b", b"n,,n=alice,r=abc", chance.randbytes(40)))
    return request(key, version, chance, {"auth_bytes": token})


# --- during a login -------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How a login goes: who, by what, and how often something else is sent than should be."""

    mechanism: str
    user: str
    password: str
    token: str
    version: int
    """Of SaslHandshake: after 0, tokens have no header."""
    by_token: bool
    """Whether SCRAM says `tokenauth`."""
    rate: float
    """Of frames that are changed."""

    @property
    def may_succeed(self) -> bool:
        """Whether the peer knows the secret of a user."""
        return self.token == "" if self.mechanism != "OAUTHBEARER" else self.user == USER


def plan(chance: random.Random, stores: Stores) -> Plan:
    """A login by chance, half of them with a secret that is right."""
    mechanism = chance.choice(MECHANISMS)
    is_right = chance.random() < 0.5
    by_token = mechanism.startswith("SCRAM") and chance.random() < 0.15
    if mechanism == "OAUTHBEARER":
        token = stores.token if is_right else chance.choice(stores.forged)
        return Plan(
            mechanism, USER if is_right else STRANGER, "", token, _version(chance), False, 0.4
        )
    user = USER if is_right or chance.random() < 0.5 else STRANGER
    password = PASSWORD if is_right else WRONG_PASSWORD
    nobody = "" if is_right and not by_token else "nobody"
    rate = chance.choice((0.0, 0.3, 0.6))
    return Plan(mechanism, user, password, nobody, _version(chance), by_token, rate)


def _version(chance: random.Random) -> int:
    return 0 if chance.random() < 0.2 else 1


async def during(judge: Judge, chance: random.Random, wanted: Plan) -> None:
    """A login, some requests, and perhaps a renewal; each frame may be another than it should."""
    judge.name = USER if wanted.may_succeed else None
    if chance.random() < 0.3:
        await _send(judge, chance, wanted, request(ApiKey.API_VERSIONS, 3, chance, _SOFTWARE))
    await _log_in(judge, chance, wanted)
    loop = judge.loop
    for _ in range(chance.choice((0, 1, 2))):
        if judge.link.is_ended:
            return
        if chance.random() < 0.5:
            await _send(judge, chance, wanted, generated(chance, TOPIC_ID))
            continue
        # A session lasts a minute, and is not renewed twice within a second.
        loop.now += chance.choice((0.5, 2.0, 59.0, 61.0))
        mechanism = chance.choice((wanted.mechanism, chance.choice(MECHANISMS)))
        await _log_in(judge, chance, wanted._replace(mechanism=mechanism))


async def _log_in(judge: Judge, chance: random.Random, wanted: Plan) -> None:
    client = _client(wanted, chance)
    await _send(judge, chance, wanted, handshake(chance, wanted.mechanism, wanted.version))
    challenge = b""
    for _ in range(4):
        if judge.link.is_ended:
            return
        try:
            token = client.respond(challenge)
        except (SaslError, ValueError):
            token = b"\x01"
        if token is None:
            return
        answers = await _send_token(judge, chance, wanted, token)
        if len(answers) != 1:
            return
        challenge = _challenge(answers[0], wanted.version)


def _client(wanted: Plan, chance: random.Random) -> ClientMechanism:
    options = {"username": wanted.user, "password": wanted.password}
    if wanted.by_token:
        options["tokenauth"] = "true"
    return make_client(
        wanted.mechanism, jaas(**options), f"{chance.getrandbits(64):x}", wanted.token
    )


def _challenge(answer: bytes, version: int) -> bytes:
    if version == 0:
        return answer
    try:
        message = codec.decode_response(ApiKey.SASL_AUTHENTICATE, 2, answer)[1]
    except codec.MalformedError:
        return b"?"
    return bytes(message["auth_bytes"])


async def _send_token(
    judge: Judge, chance: random.Random, wanted: Plan, token: bytes
) -> list[bytes]:
    if chance.random() < wanted.rate / 2:
        token = mutated(framed(token), framed(_other_token(chance)), chance)[LENGTH_BYTES:]
    if wanted.version == 0:
        return await _send(judge, chance, wanted, framed(token))
    frame = request(ApiKey.SASL_AUTHENTICATE, 2, chance, {"auth_bytes": token})
    return await _send(judge, chance, wanted, frame)


async def _send(judge: Judge, chance: random.Random, wanted: Plan, frame: bytes) -> list[bytes]:
    """Send a frame, or what has become of it, or another one before it."""
    kind = chance.random() / wanted.rate if wanted.rate else 1.0
    if kind < 0.25:
        await judge.send(stray(chance))
        if judge.link.is_ended:
            return []
    elif kind < 0.5:
        frame = mutated(frame, _of_a_login(chance), chance)
    elif kind < 0.55:
        frame += frame
    return await judge.send(frame)


def _other_token(chance: random.Random) -> bytes:
    return chance.choice(
        (
            b"\0alice\0x",
            b"n,a=admin,n=alice,r=x,tokenauth=true",
            b"c=biws,r=x,p=AAAA",
            b"n,,\x01auth=Bearer a.b.c\x01\x01",
            b",m=x,tokenauth=true",
            b"=2C=3D,\0",
        )
    )


async def twins(judge: Judge, chance: random.Random, user: str) -> None:
    """A login with a wrong password, the same for a user that exists and for one that does not."""
    mechanism = chance.choice(MECHANISMS[:3])
    wanted = Plan(mechanism, user, WRONG_PASSWORD, "nobody", _version(chance), False, 0.0)
    await during(judge, chance, wanted)


# --- beneath TLS ----------------------------------------------------------------------------------


async def records(judge: Judge, chance: random.Random) -> None:
    """A handshake of TLS whose bytes are changed, or that is never ended."""
    first = chance.random()
    if first < 0.2:
        await judge.send_record(stray(chance))

    def tamper(data: bytes) -> bytes:
        judge.frames += 1
        if chance.random() < 0.5 or not data:
            return data
        return mutated(framed(data), chance.randbytes(20), chance)[LENGTH_BYTES:]

    if judge.link.is_ended:
        return
    if await judge.link.shake(tamper) and not judge.link.is_ended:
        await judge.send_record(mutated(framed(b"\x17\x03\x03\x00\x20" + bytes(32)), b"x", chance))
