"""Watches that miss nothing: a connection that ends is taken up where it ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from raftctl.client._transport import ASK_AGAIN, BACKOFF_S_MAX, refusal, value_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from raftctl.client._transport import Transport

SILENCE_S = 15.0
"""A controller reports its progress more often than this."""


@dataclass(frozen=True, slots=True)
class Event:
    """A key was set, or removed (`value` None), by the record at the offset `version`."""

    key: str
    value: bytes | None
    version: int

    @property
    def next_offset(self) -> int:
        """Offset from which a watch continues after this event."""
        return self.version + 1


async def watch(
    transport: Transport, key: str | None, prefix: str | None, start: int | None
) -> AsyncGenerator[Event]:
    """Return the events from the offset `start` on (None: from now on), for ever.

    Closing it ends the connection. Raises KafkaError: OFFSET_OUT_OF_RANGE if the log does not
    reach back so far; then list the keys again and watch from the offset after the list's.
    """
    position = _Position(start)
    query = {"key": key} if key is not None else {"prefix": prefix or ""}
    while True:
        try:
            async with aclosing(_stream(transport, query, position)) as events:
                async for event in events:
                    yield event
        except (aiohttp.ClientError, TimeoutError):
            pass
        transport.ask_another()
        await asyncio.sleep(BACKOFF_S_MAX / 2)


@dataclass
class _Position:
    offset: int | None


async def _stream(
    transport: Transport, query: dict[str, str], position: _Position
) -> AsyncGenerator[Event]:
    asked = query if position.offset is None else {**query, "from": str(position.offset)}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
    url = transport.url("/watch")
    async with transport.http.get(url, params=asked, timeout=timeout) as answer:
        if answer.status != 200:
            _refused(await answer.json())
            return
        buffer = b""
        async for data in answer.content.iter_any():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                document = json.loads(line)
                if document["type"] == "error":
                    _refused(document)
                    return
                position.offset = document["next"]
                if document["type"] in ("put", "delete"):
                    yield _event(document)


def _refused(document: dict[str, Any]) -> None:
    """Raise the error unless another controller may be asked."""
    error = refusal(document)
    if error.code not in ASK_AGAIN:
        raise error


def _event(document: dict[str, Any]) -> Event:
    value = value_of(document) if document["type"] == "put" else None
    return Event(document["key"], value, document["version"])
