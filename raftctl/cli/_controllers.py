"""How commands reach the controllers: over HTTP for what is, over the RPC for operations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raftctl.cli import _arguments as arguments
from raftctl.cli._arguments import parse_addresses
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.controller_channel import KvClient
    from raftctl.localcluster.status import ClusterStatus

T = TypeVar("T")

ControllersOption = Annotated[
    str,
    typer.Option(
        "--controllers",
        metavar="HOST:PORT,...",
        help="Controllers to ask.",
        callback=arguments.controllers,
        envvar=arguments.CONTROLLERS_VARIABLE,
        default_factory=arguments.local_controllers,
        show_default=arguments.ADDRESSES_DEFAULT,
    ),
]
TimeoutOption = Annotated[
    float, typer.Option(help="Seconds to wait for the controllers.", min=0.001, max=86_400)
]
TIMEOUT_S = 10.0


def parse_controllers(text: str) -> list[str]:
    """The addresses; ConfigError for one that is not `host:port`."""
    return parse_addresses(text, "--controllers")


def ask(controllers: str, timeout_s: float) -> ClusterStatus:
    """What the controllers say; KafkaError if none answers."""
    from raftctl.localcluster.status import ask_controllers

    status = ask_controllers(parse_controllers(controllers), timeout_s)
    if status.best is None:
        why = f"no controller answers at {controllers}; is that where --controllers should point?"
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, why)
    return status


def ask_leader(controllers: str, timeout_s: float) -> dict[str, Any]:
    """What the active controller says; KafkaError if there is none."""
    found = find_leader(parse_controllers(controllers), timeout_s)
    if found is None:
        ask(controllers, timeout_s)  # if nobody answers, it says so
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no controller is active; ask again")
    return found[1]


def find_leader(addresses: list[str], timeout_s: float) -> tuple[str, dict[str, Any]] | None:
    """The leader's address and status, found by the controllers given or the voters they name."""
    from raftctl.localcluster.status import ask_controllers

    known = dict.fromkeys(addresses)
    asked = ask_controllers(list(known), min(timeout_s, TIMEOUT_S))
    if asked.leader is None and asked.best is not None:
        voters = asked.best.get("voter_set", ())
        more = [f"{voter['host']}:{voter['port']}" for voter in voters if voter["port"]]
        asked = ask_controllers(list(dict.fromkeys([*known, *more])), min(timeout_s, TIMEOUT_S))
    for address, status in asked.answers.items():
        if status is not None and status is asked.leader:
            return address, status
    return None


def with_kv_client(
    controllers: str, timeout_s: float, use: Callable[[KvClient], Awaitable[T]]
) -> T:
    """Runs `use` with a client of the cluster's keys and values."""
    status = ask(controllers, timeout_s)
    addresses = parse_controllers(controllers)
    leading = [address for address, answer in status.answers.items() if answer is status.leader]
    ordered = [*leading, *(address for address in addresses if address not in leading)]
    cluster_id = (status.best or {})["cluster_id"]
    return asyncio.run(_with_client(ordered, cluster_id, use))


async def _with_client(
    addresses: list[str], cluster_id: str, use: Callable[[KvClient], Awaitable[T]]
) -> T:
    from raftctl.controller_channel import CLIENT_ID, KvClient
    from raftctl.rpc import RpcClient
    from raftctl.runtime.real import RealRuntime

    runtime = RealRuntime(log_level="critical")
    clients = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        clients.append(
            RpcClient(
                runtime, host.strip("[]"), int(port), cluster_id=cluster_id, node_id=CLIENT_ID
            )
        )
    try:
        return await use(KvClient(clients, runtime))
    finally:
        for client in clients:
            await client.close()
        runtime.close()
