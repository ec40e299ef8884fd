"""Delegation tokens that expire in virtual time, while controllers fail and brokers serve."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT, Observer, SimCluster
from raftctl.errors import ErrorCode
from raftctl.security.sasl import make_client
from tests.simulation.cluster_scenarios import all_brokers_active, until
from tests.simulation.login_scenarios import FOR_CLIENTS, KEYS, PASSWORDS, RECORDS_OF_USERS
from tests.unit.broker.server.fakes import Client
from tests.unit.broker.server.sasl import log_in
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

EXPIRY_S, CHECK_S = 20.0, 5.0
TOKEN_KEYS = {
    "delegation.token.secret.key": "of the cluster",
    "delegation.token.expiry.time.ms": str(int(EXPIRY_S * 1000)),
    "delegation.token.expiry.check.interval.ms": str(int(CHECK_S * 1000)),
}


async def tokens_expire(world: World) -> None:
    """A token logs in until it expires, at every broker, also after a change of controllers.

    It is removed from the metadata soon after, by another active controller than its maker.
    """
    without_limit = {**KEYS, "connections.max.reauth.ms": "0"}
    cluster = SimCluster(
        world,
        overrides=TOKEN_KEYS,
        broker_overrides=without_limit,
        first_records=RECORDS_OF_USERS,
    )
    cluster.start_all()

    async def operator(runtime: SimRuntime) -> None:
        observer = Observer(cluster)
        status = await observer.wait_for(all_brokers_active(cluster))
        made: dict[str, Any] = {}
        await world.start("maker", partial(make, cluster, made)).done
        bearer = world.start("bearer", partial(bear, cluster, made))
        world.kill(f"controller-{status['leader_id']}")
        await bearer.done
        assert holders(cluster, made) == [], "it is removed at the next check"

    await world.start("operator", operator).done


async def make(cluster: SimCluster, made: dict[str, Any], runtime: SimRuntime) -> None:
    """Create a token as alice, and wait until every broker knows it."""
    client = await connected(cluster.broker_names[0])
    login = make_client(FOR_CLIENTS, jaas(username="alice", password=PASSWORDS["alice"]), "nonce")
    await log_in(client, FOR_CLIENTS, login)
    body = {"renewers": [], "max_lifetime_ms": -1}
    none = {"owner_principal_type": None, "owner_principal_name": None}
    made |= await client.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, body | none)
    assert made["error_code"] == ErrorCode.NONE, made
    client.writer.close()
    await until(lambda: holders(cluster, made) == sorted(cluster.broker_names))


async def bear(cluster: SimCluster, made: dict[str, Any], runtime: SimRuntime) -> None:
    """Log in with the token at every broker; once it is over nobody serves its bearer."""
    clients = [await connected(name) for name in cluster.broker_names]
    for client in clients:
        answer = await enter(client, made)
        left_ms = made["expiry_timestamp_ms"] - runtime.wall_ms()
        assert abs(answer["session_lifetime_ms"] - left_ms) < 1000, answer
        assert (await client.ask(ApiKey.METADATA, 1, {"topics": []}))["brokers"]
    await asyncio.sleep((made["expiry_timestamp_ms"] - runtime.wall_ms()) / 1000 + 0.1)
    for client in clients:
        client.send(ApiKey.METADATA, 1, {"topics": []})
        assert await client.ended()
        client.writer.close()
    for name in cluster.broker_names:
        late = await connected(name)
        answer = await enter(late, made)
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED, answer
        late.writer.close()
    await asyncio.sleep(2 * CHECK_S)


async def connected(host: str) -> Client:
    """Return a client that has not logged in."""
    return Client(*await asyncio.open_connection(host, BROKER_PORT))


async def enter(client: Client, made: dict[str, Any]) -> dict[str, Any]:
    """Return the last answer of a login with the token."""
    password = base64.b64encode(made["hmac"]).decode()
    login = jaas(username=made["token_id"], password=password, tokenauth="true")
    return await log_in(client, FOR_CLIENTS, make_client(FOR_CLIENTS, login, "nonce"))


def holders(cluster: SimCluster, made: dict[str, Any]) -> list[str]:
    """Return the brokers whose newest image has the token."""
    loaders = {name: cluster.nodes[name].loader for name in sorted(cluster.broker_names)}
    return [
        name
        for name, loader in loaders.items()
        if loader is not None and made["token_id"] in loader.image.tokens
    ]
