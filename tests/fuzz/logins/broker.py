"""The broker whose listeners are attacked: production code, but for time, chance and threads."""

from __future__ import annotations

import asyncio
import base64
import datetime
import functools
import hashlib
import hmac
import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import UUID

from joserfc import jwk, jwt

from broker.authentication import Authenticator, Verifiers
from broker.protocol import codec
from broker.protocol.versions import ApiKey
from broker.server import Listeners
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.runtime.api import ProcessUsage
from raftctl.runtime.real import RealRuntime, make_sender
from raftctl.security.sasl import _plain, scram
from raftctl.security.sasl.scram import HASHES, SCRAM_IDS, salted_password, scram_keys
from raftctl.security.tls import NodeTls
from tests.fuzz.mutation import LENGTH_BYTES
from tests.kit.certificates import Authority, Issued, self_signed
from tests.unit.broker.server.fakes import FakeBroker, broker_record, publish, topic_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from broker.apis import Response, Serve
    from broker.apis.handler import Reply
    from broker.protocol.codec import Frame
    from broker.request_context import RequestContext
    from raftctl.runtime.api import Sender, Worker
    from raftctl.security import Principal

PLAIN_LISTENER, TLS_LISTENER, CERTIFICATE_LISTENER = "OPEN", "SEALED", "NAMED"
USER, STRANGER = "alice", "alicf"
"""Of equal length: what is answered to the two must differ in nothing."""
PASSWORD = "zKw93-Qp!vBx7"  # of a user that exists for the run
WRONG_PASSWORD = "Jm4?uR6_tLc20"  # nobody's
NODE_PASSWORD = "wV8~hN1+sYd55"  # of the brokers
SALT = b"of sixteen bytes"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RECEIVE_SIZE = 20_000
"""`sasl.server.max.receive.size`: frames just above it are cheap to send."""
FAILURE_DELAY_MS = 100
_MODULES = "org.apache.kafka.common.security"
_SESSION_MS = 60_000
_DAY = datetime.timedelta(days=1)
_API_VERSIONS = b"\0\x12"
_SERVED_HERE = (
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
)
"""After a login; anything else is served as if it were a Metadata."""
_PROTOCOLS = {
    PLAIN_LISTENER: "SASL_PLAINTEXT",
    TLS_LISTENER: "SASL_SSL",
    CERTIFICATE_LISTENER: "SSL",
}


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still until it is moved on."""

    now = 1_000.0

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return self.now


class _InlineWorker:
    """Calls at once: no thread decides in which order things happen."""

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """See `Worker`."""
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(call())
        except (OSError, ValueError) as error:
            future.set_exception(error)
        return future

    def pause(self) -> None:
        """See `Worker`."""

    def close(self) -> None:
        """See `Worker`."""


class SeededRuntime:
    """A runtime whose identifiers follow from the chance of the connection that asks."""

    def __init__(self, *, with_threads: bool) -> None:
        self._with_threads = with_threads
        self._real = RealRuntime(io.StringIO())
        self.chance = self.random = self._real.random
        self.files = self._real.files
        self.log = self._real.log

    def wall_ms(self) -> int:
        """See `Runtime.wall_ms`."""
        return wall_ms()

    def uuid(self) -> UUID:
        """See `Runtime.uuid`."""
        return UUID(int=self.chance.getrandbits(128), version=4)

    def usage(self) -> ProcessUsage:
        """See `Runtime.usage`."""
        return ProcessUsage()

    def idle_s(self) -> float | None:
        """See `Runtime.idle_s`."""
        return self._real.idle_s()

    def sender(self, transport: asyncio.BaseTransport) -> Sender | None:
        """See `Runtime.sender`."""
        return self._real.sender(transport)

    def worker(self, name: str, *, short_calls: bool = False) -> Worker:
        """See `Runtime.worker`."""
        if self._with_threads:
            return self._real.worker(name, short_calls=short_calls)
        return _InlineWorker()

    def close(self) -> None:
        """End what it has started."""
        self._real.close()


class Hashes:
    """Counts what a login computes, in the place of `hmac` and `hashlib`."""

    def __init__(self) -> None:
        self.count = 0

    def digest(self, *arguments: Any) -> bytes:
        """See `hmac`."""
        self.count += 1
        return hmac.digest(*arguments)

    def compare_digest(self, one: bytes, other: bytes) -> bool:
        """See `hmac`."""
        self.count += 1
        return hmac.compare_digest(one, other)

    def new(self, *arguments: Any) -> Any:
        """See `hashlib`."""
        self.count += 1
        return hashlib.new(*arguments)

    def sha256(self, data: bytes) -> Any:
        """See `hashlib`."""
        self.count += 1
        return hashlib.sha256(data)

    @staticmethod
    def pbkdf2_hmac(*arguments: Any) -> bytes:
        """See `hashlib`: only the side that logs in computes it."""
        return hashlib.pbkdf2_hmac(*arguments)

    @contextmanager
    def installed(self) -> Iterator[Hashes]:
        """Count from now on; what clients derive from a password is derived once."""
        derive = functools.lru_cache(10_000)(salted_password)
        with (
            mock.patch.object(scram, "hmac", self),
            mock.patch.object(scram, "hashlib", self),
            mock.patch.object(scram, "salted_password", derive),
            mock.patch.object(_plain, "hmac", self),
            mock.patch.object(_plain, "hashlib", self),
        ):
            yield self


def wall_ms() -> int:
    """The wall clock, which goes with the loop's."""
    return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)


