"""Puts a value every few milliseconds until one is committed: the moment a quorum is back.

Writes `ready` when it could begin, begins at a line on its standard input, and
writes `committed` when the first put is answered. `etcdload -probe` is its counterpart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys

from raftctl.controller_channel import CLIENT_ID
from raftctl.errors import KafkaError
from raftctl.metadata.requests.kv import KvPutRequest
from raftctl.rpc import RpcClient
from raftctl.runtime.real import RealRuntime
from tests.kit.kv_client import KvClient

PUT_EVERY_S = 0.01
TIMEOUT_MS = 5_000
GIVE_UP_S = 60.0


async def _run(addresses: list[str], cluster_id: str) -> None:
    runtime = RealRuntime(log_level="error")
    clients = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        clients.append(
            RpcClient(runtime, host, int(port), cluster_id=cluster_id, node_id=CLIENT_ID)
        )
    loop = asyncio.get_running_loop()
    _say("ready")
    await loop.run_in_executor(None, sys.stdin.readline)
    committed = asyncio.Event()
    async with asyncio.timeout(GIVE_UP_S), asyncio.TaskGroup() as puts:
        while not committed.is_set():
            puts.create_task(_put(KvClient(clients, runtime), committed))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(committed.wait(), PUT_EVERY_S)
        _say("committed")
    for client in clients:
        await client.close()
    runtime.close()


async def _put(client: KvClient, committed: asyncio.Event) -> None:
    with contextlib.suppress(KafkaError):
        await client.write(KvPutRequest("probe", b"x"), TIMEOUT_MS)
        committed.set()


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    """The probing process."""
    parser = argparse.ArgumentParser(prog="tests.bench.quorum.probe", description=__doc__)
    parser.add_argument("--controllers", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--cluster-id", required=True)
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.controllers.split(","), arguments.cluster_id))


if __name__ == "__main__":
    main()
