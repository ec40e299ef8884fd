"""New connections a second: full handshakes of TLS 1.3, and logins with SCRAM-SHA-512.

The client is several processes with several threads. It spares itself what the server does not
see: it does not verify the chain, and derives the keys of its password once. Each connection ends
with the answer to an ApiVersions, since a client's handshake ends before the server's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import multiprocessing
import secrets
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from broker.protocol.codec import decode_response, encode_request
from broker.protocol.versions import ApiKey
from raftctl.security.sasl.scram import salted_password, scram_keys
from tests.bench.kafka.turns import Options, Quantity, in_turns
from tests.bench.security.clusters import MECHANISM, PLAINTEXT, SASL_SSL, USER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.kafka.clusters import Cluster

PROCESSES, THREADS = 2, 4
SECONDS = 4.0
TIMEOUT_S = 10.0
"""Of one step of a connection."""
END_S = 60.0
"""Of a process, beyond its time."""
DIGEST = "sha512"


@dataclass(frozen=True, slots=True)
class Work:
    """What one process does."""

    addresses: tuple[tuple[str, int], ...]
    protocol: str
    password: str
    seconds: float

    def context(self) -> ssl.SSLContext | None:
        """A context of TLS 1.3 that asks for no name; None without TLS."""
        if self.protocol == PLAINTEXT:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


def connections(clusters: Sequence[Cluster], options: Options) -> dict[str, Any]:
    """Connections to the brokers in turn, each with its handshake and its login."""
    goal = f"{PROCESSES * THREADS} at once; goal: at least 1 beside Apache Kafka"
    quantities = {
        "connections": Quantity("/s", goal, 0),
        "connections_cpu": Quantity("ms", "processor time of all brokers for one", 3),
        "connections_client_cpu": Quantity("ms", "processor time of the client for one", 3),
    }
    return in_turns(clusters, options.turns, _measured, quantities, options.compare)


def _measured(cluster: Cluster, _: int) -> Mapping[str, float]:
    client = cluster.entrance.client
    work = Work(
        tuple(_address(one) for one in cluster.bootstrap.split(",")),
        client.get("security.protocol", PLAINTEXT),
        client.get("sasl.password", ""),
        SECONDS,
    )
    before = cluster.broker_cpu_seconds()
    reports = _run(work)
    used = cluster.broker_cpu_seconds() - before
    count = sum(one["count"] for one in reports)
    failures = [failure for one in reports for failure in one["failures"]]
    if failures or not count:
        raise RuntimeError(f"{cluster.name}: {len(failures)} failed: {failures[:1]}")
    return {
        "connections": sum(one["count"] / one["seconds"] for one in reports),
        "connections_cpu": used * 1000 / count,
        "connections_client_cpu": sum(one["cpu_s"] for one in reports) * 1000 / count,
    }


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _run(work: Work) -> list[dict[str, Any]]:
    """Run the processes and return their reports; none is left, also after an error."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        running = pool.map_async(perform, [work] * PROCESSES, chunksize=1)
        try:
            return running.get(work.seconds + END_S)
        except multiprocessing.TimeoutError:
            raise TimeoutError("a client does not come to its end") from None


# --- one process ----------------------------------------------------------------------------------


class _Wire:
    """Requests of one connection, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def ask(self, api: int, version: int, message: Mapping[str, Any]) -> Any:
        """The answer, whose error code must be 0."""
        self._connection.sendall(encode_request(api, version, 1, "bench", dict(message)))
        size = int.from_bytes(self._exactly(4), "big")
        answer = decode_response(api, version, self._exactly(size))[1]
        if answer["error_code"]:
            raise ConnectionError(f"{ApiKey(api).name}: error {answer['error_code']}")
        return answer

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._connection.recv(count - len(found))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            found += piece
        return found


class Logins:
    """Logins of one user."""

    def __init__(self, password: str) -> None:
        self._keys = cache(partial(self._derive, password))

    @staticmethod
    def _derive(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
        salted = salted_password(DIGEST, password, salt, iterations)
        return hmac.digest(salted, b"Client Key", DIGEST), scram_keys(DIGEST, salted).stored_key

    def log_in(self, wire: _Wire) -> None:
        """The exchange of RFC 5802; ConnectionError if it fails."""
        wire.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
        bare = f"n={USER},r={secrets.token_hex(16)}"
        first = self._respond(wire, f"n,,{bare}")
        of_server = dict(one.split("=", 1) for one in first.split(","))
        salt, iterations = base64.b64decode(of_server["s"]), int(of_server["i"])
        client_key, stored_key = self._keys(salt, iterations)
        without_proof = f"c=biws,r={of_server['r']}"
        signed = f"{bare},{first},{without_proof}".encode()
        signature = hmac.digest(stored_key, signed, hashlib.sha512)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._respond(wire, f"{without_proof},p={base64.b64encode(proof).decode()}")

    @staticmethod
    def _respond(wire: _Wire, text: str) -> str:
        answer = wire.ask(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": text.encode()})
        return bytes(answer["auth_bytes"]).decode()


def perform(work: Work) -> dict[str, Any]:
    """Make connections until the time is over; how many, and what failed."""
    context, logins = work.context(), Logins(work.password)
    counts: list[int] = []
    failures: list[str] = []
    began, cpu_began = time.perf_counter(), time.process_time()

    def connect_on(first: int) -> None:
        count = 0
        try:
            for number in itertools.count(first):
                if time.perf_counter() - began >= work.seconds:
                    break
                address = work.addresses[number % len(work.addresses)]
                _connect(address, context, logins if work.protocol == SASL_SSL else None)
                count += 1
        except OSError as error:
            failures.append(str(error))
        counts.append(count)

    threads = [threading.Thread(target=connect_on, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return {
        "count": sum(counts),
        "seconds": seconds,
        "cpu_s": time.process_time() - cpu_began,
        "failures": failures,
    }


def _connect(
    address: tuple[str, int], context: ssl.SSLContext | None, logins: Logins | None
) -> None:
    with socket.create_connection(address, timeout=TIMEOUT_S) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = plain if context is None else context.wrap_socket(plain)
        with connection:
            wire = _Wire(connection)
            if logins is not None:
                logins.log_in(wire)
            wire.ask(ApiKey.API_VERSIONS, 0, {})
