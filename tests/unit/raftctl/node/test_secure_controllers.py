"""Controllers' RPC and HTTP over TLS: who shows which certificate may do what (S6)."""

from __future__ import annotations

import ssl
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from pydantic import SecretStr

from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.node._http_access import http_access, identified
from raftctl.rpc import RpcClient, RpcNotConnected, RpcServer
from raftctl.runtime.real import RealRuntime
from raftctl.security.tls import NodeTls
from tests.kit.authorizing import ListedActions
from tests.kit.certificates import Authority, Issued
from tests.unit.raftctl.node.pages import ASKED, CLUSTER_ID, RpcAndPage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from raftctl.security import Action, Requester
    from raftctl.security.tls import TlsClient

pytestmark = pytest.mark.req("S2", "S6")


class Rules(ListedActions):
    """Allows nodes to act as such, and clients to look."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        assert action[1:3] == (ResourceType.CLUSTER, CLUSTER_NAME)
        if str(requester.principal) == "User:CN=node,O=Test":
            return True
        return action.operation == Operation.DESCRIBE


class Controller(RpcAndPage):
    """A listener that speaks TLS."""

    def __init__(self) -> None:
        super().__init__(RealRuntime())
        self.authority = Authority()
        self.tls = NodeTls(self.runtime, self.runtime.log)

    def settings(self, issued: Issued | None) -> TlsSettings:
        """Of a node or a client with that certificate."""
        trusted = StoreSettings("PEM", certificates=self.authority.pem)
        settings = TlsSettings(truststore=trusted, client_auth="requested")
        if issued is None:
            return settings
        key = SecretStr(issued.key_pem())
        return replace(settings, keystore=StoreSettings("PEM", key=key, certificates=issued.pem))

    def client(self, name: str | None) -> TlsClient:
        """A client with a certificate for the name, or without one."""
        issued = None if name is None else self.authority.issue(name)
        return self.tls.client(self.settings(issued), "CONTROLLER")

    def rpc(self, tls: TlsClient | None) -> RpcClient:
        return RpcClient(
            self.runtime, "127.0.0.1", self.port, cluster_id=CLUSTER_ID, node_id=7, tls=tls
        )

    async def start(self) -> web.AppRunner:
        rpc = RpcServer(self.runtime, cluster_id=CLUSTER_ID, node_id=1)
        listener = self.tls.listener(self.settings(self.authority.issue("node")), "CONTROLLER")
        return await self.serve(rpc, [http_access(Rules())], partial(identified, listener))


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    made = Controller()
    runner = await made.start()
    try:
        yield made
    finally:
        await runner.cleanup()
        made.tls.close()
        made.runtime.close()


async def test_a_node_calls_another_with_its_certificate(controller: Controller) -> None:
    client = controller.rpc(controller.client("node"))
    request = ASKED
    for _ in range(3):
        assert await client.call(request, 20_000) == request
    assert controller.senders == [7] * 3
    await client.close()


@pytest.mark.parametrize("name", ["alice", None])
async def test_who_is_no_node_makes_no_call(controller: Controller, name: str | None) -> None:
    client = controller.rpc(controller.client(name))
    with pytest.raises(RpcNotConnected, match="403"):
        await client.call(ASKED, 20_000)
    assert controller.senders == []
    await client.close()


async def test_a_node_without_tls_does_not_get_in(controller: Controller) -> None:
    client = controller.rpc(None)
    with pytest.raises(RpcNotConnected):
        await client.call(ASKED, 20_000)
    await client.close()


async def test_http_is_for_those_whom_the_rules_allow(
    controller: Controller, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cadata=controller.authority.pem)
    url = f"https://127.0.0.1:{controller.port}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for method, path, status in (
            ("GET", "/healthz", 200),
            ("GET", "/page", 200),
            ("POST", "/page", 403),
        ):
            async with session.request(method, f"{url}{path}") as answer:
                assert answer.status == status, (method, path)
                document = await answer.json()
        assert document == {
            "error": "CLUSTER_AUTHORIZATION_FAILED",
            "message": "User:ANONYMOUS may not ALTER the cluster",
        }
    context.load_cert_chain(controller.authority.issue("node").store(tmp_path / "node.pem"))
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(f"{url}/page") as answer,
    ):
        assert answer.status == 200
