"""One run: connections until so many frames are sent, then a summary."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import ssl
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from broker.protocol._decoder import decoder
from broker.protocol._encoder import encoder
from broker.protocol._schema import load
from broker.protocol.versions import SERVED
from broker.server._connection import Connection
from raftctl.security.tls._connection import TlsConnection
from tests.fuzz.logins import scripts
from tests.fuzz.logins.broker import (
    CERTIFICATE_LISTENER,
    PLAIN_LISTENER,
    STRANGER,
    TLS_LISTENER,
    USER,
    AttackedBroker,
    Hashes,
    VirtualLoop,
)
from tests.fuzz.logins.judge import Judge, Secrets
from tests.fuzz.logins.links import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.kit.certificates import Issued

Mode = Literal["before", "during"]
CHECK_EVERY = 100_000
MEMORY_GROWTH_MAX = 64 << 20
OBJECTS_GROWTH_MAX = 3_000
_WARM = 50_000
"""Frames until every codec and every cache is there: growth counts from then on."""
_TWINS, _TLS = 0.03, 0.03
"""Of the connections: how many are a comparison of two users, and how many are over TLS."""


@dataclass(slots=True)
class Held:
    """What the process holds between two connections."""

    memory_bytes: int
    objects: int
    connections: int
    tasks: int
    descriptors: int


@dataclass(slots=True)
class Outcome:
    """What a run saw."""

    mode: Mode
    seed: int
    frames: int = 0
    connections: int = 0
    slowest_frame_ms: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    """Connections by listener, and by who or what has ended them."""
    held: list[Held] = field(default_factory=list)


def growth(looks: list[Held]) -> str:
    """Return what was held more at the last look than at the first; empty if nothing was."""
    first, last = looks[0], looks[-1]
    found = []
    if last.memory_bytes - first.memory_bytes > MEMORY_GROWTH_MAX:
        found.append(f"{last.memory_bytes - first.memory_bytes} bytes")
    if last.objects - first.objects > OBJECTS_GROWTH_MAX:
        found.append(f"{last.objects - first.objects} objects")
    found += [
        f"{name}: {getattr(first, name)} became {getattr(last, name)}"
        for name in ("connections", "tasks", "descriptors")
        if getattr(last, name) > getattr(first, name)
    ]
    return ", ".join(found)


class Failed(AssertionError):
    """A property does not hold; the text has the command that shows it again."""


@asynccontextmanager
async def attacked(*, on_sockets: bool = False) -> AsyncIterator[AttackedBroker]:
    """A broker that has started; every codec is there, lest it looks like a leak later."""
    for key, versions in SERVED.items():
        for version in versions:
            load(key, version, "request")
            encoder(key, version, "request")
            decoder(key, version, "request")
            encoder(key, version, "response")
    with tempfile.TemporaryDirectory() as folder:
        broker = AttackedBroker(Path(folder), on_sockets=on_sockets)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


def fuzz(
    mode: Mode, frames: int, seed: int, progress: Callable[[str], None], only: int | None = None
) -> Outcome:
    """Send so many frames, or those of connection `only`. `Failed` if a property does not hold."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner, Hashes().installed() as hashes:
        return runner.run(_Run(mode, seed, hashes).play(frames, progress, only))