class AttackedBroker(FakeBroker):
    """A broker with listeners of SASL_PLAINTEXT, SASL_SSL, and SSL for clients with certificates.

    `folder` is for certificates and for the keys of an issuer of tokens.
    """

    def __init__(self, folder: Path, *, on_sockets: bool = False) -> None:
        self._on_sockets = on_sockets
        self.stores = Stores(folder)
        keys = self.stores.keys()
        super().__init__(**keys)
        self.runtime = SeededRuntime(with_threads=on_sockets)
        self.tls = NodeTls(self.runtime, self.log)
        self.listeners = Listeners(self.config, self.limits, self.log, make_sender, self.tls)
        self.ports: dict[str, int] = {}
        self.verifiers: list[Verifiers] = []
        self.acceptors = {
            listener.name: self.listeners._acceptor(listener, self.serve_on(listener.name))
            for listener in self.config.broker_listeners
        }
        """What makes the protocol of a connection, by listener."""

    def serve_on(self, listener: str) -> Serve:
        """See `FakeBroker.serve_on`."""
        settings = self.config.listener_security(listener).sasl
        if settings is None:
            return self.serve
        verifiers = Verifiers(
            self.config, settings, lambda: self.metadata.image, self.runtime, "a-cluster"
        )
        self.verifiers.append(verifiers)
        return Authenticator(
            settings,
            verifiers,
            self.serve,
            wall_ms=wall_ms,
            failure_delay_ms=self.config.connection_failed_authentication_delay_ms,
            on_login=self.limits.counts[listener].logged_in,
        ).serve

    async def start(self) -> None:
        """Publish users, fetch the keys of the issuer, and listen if asked to."""
        records = [broker_record(1, 9092), *topic_records("t", UUID(int=1), 1)]
        publish(self.metadata, [*records, *(scram_user(one) for one in MECHANISMS[1:3])])
        if self._on_sockets:
            endpoints = await self.listeners.bind(self.serve_on)
            self.ports = {endpoint.listener: endpoint.port for endpoint in endpoints}
        for verifiers in self.verifiers:
            await verifiers.start()
        self.limits.begin()

    async def stop(self) -> None:
        """Close everything."""
        self.listeners.close()
        for _ in range(3):
            await asyncio.sleep(0)
        self.context.producer_ids.close()
        self.context.internal_topics.close()
        await self.groups.stop()
        await self.verifier.stop()
        await self.transactions.stop()
        for verifiers in self.verifiers:
            verifiers.close()
        self.runtime.close()

    def serve(self, frame: Frame, context: RequestContext) -> Response | Reply[Response]:
        """See `FakeBroker.serve`. Without a login nothing but ApiVersions comes here."""
        sasl = context.connection.sasl
        is_open = sasl is not None and not sasl.has_authenticated
        assert not is_open or frame.startswith(_API_VERSIONS), "served before a login"
        if int.from_bytes(frame[:2], "big") not in _SERVED_HERE:
            # What changes something would look like a leak: `--mode served` sends those.
            number = int.from_bytes(frame[4:8], "big", signed=True)
            whole = codec.encode_request(ApiKey.METADATA, 1, number, "fuzz", {"topics": []})
            frame = whole[LENGTH_BYTES:]
        return super().serve(frame, context)

    def principals(self) -> set[Principal]:
        """For whom requests were dispatched after a login."""
        return {context.connection.principal for context in self.contexts}

    def secrets(self) -> dict[bytes, int]:
        """What may be read nowhere, with how many bytes of it in a row are too many."""
        users = [scram_user(one) for one in MECHANISMS[1:3]]
        keys = [key for user in users for key in (user.stored_key, user.server_key)]
        texts = [PASSWORD, WRONG_PASSWORD, NODE_PASSWORD]
        # By chance no nonce has so many bytes in a row of these.
        encoded = [
            *(one.encode() for one in (*self.stores.signatures, *self.stores.key_lines)),
            *(base64.b64encode(key).rstrip(b"=") for key in keys),
            *(key.hex().encode() for key in keys),
        ]
        return (
            dict.fromkeys((text.encode() for text in texts), 7)
            | dict.fromkeys(encoded, 16)
            | dict.fromkeys(keys, 8)
        )


