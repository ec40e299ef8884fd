"""The console of a real cluster: what it shows, what its actions do, and a killed broker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.console.browsers import BROWSERS, Page, chromium
from tests.console.double_data import SCRIPT
from tests.console.walks import NAV, ready, unharmed, visit
from tests.integration.clusters import running_cluster
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

TOPIC = "orders"
GROUP = f"group {SCRIPT}"
RECORDS = 120
SEEN_S_MAX = 1.0
"""From the commit of an event, as a node answers it, to the page."""
WAIT_S = 30
SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three controllers and three brokers, with a topic, records and a group that has read them."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), overrides=SECURITY) as running:
        admin = _admin(running)
        create_topic(admin, TOPIC, 4, 3, {}, WAIT_S)
        producer = Producer({"bootstrap.servers": _bootstrap(running)})
        for number in range(RECORDS):
            value = json.dumps({"n": number, "text": SCRIPT})
            headers: Any = {SCRIPT: SCRIPT}
            producer.produce(TOPIC, value, key=SCRIPT, partition=number % 4, headers=headers)
        producer.flush(WAIT_S)
        consumer = _consumer(running)
        read = 0
        while read < RECORDS:
            read += len(consumer.consume(RECORDS, 0.5))
        consumer.commit(asynchronous=False)
        consumer.close()
        yield running


def _bootstrap(cluster: LocalCluster) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in cluster.layout.brokers)


def _admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": _bootstrap(cluster)})


def _consumer(cluster: LocalCluster) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": _bootstrap(cluster),
            "group.id": GROUP,
            "client.id": SCRIPT,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def _console(cluster: LocalCluster, role: str = "controller") -> str:
    nodes = cluster.layout.controllers if role == "controller" else cluster.layout.brokers
    return f"http://{nodes[0].http_address}/console/"


async def _act(page: Page, fields: dict[str, str], confirm: str | None = None) -> str:
    """Fill the open dialog, send it, and return what the server says was done."""
    await page.wait("document.querySelector('dialog[open]')")
    for name, value in fields.items():
        await page.fill(f"dialog [name='{name}']", value)
    if confirm is not None:
        await page.fill("dialog [name='$confirm']", confirm)
    await page.js("(document.querySelector('#toasts').replaceChildren(), true)")
    await page.click("dialog button[type=submit]")
    await page.wait("!document.querySelector('dialog form[aria-busy=true]')", WAIT_S)
    assert not await page.js("document.querySelector('dialog[open]')?.innerText ?? ''")
    return await page.text("#toasts")


def _partitions(admin: AdminClient, topic: str) -> dict[int, Any]:
    return dict(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


@pytest.mark.req("W1", "A4")
@pytest.mark.parametrize(
    ("browser", "role"), [("chromium", "controller"), ("firefox", "broker"), ("chromium", "broker")]
)
async def test_every_view_of_every_node(
    cluster: LocalCluster, tmp_path: Path, browser: str, role: str
) -> None:
    consumer = _consumer(cluster)
    await asyncio.to_thread(consumer.poll, 5.0)
    async with BROWSERS[browser](tmp_path) as page:
        await page.goto(_console(cluster, role))
        for link, heading in NAV.items():
            await page.click("#nav a", link)
            await page.wait_text(heading, "h1")
            await ready(page)
            assert await page.js("document.querySelectorAll('.failed').length") == 0, link
        await visit(page, "quorum")
        await page.wait_text("leader", "table")
        for number in (1, 2, 3):
            await page.wait_text(str(number), "main")
        await visit(page, "brokers/2")
        await page.wait_text("online", "table")
        await visit(page, "configs/broker/2")
        await page.wait_text("authorizer.class.name")
        await visit(page, f"topics/{TOPIC}")
        await page.wait("document.querySelectorAll('.tbody .status.ok').length === 4")
        await page.wait_text(str(RECORDS // 4), ".tbody")
        await visit(page, f"topics/{TOPIC}?tab=messages&partition=0&from=earliest")
        await page.click(".recordhead")
        await page.wait_text(f'"text": {json.dumps(SCRIPT)}', ".recordbody")
        await page.wait_text(SCRIPT, ".recordbody .label bdi")
        await visit(page, "groups")
        await page.wait_text(GROUP)
        await page.click(".tbody a", GROUP)
        await page.wait_text(SCRIPT, "table")
        await unharmed(page)
    consumer.close()


@pytest.mark.req("W2")
async def test_actions_do_what_they_say(cluster: LocalCluster, tmp_path: Path) -> None:
    admin = _admin(cluster)
    async with chromium(tmp_path) as page:
        await page.goto(_console(cluster))
        await visit(page, "topics")
        await page.click("button", "Create a topic")
        # What the server refuses stands beside its field, and nothing has happened.
        await page.fill("dialog [name='name']", "no spaces, please")
        await page.click("dialog button[type=submit]")
        await page.wait("document.querySelector('dialog .fielderror').innerText.length > 10")
        await _act(page, {"name": "made", "partitions": "2", "replication_factor": "2"})
        await page.wait_text("made", ".tbody")
        assert len(_partitions(admin, "made")) == 2

        await visit(page, "topics/made")
        await page.click("button", "Add partitions")
        await _act(page, {"count": "3"})
        await page.wait("document.querySelectorAll('.tbody [role=row] .status.ok').length === 3")
        assert len(_partitions(admin, "made")) == 3

        replicas = _partitions(admin, "made")[0].replicas
        wanted = [next(one for one in (1, 2, 3) if one not in replicas), replicas[0]]
        await page.choose(".tbody select", "reassign")
        await _act(page, {"replicas": ", ".join(map(str, wanted))})
        shown = (
            "[...document.querySelectorAll('.tbody [role=row]')[0].querySelectorAll('.replica')]"
        )
        await page.wait(
            f"{shown}.map((one) => parseInt(one.innerText)).join() === '{wanted[0]},{wanted[1]}'"
        )
        assert _partitions(admin, "made")[0].replicas == wanted

        await visit(page, "topics/made?tab=configs")
        await page.click("main .tools button", "Set a config")
        await _act(page, {"key": "retention.ms", "value": "86400000"})
        await page.wait_text("86400000", ".settings")
        resource = ConfigResource(ResourceType.TOPIC, "made")
        found = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert found["retention.ms"].value == "86400000"

        await visit(page, "topics")
        await page.click("button", "Elect preferred leaders")
        await _act(page, {})
        await visit(page, f"topics/{TOPIC}")
        await page.wait_text("in sync")
        await page.choose(".tbody select", "records")
        await _act(page, {"before": "7"}, TOPIC)
        consumer = Consumer({"bootstrap.servers": _bootstrap(cluster), "group.id": "none"})
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0))[0] == 7
        consumer.close()

        await visit(page, "topics/made")
        await page.click("button", "Delete topic")
        await _act(page, {}, "made")
        await page.wait_text("Topics", "h1")
        await page.wait("!document.querySelector('.tbody').innerText.includes('made')")
        assert "made" not in admin.list_topics(timeout=WAIT_S).topics
        await unharmed(page)


@pytest.mark.req("W2")
async def test_actions_on_groups_and_rules(cluster: LocalCluster, tmp_path: Path) -> None:
    admin = _admin(cluster)
    async with chromium(tmp_path) as page:
        await page.goto(_console(cluster, "broker"))
        await visit(page, "groups")
        await page.click(".tbody a", GROUP)
        await page.wait_text("Empty")
        await page.click("button", "Reset offsets")
        await _act(page, {"partitions": "1", "to": "5"}, GROUP)
        await page.wait(
            "[...document.querySelectorAll('table tr')].some("
            "(row) => row.cells[1]?.innerText === '1' && row.cells[2].innerText === '5')"
        )
        await page.click("button", "Delete group")
        await _act(page, {}, GROUP)
        groups = admin.list_consumer_groups().result(WAIT_S).valid
        assert [one.group_id for one in groups] == []

        await visit(page, "acls")
        await page.click("button", "Create a rule")
        principal = "User:ann <b>"
        await _act(page, {"principal": principal, "resource_name": TOPIC})
        await page.wait_text(principal, ".tbody")
        await page.click(".tbody button", "Delete")
        await _act(page, {}, principal)
        await page.wait_text("There is no rule.")

        await visit(page, "quotas")
        await page.click("button", "Set a quota")
        await _act(page, {"user": "ann", "value": "2048"})
        await page.wait_text("2,048", ".tbody")
        await page.click(".tbody button", "Change")
        await _act(page, {"value": ""})
        await page.wait_text("There is no quota.")
        await unharmed(page)


@pytest.mark.req("W1", "A4")
async def test_a_killed_broker_is_seen_within_a_second(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    url = _console(cluster)
    loop = asyncio.get_running_loop()
    victim = cluster.layout.brokers[-1]
    leaders = "[...document.querySelectorAll('.replica.leads')]"
    led = f"{leaders}.some((one) => parseInt(one.innerText) === {victim.node_id})"

    async with chromium(tmp_path) as page, aiohttp.ClientSession() as session:
        await page.goto(f"{url}#/topics/{TOPIC}")
        await page.wait(led)

        async def committed() -> float:
            while True:
                async with session.get(f"{url}api/topics/{TOPIC}/partitions") as response:
                    rows = (await response.json())["rows"]
                if all(row["leader"] != victim.node_id for row in rows):
                    return loop.time()
                await asyncio.sleep(0.02)

        async def seen() -> float:
            await page.wait(f"!{led}", WAIT_S)
            return loop.time()

        cluster.kill(victim)
        known, shown = await asyncio.gather(committed(), seen())
        assert shown - known <= SEEN_S_MAX
        await visit(page, "")
        await page.wait_text("1 fenced")
        await page.wait_text("under-replicated")
        await visit(page, f"brokers/{victim.node_id}")
        await page.wait_text("fenced")
        await page.click("button", "Unregister")
        await _act(page, {}, str(victim.node_id))
        await page.wait("document.querySelectorAll('.tbody [role=row]').length === 2")
        await unharmed(page)
