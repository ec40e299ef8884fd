"""The same frames through sockets: the event loop, the kernel and OpenSSL's threads take part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from collections import Counter
from typing import TYPE_CHECKING

from tests.fuzz.logins import answers, scripts
from tests.fuzz.logins.broker import CERTIFICATE_LISTENER, PLAIN_LISTENER, TLS_LISTENER
from tests.fuzz.logins.judge import Secrets
from tests.fuzz.logins.run import attacked, client_context, held
from tests.unit.broker.replication.world import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.logins.broker import AttackedBroker
    from tests.fuzz.logins.run import Held

_AT_ONCE = 32
_PATIENCE_S = 0.02
"""How long an answer is waited for; most frames have none but the end."""
_GONE_S = 20.0
_LOOKS_MAX = 50
_WARM = 2_000
"""Connections until the memory of threads and buffers grows no more."""


class SocketRun:
    """Strangers that connect to the broker, some at once."""

    def __init__(self, broker: AttackedBroker, seed: int) -> None:
        self.frames = self.connections = 0
        self.ends: Counter[str] = Counter()
        self._broker = broker
        self._seed = seed
        self._secrets = Secrets(broker.secrets())

    async def play(self, connections: int) -> None:
        """So many connections; AssertionError if one is answered too much, or the log is wrong."""
        self.connections += connections
        numbers = iter(range(self.connections - connections, self.connections))
        await asyncio.gather(*(self._some(numbers) for _ in range(_AT_ONCE)))
        limits, handshakes = self._broker.limits, self._broker.tls.handshakes
        await eventually(lambda: not limits._connections and not len(handshakes), _GONE_S)
        self._check_log(connections)

    async def _some(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._one(random.Random(f"{self._seed}/{number}"))

    async def _one(self, chance: random.Random) -> None:
        listener = chance.choice((PLAIN_LISTENER, TLS_LISTENER, CERTIFICATE_LISTENER))
        context = None
        if listener != PLAIN_LISTENER and chance.random() < 0.5:
            stores = self._broker.stores
            context = client_context(stores.authority.pem, chance.choice((None, *stores.strangers)))
        port = self._broker.ports[listener]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except (OSError, ssl.SSLError):
            self.ends[f"{listener}: no handshake"] += 1
            return
        try:
            is_ended = await self._talk(reader, writer, chance, listener)
            self.ends[f"{listener}: {'ended by the broker' if is_ended else 'open'}"] += 1
        finally:
            if chance.random() < 0.5:
                writer.transport.abort()
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        chance: random.Random,
        listener: str,
    ) -> bool:
        """Send a few frames; whether the broker has ended the connection."""
        asked: dict[bytes, list[tuple[int, int]]] = {}
        for _ in range(chance.choice((1, 2, 3))):
            frame = scripts.stray(chance)
            key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
            asked.setdefault(frame[8:12], []).append((key, version))
            self.frames += 1
            try:
                writer.write(frame)
                async with asyncio.timeout(_PATIENCE_S):
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    answer = await reader.readexactly(size)
            except TimeoutError:
                continue
            except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
                return True
            is_tls_alert = writer.get_extra_info("ssl_object") is None and size >> 24 == 0x15
            if listener == PLAIN_LISTENER or not is_tls_alert:
                self._look_at(answer, asked.get(answer[:4], []), listener)
        return False

    def _look_at(self, answer: bytes, asked: list[tuple[int, int]], listener: str) -> None:
        assert listener != CERTIFICATE_LISTENER, "an answer to a peer without a certificate"
        assert self._secrets.found_in(answer[4:]) is None
        why = answers.forbidden(answer, asked, raw=True, is_logged_in=False)
        assert why is None, f"before a login: {why}"

    def _check_log(self, count: int) -> None:
        """Each of so many connections has one line at most, and none has a secret."""
        peers: Counter[tuple[str, str]] = Counter()
        for line in self._broker.logged.entries:
            assert line["event"] != "connection_failed", line
            part = self._secrets.found_in(json.dumps(dict(line), default=str).encode())
            assert part is None, f"the log has {part!r} of a secret: {line}"
            if line["event"] == "connection_closed":
                # A port may serve two connections, one after the other.
                peers[line["listener"], line["peer"]] += 1
        assert peers, "nobody was refused"
        assert peers.total() <= count, f"{peers.total()} lines of {count} connections"
        self._broker.logged.entries.clear()
        self._broker.contexts.clear()


async def fuzz_sockets(connections: int, seed: int) -> tuple[SocketRun, list[Held]]:
    """A run of so many connections, and what was held after a few of them and after all."""
    async with attacked(on_sockets=True) as broker:
        run = SocketRun(broker, seed)
        looks = []
        for count in (min(connections, _WARM), connections):
            await run.play(count)
            looks.append(await _held_at_rest())
        return run, looks


async def _held_at_rest() -> Held:
    """What is held once the last connections are gone, or after some time."""
    look = held()
    for _ in range(_LOOKS_MAX):
        if not look.connections:
            break
        await asyncio.sleep(0.1)
        look = held()
    return look
