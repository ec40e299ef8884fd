"""Asks one system: goes through scripts, many at once, and keeps what was answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from broker.protocol._schema import known_versions
from broker.protocol.codec import MalformedError, decode_response, encode_request
from broker.protocol.versions import ApiKey
from tests.peers.differential.answers import FIRST_EPOCH, Symbols, normal, only_mine
from tests.peers.differential.language import (
    Answer,
    Ask,
    Pause,
    Script,
    Until,
    filled,
    resolved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CLIENT = "differential"
ANSWER_S = 20.0
READY_S = 30.0
POLL_S = 0.02
AT_ONCE = 16
CHANGES = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.METADATA,
}
"""Brokers apply these after the answer; the next step waits for that."""
BARRIER = "barrier"
_LENGTH = struct.Struct(">i")
CLOSED = {"connection": "closed"}
SILENT = {"connection": "no answer"}


@dataclass(frozen=True, slots=True)
class System:
    """A cluster of one node."""

    name: str
    host: str
    port: int


class Connection:
    """One connection that requests are sent on without waiting for the answers before."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def send(self, api: int, version: int, frame: Mapping[str, Any] | bytes) -> Any:
        """What awaits the answer's payload; ConnectionError from it once the other side closed."""
        if self._writer is None or self._reading is None or self._reading.done():
            await self.close()
            reader, self._writer = await asyncio.open_connection(
                self._system.host, self._system.port, limit=1 << 26
            )
            self._reading = asyncio.create_task(self._read(reader))
        number = next(self._ids)
        if isinstance(frame, bytes):
            header = struct.pack(">hhih", api, version, number, len(CLIENT)) + CLIENT.encode()
            data = _LENGTH.pack(len(header) + len(frame)) + header + frame
        else:
            data = encode_request(api, version, number, CLIENT, frame)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(data)
        return number, self._waiting[number]

    def forget(self, number: int) -> None:
        """No answer is to come."""
        self._waiting.pop(number).cancel()

    async def close(self) -> None:
        """Ends it; a later `send` opens another."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, OSError):
                await self._reading
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError, OSError):
                await self._writer.wait_closed()
            self._writer = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(4))
                payload = await reader.readexactly(length)
                waiting = self._waiting.pop(int.from_bytes(payload[:4], "big"), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(payload)
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(ConnectionResetError())
                    # Whoever does not wait for it any more is not to be told of it.
                    waiting.exception()
            self._waiting.clear()


class Barrier:
    """Waits until a broker has applied all that was changed before."""

    def __init__(self, system: System) -> None:
        self._connection = Connection(system)
        self._numbers = itertools.count(1)
        self._last: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def passed(self) -> None:
        """Changes a config and waits until the broker tells it: changes are applied in order.

        Who comes while that is under way waits for the next change, with all others that came.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._last))
        self._last = self._next
        await asyncio.shield(self._last)

    async def _round(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._next = None
        number = next(self._numbers)
        config = {"name": "retention.ms", "config_operation": 0, "value": str(number)}
        named = {"resource_type": 2, "resource_name": BARRIER}
        body = {"resources": [{**named, "configs": [config]}]}
        await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        asked = {"resources": [{**named, "configuration_keys": ["retention.ms"]}]}
        async with asyncio.timeout(READY_S):
            while True:
                told = await self._ask(ApiKey.DESCRIBE_CONFIGS, 4, asked)
                configs = told["results"][0]["configs"]
                if configs and configs[0]["value"] == str(number):
                    return
                await asyncio.sleep(POLL_S / 4)

    async def open(self) -> None:
        """Makes the topic whose config is changed."""
        new = {"name": BARRIER, "num_partitions": 1, "replication_factor": 1}
        body = {"topics": [new], "timeout_ms": 10_000}
        await self._ask(ApiKey.CREATE_TOPICS, 7, body)

    async def close(self) -> None:
        """Ends its connection."""
        await self._connection.close()

    async def _ask(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        _, waiting = await self._connection.send(api, version, filled(api, version, body))
        payload = await asyncio.wait_for(waiting, ANSWER_S)
        return decode_response(api, version, payload)[1]


@dataclass
class _Pending:
    step: Ask
    version: int
    name: str
    body: Any
    answer: asyncio.Future[bytes]
    number: int
    connection: Connection


@dataclass
class Player:
    """Goes through one script on one system."""

    system: System
    script: Script
    barrier: Barrier
    symbols: Symbols
    answers: dict[str, Any] = field(default_factory=dict)
    """What was answered, in normal form, by `script: request`."""
    _connections: dict[str, Connection] = field(default_factory=dict)
    _later: dict[str, list[_Pending]] = field(default_factory=dict)

    async def play(self) -> None:
        """All steps; a step that cannot be taken ends the script and is an answer by itself."""
        try:
            for step in self.script.steps:
                await self._take(step)
        except (LookupError, TypeError, TimeoutError, AssertionError) as error:
            self.answers[f"{self.script.name}: stopped"] = f"{type(error).__name__}: {error}"
        finally:
            for connection in self._connections.values():
                await connection.close()

    async def _take(self, step: Ask | Answer | Until | Pause) -> None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Until):
            await self._until(step)
        elif isinstance(step, Answer):
            for pending in self._later.pop(step.name):
                await self._answered(pending)
        else:
            for version, name in step.each():
                pending = await self._sent(step, version, name)
                if step.later:
                    self._later.setdefault(step.name, []).append(pending)
                else:
                    await self._answered(pending)

    async def _sent(self, step: Ask, version: int, name: str) -> _Pending:
        connection = self._connections.setdefault(step.on, Connection(self.system))
        body = resolved(step.body, self.symbols.prefix, self.symbols.kept)
        frame = filled(step.api, version, body) if step.raw is None else step.raw
        number, answer = await connection.send(step.api, version, frame)
        return _Pending(step, version, name, body, answer, number, connection)

    async def _answered(self, pending: _Pending) -> None:
        step = pending.step
        told = await self._payload(pending)
        if step.mine:
            told = only_mine(told, self.symbols, pending.body)
        if step.api == ApiKey.CONSUMER_GROUP_HEARTBEAT and told.get("member_epoch", 0) > 0:
            self.symbols.kept.setdefault(FIRST_EPOCH, told["member_epoch"])
        for name, path in step.keep.items():
            self.symbols.kept[name] = at(told, path)
        if step.counts:
            key = f"{self.script.name}: {pending.name}"
            assert key not in self.answers, f"two requests are named {key}"
            self.answers[key] = normal(step.api, pending.version, told, pending.body, self.symbols)
        if step.api in CHANGES and _has_changed(step.api, pending.body, told):
            await self.barrier.passed()

    async def _payload(self, pending: _Pending) -> Any:
        if pending.step.silent:
            return await self._silence(pending)
        try:
            payload = await asyncio.wait_for(pending.answer, pending.step.patience_s)
        except ConnectionError:
            return CLOSED
        except TimeoutError:
            await pending.connection.close()
            return SILENT
        api, version = pending.step.api, pending.version
        if version not in known_versions(api):
            # Only ApiVersions answers versions that it does not know, as version 0 (KIP-511).
            return {"error_code": int.from_bytes(payload[4:6], "big", signed=True)}
        try:
            return decode_response(api, version, payload)[1]
        except MalformedError as error:
            return {"malformed": str(error)}

    async def _silence(self, pending: _Pending) -> Any:
        """Answers come in order: the next one shows that none came for this."""
        _, after = await pending.connection.send(ApiKey.API_VERSIONS, 0, b"")
        try:
            await asyncio.wait_for(after, ANSWER_S)
        except ConnectionError:
            return CLOSED
        if pending.answer.done():
            return {"connection": "answered"}
        pending.connection.forget(pending.number)
        return SILENT

    async def _until(self, step: Until) -> None:
        connection = self._connections.setdefault("until", Connection(self.system))
        body = resolved(step.body, self.symbols.prefix, self.symbols.kept)
        async with asyncio.timeout(READY_S):
            while True:
                frame = filled(step.api, step.version, body)
                _, answer = await connection.send(step.api, step.version, frame)
                told = decode_response(step.api, step.version, await answer)[1]
                if step.ready(told):
                    return
                await asyncio.sleep(POLL_S)


def _has_changed(api: ApiKey, body: Any, told: Any) -> bool:
    if api == ApiKey.METADATA:
        return bool(body.get("allow_auto_topic_creation"))
    return _has_success(told)


def _has_success(told: Any) -> bool:
    if isinstance(told, Mapping):
        return told.get("error_code") == 0 or any(map(_has_success, told.values()))
    return isinstance(told, list | tuple) and any(map(_has_success, told))


def at(told: Any, path: Sequence[str | int]) -> Any:
    """What stands at a place of an answer."""
    for part in path:
        told = told[part]
    return told


async def played(system: System, scripts: Iterable[Script], tag: str) -> dict[str, Any]:
    """The answers of one system to all scripts; `tag` makes their names new."""
    barrier = Barrier(system)
    await barrier.open()
    turns = asyncio.Semaphore(AT_ONCE)
    answers: dict[str, Any] = {}

    async def play(number: int, script: Script) -> None:
        async with turns:
            symbols = Symbols(prefix=f"{tag}-{number:04}-")
            player = Player(system, script, barrier, symbols)
            await player.play()
            answers.update(player.answers)

    await asyncio.gather(*(play(number, one) for number, one in enumerate(scripts)))
    await barrier.close()
    return answers
