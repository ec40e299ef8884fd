"""Rules on keys: who may read and write which, of every request of the HTTP API (S6)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.world import World
from raftctl.kv._rights import READ, WRITE, KeyRights
from raftctl.metadata.acls import Operation
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.security import ANONYMOUS, Requester
from tests.kit.authorizing import ListedActions, rule
from tests.unit.raftctl.kv.programs import Program, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from raftctl.metadata.image import MetadataImage

pytestmark = pytest.mark.req("S6")

ADMIN = "User:ANONYMOUS"
ENFORCED = {"authorizer.class.name": "standard"}
RULES = (
    "ALLOW User:ANONYMOUS READ KEY app/...",
    "ALLOW User:ANONYMOUS WRITE KEY app/open/...",
    "ALLOW User:ANONYMOUS WRITE KEY app/one",
    "ALLOW User:ANONYMOUS WRITE KEY log/...",
    "DENY User:ANONYMOUS READ KEY app/secret",
    "ALLOW User:ANONYMOUS ALL TOPIC *",
)
DENIED = (403, "CLUSTER_AUTHORIZATION_FAILED")


class Client(Program):
    """One whose answers may be refusals."""

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body) as answer:
            return answer.status, await answer.json()

    async def is_denied(self, answering: Awaitable[tuple[int, Any]]) -> bool:
        """Whether the answer is a refusal by the rules; else it must be none."""
        status, document = await answering
        if (status, document.get("error")) == DENIED:
            return True
        assert status in (200, 404, 409), document
        return False


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=5) as made:
        yield made


def ask(
    world: World,
    story: Callable[[Client, Client], Awaitable[None]],
    *rules: str,
    config: dict[str, str] | None = None,
) -> None:
    """Runs the story with the active controller and with another one."""
    records = [rule(text) for text in rules]
    overrides = ENFORCED if config is None else config
    cluster = SimCluster(world, brokers=0, overrides=overrides, first_records=records)
    tell(world, cluster, Client, story)


@pytest.mark.parametrize("leads", [True, False])
def test_keys_are_read_and_written_by_rules(world: World, leads: bool) -> None:
    async def story(active: Client, other: Client) -> None:
        client = active if leads else other
        denied = client.is_denied
        assert not await denied(client.post("/put", key="app/open/a", value="1"))
        assert not await denied(client.post("/put", key="app/one", value="1"))
        assert await denied(client.post("/put", key="app/one/b", value="1"))
        assert await denied(client.post("/put", key="app/", value="1"))
        assert await denied(client.post("/delete", key="app/other"))
        assert not await denied(client.get("/get", key="app/one"))
        assert await denied(client.get("/get", key="app/secret"))
        assert await denied(client.get("/get", key="other"))
        # Who may not read a key does not learn what it holds by guessing.
        assert not await denied(client.post("/put", key="log/a", value="1"))
        assert await denied(client.post("/cas", key="log/a", value="2", expected_value="1"))
        assert await denied(client.post("/delete", key="log/a", expected_value="1"))
        assert not await denied(client.post("/cas", key="log/a", value="2", expected_version=0))

    ask(world, story, *RULES)


@pytest.mark.parametrize("leads", [True, False])
def test_a_range_lies_within_what_is_allowed(world: World, leads: bool) -> None:
    async def story(active: Client, other: Client) -> None:
        client = active if leads else other
        for prefix, is_denied in (
            ("app/open/", False),
            ("app/open/b", False),
            ("app/s", True),  # one key in it is denied
            ("app/secret/", False),
            ("app/", True),
            ("app", True),
            ("", True),
            ("log/", True),
        ):
            assert await client.is_denied(client.get("/list", prefix=prefix)) is is_denied, prefix
            async with client.http.get(f"{client.url}/watch", params={"prefix": prefix}) as answer:
                assert (answer.status == 403) is is_denied, prefix
        async with client.http.get(f"{client.url}/watch", params={"key": "app/secret"}) as answer:
            assert answer.status == 403

    ask(world, story, *RULES)


def test_locks_and_sessions_are_of_those_who_may_write_them(world: World) -> None:
    async def story(active: Client, client: Client) -> None:
        denied = client.is_denied
        _, opened = await client.post("/session/open")
        session = opened["session"]
        _, held = await client.post("/lock", lock="app/open/lock", session=session)
        assert held["held"]
        assert await denied(client.post("/lock", lock="app/lock", session=session))
        assert await denied(client.post("/unlock", lock="app/lock", token=held["token"]))
        guard = {"lock": "log/lock", "token": 1}
        assert await denied(client.post("/put", key="app/one", value="1", **guard))
        assert "session" in (await client.get("/lock", lock="app/open/lock"))[1]["holder"]
        await active.post("/rules/remove", prefix="app/open/")
        _, seen = await client.get("/lock", lock="app/open/lock")
        assert "session" not in seen["holder"]
        # The lock is in the session, and its right is gone.
        assert await denied(client.post("/session/close", session=session))
        await active.post("/rules/remove", principal=ADMIN, operation="write")
        assert await denied(client.post("/session/open"))
        assert await denied(client.post("/session/heartbeat", session=session))

    ask(world, story, *RULES, "ALLOW User:ANONYMOUS ALTER CLUSTER kafka-cluster")


def test_a_right_that_is_revoked_is_not_used_on_any_controller(world: World) -> None:
    async def story(active: Client, other: Client) -> None:
        for turn in range(20):
            status, added = await active.post(
                "/rules/add", principal=ADMIN, operation="all", prefix=f"t{turn}/"
            )
            assert status == 200, added
            assert (await other.post("/put", key=f"t{turn}/k", value="1"))[0] == 200
            status, gone = await active.post("/rules/remove", prefix=f"t{turn}/")
            assert (status, gone["removed"]) == (200, [added["rule"]])
            for client in (other, active):
                assert await client.is_denied(client.get("/get", key=f"t{turn}/k"))
                assert await client.is_denied(client.post("/put", key=f"t{turn}/k", value="2"))
                assert await client.is_denied(client.get("/list", prefix=f"t{turn}/"))

    ask(world, story, "ALLOW User:ANONYMOUS ALTER CLUSTER kafka-cluster")


def test_a_watch_ends_with_its_right(world: World) -> None:
    async def story(active: Client, other: Client) -> None:
        async with other.http.get(f"{other.url}/watch", params={"prefix": "app/open/"}) as answer:
            lines = answer.content
            assert json.loads(await lines.readline())["type"] == "watching"
            await active.post("/put", key="app/open/k", value="1")
            assert json.loads(await lines.readline())["value"] == "1"
            await active.post("/rules/remove", prefix="app/", operation="read")
            await active.post("/put", key="app/open/k", value="2")
            async with asyncio.timeout(30):
                seen = [json.loads(line) async for line in lines]
        assert [one["type"] for one in seen if one["type"] != "progress"] == ["error"]
        assert seen[-1]["error"] == DENIED[1]

    ask(world, story, *RULES, "ALLOW User:ANONYMOUS ALTER CLUSTER kafka-cluster")


def test_rules_are_kept_by_those_who_may_alter_the_cluster(world: World) -> None:
    async def story(active: Client, other: Client) -> None:
        for client in (active, other):
            assert await client.is_denied(
                client.post("/rules/add", principal="User:a", operation="read", key="*")
            )
            assert await client.is_denied(client.post("/rules/remove", principal="User:a"))
            status, listed = await client.get("/rules", prefix="app/open/")
            assert status == 200
            assert listed["rules"] == [
                {
                    "principal": ADMIN,
                    "host": "*",
                    "permission": "ALLOW",
                    "operation": "WRITE",
                    "prefix": "app/open/",
                }
            ]
            for bad, field in (
                ({"principal": "User:a", "operation": "read"}, "key"),
                ({"principal": "User:a", "key": "a"}, "operation"),
                ({"operation": "read", "key": "a"}, "principal"),
                ({"principal": "User:a", "operation": "create", "key": "a"}, "operation"),
                ({"principal": "User:a", "operation": "read", "prefix": ""}, "prefix"),
                ({"principal": "User:a", "operation": "read", "prefix": "a", "key": "a"}, "prefix"),
            ):
                status, document = await client.post("/rules/add", **bad)
                assert (status, document["field"]) == (400, field)

    ask(world, story, *RULES, "ALLOW User:ANONYMOUS DESCRIBE CLUSTER kafka-cluster")


def test_without_an_authorizer_there_are_no_rules_and_no_refusals(world: World) -> None:
    async def story(active: Client, other: Client) -> None:
        assert (await other.post("/put", key="k", value="1"))[0] == 200
        status, document = await other.get("/rules")
        assert (status, document["error"]) == (403, "SECURITY_DISABLED")

    ask(world, story, config={})


def test_super_users_and_what_no_rule_is_about(world: World) -> None:
    async def all_is_allowed(active: Client, other: Client) -> None:
        assert (await other.post("/put", key="k", value="1"))[0] == 200
        assert (await other.get("/list"))[0] == 200

    ask(world, all_is_allowed, config={**ENFORCED, "super.users": ADMIN})
    with World(seed=6) as another:
        config = {**ENFORCED, "allow.everyone.if.no.acl.found": "true"}
        ask(another, all_is_allowed, config=config)


async def test_a_request_asks_the_active_controller_once() -> None:
    asked: list[str] = []

    async def confirmed() -> MetadataImage:
        asked.append("")
        return EMPTY_IMAGE

    rights = KeyRights(ListedActions(), Requester(ANONYMOUS, "127.0.0.1"), confirmed)
    await rights.require(WRITE, "a")
    await rights.require(READ, "a", "b")
    await rights.require_cluster(Operation.DESCRIBE)
    await rights.confirm()
    assert len(asked) == 1
