"""Puts small values into a quorum, a fixed number of requests outstanding; a process of its own.

The counterpart of `etcdload`, with the same keys, sizes and phases. It speaks to the leader over
one connection of the ordinary protocol, awaits one reply for each put and checks it. Prints one
JSON object, latencies in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING

import aiohttp

from raftctl.codec import Columns, columns_of
from raftctl.controller_channel import CLIENT_ID
from raftctl.errors import ErrorCode
from raftctl.metadata.requests.kv import KvPutRequest, KvWriteResponse
from raftctl.rpc import open_channel
from raftctl.rpc.codec import PROTOCOL_VERSION, Hello
from raftctl.runtime.connector import LoopConnector

if TYPE_CHECKING:
    from raftctl.rpc import Channel
    from raftctl.rpc.codec import Run

KEY_COUNT = 1000
REPLY_TIMEOUT_S = 30.0


class Load:
    """One process's puts; a correlation id is a put's number plus one."""

    def __init__(self, channel: Channel, arguments: argparse.Namespace) -> None:
        self._channel = channel
        self._outstanding: int = arguments.outstanding
        value = b"v" * arguments.value_bytes
        self._keys = [f"key-{number:03d}" for number in range(KEY_COUNT)] * 2
        self._values = [value] * KEY_COUNT
        self._from = perf_counter() + arguments.warmup
        self._until = self._from + arguments.seconds
        self._began: dict[int, float] = {}
        """When each put under way was sent, by correlation id."""
        self.sent = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.taken: list[float] = []
        """Seconds from put to reply, of the replies within the measured time."""

    async def run(self) -> None:
        """Keeps as many puts under way as asked for until the time is over."""
        running = asyncio.create_task(self._channel.run(self._take))
        self._send(self._outstanding)
        async with asyncio.timeout(self._until - perf_counter() + REPLY_TIMEOUT_S):
            await asyncio.wait([running, self._done], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
            raise ConnectionError("the leader has closed the connection")
        running.cancel()

    def _send(self, count: int) -> None:
        first, now = self.sent + 1, perf_counter()
        numbers = range(first, first + count)
        self._began.update(dict.fromkeys(numbers, now))
        for part in (numbers[at : at + KEY_COUNT] for at in range(0, count, KEY_COUNT)):
            key, size = part[0] % KEY_COUNT, len(part)
            columns = (self._keys[key : key + size], self._values[:size])
            self._channel.send_all(part, Columns(KvPutRequest, columns))
        self.sent += count

    def _take(self, runs: list[Run]) -> None:
        now = perf_counter()
        measured = self._from < now < self._until
        for run in runs:
            if run.message_class is not KvWriteResponse:
                raise RuntimeError(f"a put came to {run.messages[0]}")
            errors, _ = columns_of(KvWriteResponse, run.messages)
            if set(errors) != {ErrorCode.NONE}:
                raise RuntimeError(f"puts came to {set(errors)}")
        answered = [number for run in runs for number in run.correlation_ids]
        taken = [now - began for began in map(self._began.pop, answered)]
        if measured:
            self.taken += taken
        if now < self._until:
            self._send(len(answered))
        elif not self._began:
            self._done.set_result(None)


async def _run(arguments: argparse.Namespace) -> tuple[int, list[float]]:
    async with aiohttp.ClientSession(connector=LoopConnector()) as session:
        hello = Hello(PROTOCOL_VERSION, arguments.cluster_id, CLIENT_ID)
        channel = await open_channel(session, arguments.leader, hello)
        load = Load(channel, arguments)
        try:
            await load.run()
        finally:
            await channel.close()
    return load.sent, sorted(load.taken)


def main() -> None:
    """The load process."""
    parser = argparse.ArgumentParser(prog="tests.bench.quorum.load", description=__doc__)
    parser.add_argument("--leader", required=True, metavar="HOST:PORT")
    parser.add_argument("--cluster-id", required=True)
    parser.add_argument("--outstanding", type=int, default=1)
    parser.add_argument("--value-bytes", type=int, default=256)
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds not measured")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds measured")
    arguments = parser.parse_args()
    sent, taken = asyncio.run(_run(arguments))
    report = {
        "puts": len(taken),
        "all_puts": sent,
        "seconds": arguments.seconds,
        "p50_ms": taken[len(taken) // 2] * 1000,
        "p99_ms": taken[int(0.99 * (len(taken) - 1))] * 1000,
        "max_ms": taken[-1] * 1000,
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