class _Run:
    def __init__(self, mode: Mode, seed: int, hashes: Hashes) -> None:
        self._outcome = Outcome(mode, seed)
        self._hashes = hashes

    async def play(self, frames: int, progress: Callable[[str], None], only: int | None) -> Outcome:
        outcome, begun = self._outcome, time.monotonic()
        async with attacked() as broker:
            self._broker, self._secrets = broker, Secrets(broker.secrets())
            next_look = min(_WARM, frames)
            while outcome.frames < frames and only is None:
                await self._one(outcome.connections)
                outcome.connections += 1
                if outcome.frames >= next_look:
                    next_look += CHECK_EVERY
                    outcome.held.append(held())
                    rate = outcome.frames / (time.monotonic() - begun)
                    progress(f"{outcome.frames} frames, {rate:.0f} a second, {outcome.held[-1]}")
            if only is not None:
                await self._one(only)
            outcome.held.append(held())
        return outcome

    async def _one(self, number: int) -> None:
        try:
            await self._connection(number)
        except Exception as error:
            outcome = self._outcome
            raise Failed(
                f"connection {number}: {error}\nto repeat it: make fuzz MODE={outcome.mode} "
                f"SEED={outcome.seed} ONLY={number}"
            ) from error

    async def _connection(self, number: int) -> None:
        chance = random.Random(f"{self._outcome.seed}/{number}")
        kind = chance.random()
        if self._outcome.mode == "during" and kind < _TWINS:
            await self._compare(number, chance.random())
        elif kind > 1 - _TLS:
            await self._over_tls(number, chance)
        else:
            await self._play(number, chance, PLAIN_LISTENER, None)

    async def _play(
        self,
        number: int,
        chance: random.Random,
        listener: str,
        context: ssl.SSLContext | None,
        user: str = "",
    ) -> Judge:
        judge = self._connected(number, chance, listener, context)
        if context is not None:
            await judge.link.shake()
        if user:
            await scripts.twins(judge, chance, user)
        elif self._outcome.mode == "before":
            await scripts.before(judge, chance)
        else:
            await scripts.during(judge, chance, scripts.plan(chance, self._broker.stores))
        await self._finish(judge, chance)
        return judge

    def _connected(
        self, number: int, chance: random.Random, listener: str, context: ssl.SSLContext | None
    ) -> Judge:
        broker = self._broker
        broker.runtime.chance = random.Random(chance.random())
        peer = (f"10.0.{number % 250}.1", 1_024 + number % 60_000)
        link = Link(broker.acceptors[listener], peer, context)
        return Judge(broker, link, listener, self._hashes, self._secrets)

    async def _finish(self, judge: Judge, chance: random.Random) -> None:
        outcome = self._outcome
        outcome.ends[f"{judge.listener}: {judge.state}"] += 1
        await judge.finish(chance)
        outcome.frames += judge.frames
        outcome.slowest_frame_ms = max(outcome.slowest_frame_ms, 1000 * judge.slowest_s)

    async def _compare(self, number: int, seed: float) -> None:
        """The same wrong login of two users, of whom one exists: nothing may differ."""
        seen = []
        for user in (USER, STRANGER):
            self._loop_to(round(1_000.0 + number))
            judge = await self._play(number, random.Random(seed), PLAIN_LISTENER, None, user)
            seen.append(judge.transcript)
        assert seen[0] == seen[1], f"{USER} exists, {STRANGER} does not: {seen[0]} and {seen[1]}"

    @staticmethod
    def _loop_to(least: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.now = max(loop.now, least)

    async def _over_tls(self, number: int, chance: random.Random) -> None:
        kind, stores = chance.random(), self._broker.stores
        if kind < 0.5:
            await self._play(
                number, chance, TLS_LISTENER, client_context(stores.authority.pem, None)
            )
            return
        listener = CERTIFICATE_LISTENER if kind < 0.8 else TLS_LISTENER
        shown = chance.choice((None, stores.client, *stores.strangers))
        context = client_context(stores.authority.pem, shown)
        judge = self._connected(number, chance, listener, context)
        judge.name = USER if shown is stores.client else None
        if chance.random() < 0.5:
            await scripts.records(judge, chance)
        elif await judge.link.shake() and not judge.link.is_ended:
            await scripts.before(judge, chance)
        await self._finish(judge, chance)


@functools.cache
def client_context(trusted: str, shown: Issued | None) -> ssl.SSLContext:
    """What a peer speaks TLS with, and the certificate that it shows."""
    context = ssl.create_default_context(cadata=trusted)
    if shown is not None:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(shown.key_pem() + shown.pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def held() -> Held:
    """Look at the process after its garbage is collected."""
    gc.collect()
    process, objects = psutil.Process(), gc.get_objects()
    connections = sum(isinstance(one, Connection | TlsConnection) for one in objects)
    tasks = len(asyncio.all_tasks())
    return Held(process.memory_info().rss, len(objects), connections, tasks, process.num_fds())
