"""Nodes and clients log in to a controllers' listener by SASL (S3, S6)."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from raftctl.config import load_config
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import Operation, ResourceType
from raftctl.metadata.codec import pack_payload
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.node import _logins
from raftctl.node._http_listener import HttpListener, scram_credentials
from raftctl.rpc import RpcClient, RpcError, RpcRefused, RpcServer
from raftctl.rpc.codec import PATH
from raftctl.runtime.real import RealRuntime
from raftctl.security.sasl.login import node_login
from raftctl.security.sasl.scram import HASHES, SCRAM_IDS, salted_password, scram_keys
from raftctl.security.tls import NodeTls
from tests.kit.authorizing import ListedActions
from tests.unit.raftctl.node.pages import ASKED, CLUSTER_ID, RpcAndPage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from raftctl.metadata.image import MetadataImage
    from raftctl.security import Action, Requester

pytestmark = pytest.mark.req("S3", "S6")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def config_text(mechanism: str = "PLAIN", user: str = "node", password: str = "of-node") -> str:
    """Of a node that logs in as this user; `node` and `ann` are known by PLAIN."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    own = f'{module} required username="{user}" password="{password}"'
    known = ' user_node="of-node" user_ann="of-ann"' if mechanism == "PLAIN" else ""
    lines = [
        "node.id=1",
        "process.roles=controller",
        "log.dirs=/data",
        "listeners=CONTROLLER://127.0.0.1:9093",
        "controller.quorum.voters=1@127.0.0.1:9093",
        "listener.security.protocol.map=CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        f"sasl.mechanism.controller.protocol={mechanism}",
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config={own}{known};",
        "connection.failed.authentication.delay.ms=10",
        "connections.max.reauth.ms=0",
    ]
    if mechanism != "PLAIN":
        lines.append(
            f'listener.name.controller.plain.sasl.jaas.config={PLAIN} required user_ann="of-ann";'
        )
    return "\n".join(lines)


def credential(user: str, password: str) -> UserScramCredentialRecord:
    """Of SCRAM-SHA-256."""
    salt, digest = b"0123456789abcdef", HASHES["SCRAM-SHA-256"]
    keys = scram_keys(digest, salted_password(digest, password, salt, 4096))
    number = SCRAM_IDS["SCRAM-SHA-256"]
    return UserScramCredentialRecord(user, number, salt, keys.stored_key, keys.server_key, 4096)