def scram_user(mechanism: str) -> UserScramCredentialRecord:
    """The credential of the user."""
    digest = HASHES[mechanism]
    keys = scram_keys(digest, _derived(digest))
    return UserScramCredentialRecord(USER, SCRAM_IDS[mechanism], SALT, *keys, 4096)


@functools.cache
def _derived(digest: str) -> bytes:
    return hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), SALT, 4096)


class Stores:
    """Certificates of the broker and of its clients, and tokens of an issuer."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self._folder = folder
        node = self.authority.issue("broker")
        self._keystore = node.store(folder / "broker.pem")
        self._trusted = self.authority.store(folder / "trusted.pem")
        (folder / "broker.pem").chmod(0o600)
        self.client = self.authority.issue(USER)
        self.strangers: tuple[Issued, ...] = (
            Authority("Another CA").issue(USER),
            self_signed(USER),
            self.authority.issue(USER, since=-2 * _DAY, until=-_DAY),
            self.authority.issue(USER, since=_DAY),
        )
        """With which nobody gets in: of another authority, of none, expired, of tomorrow."""
        self.key_lines = [line for line in node.key_pem().splitlines() if "-----" not in line]
        issuer = jwk.ECKey.generate_key("P-256", {"kid": "one"})
        (folder / "keys.json").write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
        stranger = jwk.ECKey.generate_key("P-256", {"kid": "one"})
        shared = jwk.OctKey.import_key(json.dumps(issuer.as_dict(private=False)))
        claims = {"sub": USER, "iat": 1, "exp": 9_999_999_999}
        head = {"alg": "ES256", "kid": "one"}
        self.token = jwt.encode(head, claims, issuer, algorithms=["ES256"])
        """The one that is valid."""
        self.forged = (
            jwt.encode(head, claims, stranger, algorithms=["ES256"]),
            jwt.encode(head, {**claims, "exp": 1_000}, issuer, algorithms=["ES256"]),
            jwt.encode({**head, "kid": "two"}, claims, stranger, algorithms=["ES256"]),
            jwt.encode({"alg": "HS256", "kid": "one"}, claims, shared, algorithms=["HS256"]),
            _unsigned({"alg": "none"}, claims),
            _unsigned(["alg"], claims),
            _unsigned("alg", claims),
        )
        """Of another key, expired, of a key that is not there, of the public key, of none."""
        self.signatures = [one.rpartition(".")[2] for one in (self.token, *self.forged[:4])]

    def keys(self) -> dict[str, str]:
        """The configuration of the broker."""
        address = "127.0.0.1:0"
        keys = {
            "listeners": ",".join(f"{one}://{address}" for one in _PROTOCOLS),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()),
            "inter.broker.listener.name": PLAIN_LISTENER,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.server.max.receive.size": str(RECEIVE_SIZE),
            "sasl.oauthbearer.jwks.endpoint.url": (self._folder / "keys.json").as_uri(),
            "connections.max.reauth.ms": str(_SESSION_MS),
            "connection.failed.authentication.delay.ms": str(FAILURE_DELAY_MS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._trusted,
            f"listener.name.{CERTIFICATE_LISTENER.lower()}.ssl.client.auth": "required",
        }
        for name in (PLAIN_LISTENER, TLS_LISTENER):
            own = f"listener.name.{name.lower()}"
            keys[f"{own}.plain.sasl.jaas.config"] = (
                f"{_MODULES}.plain.PlainLoginModule required username=broker "
                f'password="{NODE_PASSWORD}" user_broker="{NODE_PASSWORD}" '
                f'user_{USER}="{PASSWORD}";'
            )
            keys[f"{own}.oauthbearer.sasl.jaas.config"] = (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            )
        return keys


def _unsigned(header: Any, claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()) for one in (header, claims)]
    return ".".join(part.rstrip(b"=").decode() for part in [*parts, b"eA"])
