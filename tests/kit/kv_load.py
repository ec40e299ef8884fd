"""Clients of keys and values, and the history of what they did, for whoever breaks a quorum."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from jepsen.checkers.linearizable import check_linearizable
from jepsen.checkers.linearizable.models import Register
from jepsen.history import Op, OpType
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_VERSION,
    KvCasRequest,
    KvGetRequest,
    KvGetResponse,
    KvPutRequest,
    KvWriteResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from raftctl.client import Client

KEYS = ("a", "b")
VALUES = 4
TIMEOUT_MS = 500
ALL = ("read", "write", "cas")
MODEL = Register(failed_cas_observes=True)
"""A cas that ends with `fail` and no error was compared and found another value."""


class Recorder:
    """Notes operations in the order in which they begin and end."""

    def __init__(self) -> None:
        self.history: list[Op] = []

    def note(
        self, process: int, kind: OpType, f: str, value: Any, key: str, error: str | None = None
    ) -> None:
        """Adds a line at the present time."""
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        index = len(self.history)
        self.history.append(Op(index, now_ns, process, kind, f, value, key, error))

    def succeeded(self, start: int = 0) -> list[Op]:
        """The operations since that line that came to an end as they should."""
        return [op for op in self.history[start:] if op.type is OpType.OK]

    def assert_linearizable(self) -> None:
        """Judges the whole history."""
        result = check_linearizable(self.history, MODEL)
        assert result.valid is True, f"not linearizable: {result.failures[0].counterexample}"


class Keys(Protocol):
    """A way to the keys, as `KvClient` has it."""

    async def read(self, request: KvGetRequest, timeout_ms: int) -> KvGetResponse:
        """The value of a key."""

    async def write(self, request: KvPutRequest | KvCasRequest, timeout_ms: int) -> KvWriteResponse:
        """What the write came to."""


class HttpKeys:
    """The way over HTTP; the client knows how long to wait."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, request: KvGetRequest, timeout_ms: int) -> KvGetResponse:
        entry = await self._client.get(request.key)
        if entry is None:
            return KvGetResponse(None, NO_VERSION)
        return KvGetResponse(entry.value, entry.version)

    async def write(self, request: KvPutRequest | KvCasRequest, timeout_ms: int) -> KvWriteResponse:
        key, value = request.key, request.value or b""
        version: int | None
        if isinstance(request, KvPutRequest):
            version = await self._client.put(key, value)
        else:
            version = await self._client.cas(key, value, expected=request.expected_value)
        if version is None:
            return KvWriteResponse(ErrorCode.INVALID_UPDATE_VERSION, NO_VERSION)
        return KvWriteResponse(ErrorCode.NONE, version)


async def use_keys(
    client: Keys,
    recorder: Recorder,
    processes: Iterator[int],
    stop: asyncio.Event,
    random: Random,
    functions: tuple[str, ...] = ALL,
) -> None:
    """One client: reads, writes and compares at random. What it does not know it leaves open."""
    process = next(processes)
    while not stop.is_set():
        f, key = random.choice(functions), random.choice(KEYS)
        if not await _operate(client, recorder, process, f, key, random):
            process = next(processes)
        await asyncio.sleep(random.uniform(0, 0.1))


async def _operate(
    client: Keys, recorder: Recorder, process: int, f: str, key: str, random: Random
) -> bool:
    """One operation and its two lines; whether the process may go on."""
    old, new = random.randrange(VALUES), random.randrange(VALUES)
    value: Any = {"read": None, "write": new, "cas": [old, new]}[f]
    recorder.note(process, OpType.INVOKE, f, value, key)
    try:
        kind, value = await _call(client, f, key, value)
    except KafkaError as error:
        unknown = f != "read" and error.code is ErrorCode.REQUEST_TIMED_OUT
        kind = OpType.INFO if unknown else OpType.FAIL
        recorder.note(process, kind, f, value, key, error.code.name)
        return not unknown
    recorder.note(process, kind, f, value, key)
    return True


async def _call(client: Keys, f: str, key: str, value: Any) -> tuple[OpType, Any]:
    if f == "read":
        found = (await client.read(KvGetRequest(key), TIMEOUT_MS)).value
        return OpType.OK, None if found is None else int(found)
    if f == "write":
        await client.write(KvPutRequest(key, b"%d" % value), TIMEOUT_MS)
        return OpType.OK, value
    old, new = (b"%d" % number for number in value)
    answer = await client.write(KvCasRequest(key, new, ANY_VERSION, old), TIMEOUT_MS)
    return OpType.OK if answer.error == ErrorCode.NONE else OpType.FAIL, value