class Rules(ListedActions):
    """Lets `node` act as a node."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        assert action.resource_type == ResourceType.CLUSTER
        is_node = str(requester.principal) in ("User:node", "User:scram-node")
        return is_node or action.operation != Operation.CLUSTER_ACTION


class Controller(RpcAndPage):
    """A listener that speaks SASL."""

    def __init__(self) -> None:
        super().__init__(RealRuntime(log_level="critical"))
        self.image: MetadataImage = EMPTY_IMAGE
        first = [credential("scram-node", "of-scram")]
        config = load_config(config_text())
        self.listener = HttpListener(
            config.controller_listeners[0],
            config,
            self.runtime,
            NodeTls(self.runtime, self.runtime.log),
            Rules(),
            CLUSTER_ID,
            scram_credentials(lambda: self.image, (pack_payload(first), len(first))),
        )

    def commit(self, *records: UserScramCredentialRecord) -> None:
        """The newest image has these credentials alone."""
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay_all(records, 0)
        self.image = delta.apply(7, 1, 0)

    async def start(self) -> web.AppRunner:
        login, longest = self.listener.login, self.listener.login_bytes_max
        rpc = RpcServer(
            self.runtime, cluster_id=CLUSTER_ID, node_id=1, login=login, login_bytes_max=longest
        )
        return await self.serve(rpc, self.listener.middlewares)

    async def call(self, text: str | None) -> object:
        """Call as a node with that configuration; None: as one that does not log in."""
        security = None if text is None else load_config(text).listener_security("CONTROLLER")
        login = None if security is None else node_login(security, self.runtime)
        client = RpcClient(
            self.runtime, "127.0.0.1", self.port, cluster_id=CLUSTER_ID, node_id=7, login=login
        )
        try:
            return await client.call(ASKED, 20_000)
        finally:
            await client.close()
            if login is not None:
                login.close()

    async def get(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any], str]:
        """The status and the document of an answer, and the schemes that it names."""
        headers = {} if authorization is None else {"Authorization": authorization}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}{path}", headers=headers) as answer,
        ):
            schemes = ", ".join(answer.headers.getall("WWW-Authenticate", []))
            return answer.status, await answer.json(), schemes


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    made = Controller()
    runner = await made.start()
    try:
        yield made
    finally:
        await runner.cleanup()
        made.listener.close()
        made.runtime.close()


async def test_a_node_logs_in_by_a_password(controller: Controller) -> None:
    assert await controller.call(config_text()) == ASKED
    assert controller.senders == [7]


async def test_a_node_logs_in_by_scram_before_there_is_metadata(controller: Controller) -> None:
    own = config_text("SCRAM-SHA-256", "scram-node", "of-scram")
    assert await controller.call(own) == ASKED
    controller.commit()  # the credential was removed since
    with pytest.raises(RpcRefused) as refused:
        await controller.call(own)
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    controller.commit(credential("scram-node", "newer"))
    with pytest.raises(RpcRefused):
        await controller.call(own)
    assert await controller.call(config_text("SCRAM-SHA-256", "scram-node", "newer")) == ASKED


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "node", "wrong"),
        ("PLAIN", "nobody", "of-node"),
        ("SCRAM-SHA-256", "scram-node", "wrong"),
        ("SCRAM-SHA-256", "nobody", "of-scram"),
    ],
)
async def test_who_does_not_log_in_makes_no_call(
    controller: Controller, mechanism: str, user: str, password: str
) -> None:
    with pytest.raises(RpcRefused) as refused:
        await controller.call(config_text(mechanism, user, password))
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert password not in str(refused.value)
    assert controller.senders == []


async def test_a_node_that_does_not_try_to_log_in_makes_no_call(controller: Controller) -> None:
    with pytest.raises(RpcRefused, match="log in first"):
        await controller.call(None)
    assert controller.senders == []


async def test_who_may_not_act_as_a_node_makes_no_call(controller: Controller) -> None:
    with pytest.raises(RpcRefused, match="User:ann may not CLUSTER_ACTION the cluster"):
        await controller.call(config_text("PLAIN", "ann", "of-ann"))
    assert controller.senders == []


async def test_a_login_of_a_mechanism_that_is_not_enabled(controller: Controller) -> None:
    text = config_text("SCRAM-SHA-512", "node", "of-node").replace(
        "mechanisms=PLAIN,", "mechanisms=PLAIN,SCRAM-SHA-512,"
    )
    with pytest.raises(RpcRefused) as refused:
        await controller.call(text)
    assert refused.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("sent", [b"", b"\x00" * 100, b"\x93\x00\x5c\xa0", b"x" * 600_000])
async def test_what_is_no_login_ends_the_connection(controller: Controller, sent: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{controller.port}{PATH}") as socket,
    ):
        await socket.send_bytes(sent)
        async with asyncio.timeout(20):
            messages = [message.type async for message in socket]
    assert aiohttp.WSMsgType.BINARY not in messages
    assert await controller.call(config_text()) == ASKED


async def test_a_session_of_a_node_ends_and_it_logs_in_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_logins.ControllerLogins, "lifetime_s", lambda *_: 0.2)
    security = load_config(config_text()).listener_security("CONTROLLER")
    login = node_login(security, controller.runtime)
    assert login is not None
    begun: list[str] = []
    begin = login.begin

    async def counted() -> Any:
        begun.append("")
        return await begin()

    monkeypatch.setattr(login, "begin", counted)
    client = RpcClient(
        controller.runtime, "127.0.0.1", controller.port, cluster_id=CLUSTER_ID, node_id=7,
        login=login,
    )  # fmt: skip
    async with asyncio.timeout(30):
        while len(begun) < 3:
            try:
                assert await client.call(ASKED, 20_000) == ASKED
            except RpcError:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
    await client.close()
    login.close()


# --- clients over HTTP ----------------------------------------------------------------------------


async def test_clients_log_in_with_each_request(controller: Controller) -> None:
    for _ in range(2):
        assert (await controller.get("/page", basic("ann", "of-ann")))[:2] == (
            200,
            {"asks": "User:ann"},
        )
    by_scram = basic("scram-node", "of-scram")
    assert (await controller.get("/page", by_scram))[1] == {"asks": "User:scram-node"}
    assert (await controller.get("/healthz", None))[0] == 200


async def test_a_password_counts_until_it_is_changed(controller: Controller) -> None:
    controller.commit(credential("bob", "one"))
    for _ in range(2):
        assert (await controller.get("/page", basic("bob", "one")))[0] == 200
    controller.commit(credential("bob", "two"))
    assert (await controller.get("/page", basic("bob", "one")))[0] == 401
    assert (await controller.get("/page", basic("bob", "two")))[0] == 200
    controller.commit()
    assert (await controller.get("/page", basic("bob", "two")))[0] == 401


@pytest.mark.parametrize(
    "given",
    [
        None,
        basic("ann", "wrong"),
        basic("nobody", "of-ann"),
        basic("scram-node", "wrong"),
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic /w==",
        "Basic",
        "Bearer abc",
        "Negotiate abc",
        "",
    ],
)
async def test_who_does_not_log_in_sees_nothing(controller: Controller, given: str | None) -> None:
    status, document, schemes = await controller.get("/page", given)
    assert (status, document["error"]) == (401, "SASL_AUTHENTICATION_FAILED")
    assert document["message"] in ("log in: send an Authorization header", _logins.REFUSED)
    assert schemes == 'Basic realm="raftctl", charset="UTF-8"'


async def test_too_many_passwords_at_once(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_logins, "WAITING_MAX", 0)
    status, document, _ = await controller.get("/page", basic("ann", "of-ann"))
    assert (status, document["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")


async def test_credentials_are_not_taken_from_elsewhere_without_tls(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftctl.node._http_access._is_loopback", lambda host: False)
    status, document, _ = await controller.get("/page", basic("ann", "of-ann"))
    assert status == 401
    assert "SASL_SSL" in document["message"]
