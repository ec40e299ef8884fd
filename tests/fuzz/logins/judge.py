"""What must hold of a connection: after each of its frames, and when it has ended."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from typing import TYPE_CHECKING, Any, cast

from broker.protocol.versions import ApiKey
from tests.fuzz.logins import answers
from tests.fuzz.logins.broker import CERTIFICATE_LISTENER, FAILURE_DELAY_MS, USER

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from tests.fuzz.logins.broker import AttackedBroker, Hashes, VirtualLoop
    from tests.fuzz.logins.links import Link

HASHES_MAX = 16
"""Of one frame with a token; more would let a peer keep the node busy."""
REASON_MAX = 400
"""Characters of the reason why a connection ended."""
LOGIN_S, IDLE_S = 31.0, 601.0
_ENDS = ("connection_closed", "connection_failed")


class Secrets:
    """Finds what may be read nowhere, also a part of it."""

    def __init__(self, known: Mapping[bytes, int]) -> None:
        """Each with the bytes in a row that are as bad as all of it."""
        self._windows: dict[int, set[bytes]] = {}
        for one, size in known.items():
            windows = self._windows.setdefault(size, set())
            windows.update(one[at : at + size] for at in range(len(one) - size + 1))
        self._find = functools.lru_cache(10_000)(self._search)

    def found_in(self, data: bytes) -> bytes | None:
        """Return a part of a secret, if there is one."""
        return self._find(data)

    def _search(self, data: bytes) -> bytes | None:
        for size, windows in self._windows.items():
            for at in range(len(data) - size + 1):
                if data[at : at + size] in windows:
                    return data[at : at + size]
        return None


class Judge:
    """Sends the frames of one peer, and looks at all that comes of it.

    `name` is whom the peer may become: it knows that user's secret, or shows the certificate. With
    None nobody. AssertionError says what does not hold.
    """

    def __init__(
        self, broker: AttackedBroker, link: Link, listener: str, hashes: Hashes, secrets: Secrets
    ) -> None:
        self.name: str | None = None
        self.link = link
        self.frames = 0
        self.slowest_s = 0.0
        self.transcript: list[tuple[Any, ...]] = []
        """The answers without what is of chance, and what each has cost in hashes."""
        self.listener = listener
        self._broker = broker
        self._hashes = hashes
        self._secrets = secrets
        self._asked: dict[bytes, list[tuple[int, int]]] = {}
        self._was_raw = False
        self._was_logged_in = False
        self._answers = bytearray()

    @property
    def loop(self) -> VirtualLoop:
        """Whose clock the peer may move on."""
        return cast("VirtualLoop", asyncio.get_running_loop())

    @property
    def state(self) -> str:
        """How far the connection has come, for the summary."""
        if self.link.is_ended:
            return "ended by the broker"
        return "logged in" if self.link.is_logged_in else "open"

    async def send(self, frame: bytes) -> list[bytes]:
        """Send a frame, its length included; the answers without theirs."""
        self._note(frame)
        return await self._observe(self.link.send(frame))

    async def send_record(self, data: bytes) -> None:
        """Send bytes beneath TLS."""
        await self._observe(self.link.send_raw(data))

    async def _observe(self, sending: Any) -> list[bytes]:
        self.frames += 1
        hashes, begun = self._hashes.count, time.perf_counter()
        was_logged_in = self.link.is_logged_in
        loop_time = self.loop.time()
        await sending
        self.slowest_s = max(self.slowest_s, time.perf_counter() - begun)
        cost = self._hashes.count - hashes
        self._was_logged_in |= was_logged_in
        found = self._take()
        for answer in found:
            self._look_at(answer)
        assert cost <= HASHES_MAX * max(1, len(found)), f"{cost} hashes for a frame"
        self._check_principal()
        if self._refused and found:
            waited_ms = 1000 * (self.loop.time() - loop_time)
            assert waited_ms >= FAILURE_DELAY_MS - 1, f"a failure after {waited_ms:.0f} ms"
        shapes = [(len(one), one[4:10]) for one in found]
        self.transcript.append((cost, self.link.is_ended, *shapes))
        return found

    @property
    def _refused(self) -> bool:
        return self.link.connection._client.refusal is not None

    def _note(self, frame: bytes) -> None:
        self._was_raw |= self._takes_raw
        key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
        self._asked.setdefault(frame[8:12], []).append((key, version))

    @property
    def _takes_raw(self) -> bool:
        sasl = self.link.connection._client.sasl
        return sasl is not None and sasl.takes_raw_tokens

    def _take(self) -> list[bytes]:
        """Cut the answers that have come whole."""
        self._answers += self.link.received()
        found = []
        while len(self._answers) >= 4:
            end = 4 + int.from_bytes(self._answers[:4], "big")
            if len(self._answers) < end:
                break
            found.append(bytes(self._answers[4:end]))
            del self._answers[:end]
        return found

    def _look_at(self, answer: bytes) -> None:
        part = self._secrets.found_in(answer[4:])
        assert part is None, f"an answer has {part!r} of a secret"
        if self._was_logged_in:
            return
        self._was_raw |= self._takes_raw
        if self.listener == CERTIFICATE_LISTENER:
            assert self.name is not None, "an answer to a peer without a certificate"
            return
        asked = self._asked.get(answer[:4], [])
        logged_in = self.link.is_logged_in
        why = answers.forbidden(answer, asked, raw=self._was_raw, is_logged_in=logged_in)
        assert why is None, f"before a login: {why}"
        # What follows the success may be anything.
        has_token = self._was_raw or any(key == ApiKey.SASL_AUTHENTICATE for key, _ in asked)
        self._was_logged_in |= logged_in and has_token

    def _check_principal(self) -> None:
        client = self.link.connection._client
        if self.listener == CERTIFICATE_LISTENER:
            allowed = {"ANONYMOUS", f"CN={self.name},O=Test"}
            assert self.name is not None or not self._broker.contexts, "served without certificate"
        else:
            allowed = {"ANONYMOUS", self.name or "ANONYMOUS"}
            assert self.name is not None or not self.link.is_logged_in, "a login without a secret"
        assert client.principal.name in allowed, f"it became {client.principal}"

    async def finish(self, chance: random.Random) -> None:
        """End the connection, and look at what it leaves."""
        link, is_in = self.link, self.link.is_logged_in
        loop = self.loop
        how = chance.random()
        if link.is_ended or how < 0.7:
            link.lose()
        elif how < 0.85:
            link.lose(ConnectionResetError(104, "Connection reset by peer"))
        else:
            must_log_in = self.listener != CERTIFICATE_LISTENER and not self._was_logged_in
            loop.now += LOGIN_S if must_log_in and not is_in else IDLE_S
            for _ in range(4):
                await asyncio.sleep(0)
            assert link.is_ended, "a peer that is silent keeps its connection"
            link.lose()
        await asyncio.sleep(0)
        self._check_log(is_in)
        limits, broker = self._broker.limits, self._broker
        assert not limits._connections, "the connection is counted for ever"
        assert limits.permits == broker.config.queued_max_requests
        assert not len(broker.tls.handshakes), "a handshake is counted for ever"
        assert broker.failures == [], broker.failures
        broker.contexts.clear()
        broker.logged.entries.clear()

    def _check_log(self, is_in: bool) -> None:
        lines = [dict(one) for one in self._broker.logged.entries if one["event"] in _ENDS]
        for line in self._broker.logged.entries:
            part = self._secrets.found_in(json.dumps(dict(line), default=str).encode())
            assert part is None, f"the log has {part!r} of a secret: {line}"
            assert line["event"] != "connection_failed", f"a crash: {line}"
        least = 0 if is_in or self._is_served_by_certificate else 1
        assert least <= len(lines) <= 1, f"{len(lines)} lines on one end: {lines}"
        host, port = self.link.transport.peer
        for line in lines:
            assert line["peer"] == f"{host}:{port}", line
            assert line["listener"] == self.listener, line
            assert 0 < len(str(line["reason"])) <= REASON_MAX, line

    @property
    def _is_served_by_certificate(self) -> bool:
        return self.listener == CERTIFICATE_LISTENER and self.name == USER and self.link.is_shaken
