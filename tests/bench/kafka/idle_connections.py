"""A process that opens connections and holds them: `... HOST:PORT COUNT`.

Each asks for ApiVersions and waits for the answer. Prints how many were refused, or got no answer,
and the seconds until all had theirs; ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

from broker.protocol.codec import encode_request
from broker.protocol.versions import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = 100
"""Connections that are being opened: fewer than a listener's backlog."""
TIMEOUT_S = 30.0
LENGTH_BYTES = 4


async def hold(host: str, port: int, count: int) -> None:
    """Opens them, says so, and waits for the end of the input."""
    began, gate = time.perf_counter(), asyncio.Semaphore(AT_ONCE)
    frame = encode_request(ApiKey.API_VERSIONS, 0, 1, "bench", {})

    async def connect() -> asyncio.StreamWriter:
        async with gate, asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(frame)
            size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            await reader.readexactly(size)
            return writer

    opened = await asyncio.gather(*(connect() for _ in range(count)), return_exceptions=True)
    seconds = time.perf_counter() - began
    held = [one for one in opened if isinstance(one, asyncio.StreamWriter)]
    sys.stdout.write(json.dumps({"refused": count - len(held), "seconds": seconds}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for writer in held:
        writer.transport.abort()


def main(words: Sequence[str]) -> None:
    """Opens and holds."""
    where, count = words
    host, _, port = where.rpartition(":")
    asyncio.run(hold(host, int(port), int(count)))


if __name__ == "__main__":
    main(sys.argv[1:])
