"""Every view and every action in Chromium and Firefox, on the double of the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.console.browsers import ENTER, Page
from tests.console.double import Double, serving
from tests.console.double_data import SCRIPT, calm, hostile, troubled
from tests.console.walks import NAV, ready, unharmed, views_of, visit

LIVE_MS_MAX = 1_000
"""From an event of the server to what a person sees."""


async def test_every_view_shows_what_the_server_knows(page: Page) -> None:
    shown = {
        "Overview": ["Something does not work", "2 of 3", "shipments-0", "raftctl topics reassign"],
        "Problems": ["Is fenced", "topic payments"],
        "Quorum": ["follower, behind", "214", "was elected with the votes of 1, 2 and 3"],
        "Brokers": ["fenced", "in service", "zone-c"],
        "Reassignments": ["82 %", "orders"],
        "Topics": ["2 offline", "6 under-replicated", "45.0 GiB", "internal"],
        "Groups": ["analytics-payments", "Assigning", "1,866"],
        "Transactions": ["payments-2, from offset 1,204,311", "Hanging"],
        "ACLs": ["DENY", "User:analytics", "PREFIXED"],
        "Quotas": ["producer_byte_rate", "1,000,000", "<default>"],
    }
    async with serving(troubled()) as double:
        await page.goto(double.url)
        for link, heading in NAV.items():
            await page.click("#nav a", link)
            await page.wait_text(heading, "h1")
            for text in shown.get(link, []):
                await page.wait_text(text)
        await unharmed(page)


async def test_one_leads_to_another(page: Page) -> None:
    async with serving(troubled()) as double:
        await page.goto(double.url)
        await page.click("main a", "shipments-0")
        await page.wait_text("no leader")
        await page.click("main nav a", "Configs")
        await page.wait_text("min.insync.replicas", ".settings")
        assert "cleanup.policy" not in await page.text(".settings")
        await page.click("main .tick input")
        await page.wait_text("cleanup.policy", ".settings")
        await page.click("#nav a", "Groups")
        await page.click("main a", "analytics-orders")
        await page.wait_text("orders: 0-1")
        await page.click("main a", "broker 4")
        await page.wait_text("/var/lib/raftctl/4/disk-b")
        await unharmed(page)


async def test_a_link_carries_sort_and_filter(page: Page) -> None:
    async with serving(calm()) as double:
        await page.goto(f"{double.url}#/topics?sort=-partitions&filter=o")
        await ready(page)
        first = "document.querySelector('.tbody [role=row] a').innerText"
        await page.wait(f"{first} === '__consumer_offsets'")
        await page.click(".sort", "topic")
        await page.wait(f"{first} === 'audit.log' || {first} === '__consumer_offsets'")
        await page.fill("input[type=search]", "pay")
        await page.wait(f"{first} === 'payments'")
        assert "filter=pay" in await page.js("location.hash")
        await page.wait("document.querySelectorAll('.tbody [role=row]').length === 1")


async def test_records_as_text_json_hex_and_base64(page: Page) -> None:
    async with serving(calm()) as double:
        await page.goto(f"{double.url}#/topics/orders?tab=messages&from=earliest")
        await page.wait_text("120,400")
        await page.click(".recordhead")
        # A number above 2^53 stays as it was written.
        await page.wait_text('"id": 9007199254740993,\n', ".recordbody")
        for kind, text in (("hex", "7b 22 69 64"), ("base64", "eyJpZCI6"), ("text", '{"id":9007')):
            await page.js(
                "(() => {const one = [...document.querySelectorAll('form select')].at(-1);"
                f"one.value = '{kind}';"
                "one.dispatchEvent(new Event('change', {bubbles: true})); return true})()"
            )
            await page.wait_text(text, ".recordbody")
        await page.fill("form input[aria-describedby=from-hint]", "@yesterday")
        await page.press(ENTER)
        await page.wait_text("is no time")
        await page.fill("form input[aria-describedby=from-hint]", "120440")
        await page.press(ENTER)
        await page.wait("document.querySelector('.recordhead .offset')?.innerText === '120,440'")
        await unharmed(page)


async def test_an_event_is_seen_within_a_second(page: Page) -> None:
    async with serving(calm()) as double:
        await page.goto(f"{double.url}#/topics/orders")
        await page.wait_text("in sync")
        loop = asyncio.get_running_loop()
        double.world.fenced = {6}
        began = loop.time()
        double.changed(topics=["orders"], brokers=True)
        await page.wait("document.querySelectorAll('.tbody .status.warning').length === 6")
        assert (loop.time() - began) * 1000 <= LIVE_MS_MAX
        assert await page.js("document.querySelectorAll('.tbody .flash').length > 0")
        await page.click("#nav a", "Overview")
        await page.wait_text("1 broker fenced")


async def test_a_lost_connection_is_said_and_mended(page: Page) -> None:
    double = Double(calm())
    await double.start()
    await page.goto(double.url)
    await ready(page)
    await page.wait_text("All is well")
    port = int(double.url.split(":")[2].partition("/")[0])
    await double.stop()
    await page.wait_text("Connection lost; data as of", "#connection")
    assert "All is well" in await page.text()
    double.world.fenced = {5}
    await double.start(port)
    try:
        await page.wait_text("Live", "#connection")
        await page.wait_text("1 broker fenced")
    finally:
        await double.stop()


@pytest.mark.req("W3")
async def test_script_in_every_text_does_nothing(page: Page) -> None:
    async with serving(hostile()) as double:
        await page.goto(double.url)
        for fragment in views_of(double):
            await visit(page, fragment)
        await visit(page, "groups")
        await page.wait_text(SCRIPT)
        await visit(page, "topics/orders?tab=messages&from=120441")
        await page.wait_text("1.0 GiB")
        await page.click(".recordhead")
        await page.wait_text("Only the beginning is shown; the whole has 1,073,741,824 bytes.")
        assert "\u202e" not in await page.text()
        await page.wait_text("\\u202etxt.exe")
        await asyncio.sleep(0.3)
        await unharmed(page)


@pytest.mark.req("W3")
async def test_the_whole_page_by_keys(page: Page) -> None:
    async with serving(calm()) as double:
        await page.goto(double.url)
        await ready(page)
        await page.press("?")
        await page.wait_text("Keys", "dialog h2")
        await page.press("Escape")
        await page.wait("!document.querySelector('dialog')")
        await page.press("g")
        await page.press("t")
        await page.wait_text("Topics", "h1")
        await ready(page)
        await page.press("/")
        await page.write("pay")
        await page.wait("document.querySelectorAll('.tbody [role=row]').length === 1")
        await page.press("Escape")
        await page.press("ArrowDown")
        await page.wait("document.activeElement.innerText === 'payments'")
        await page.press(ENTER)
        await page.wait_text("payments", "h1")
        await page.press("g")
        await page.press("g")
        await page.wait_text("analytics-audit.log")
        await page.press("ArrowDown")
        await page.press("ArrowDown")
        await page.wait("document.activeElement.innerText === 'analytics-clicks'")
        await page.press("d")
        assert await page.js("document.documentElement.dataset.theme") == "light"
        await page.press("d")
        dark = (
            "document.body && getComputedStyle(document.body).backgroundColor === 'rgb(15, 20, 27)'"
        )
        await page.wait(dark)
        await page.goto(double.url)
        await page.wait(dark)
        # The focus stays in a dialog, and goes back where it was.
        await visit(page, "topics")
        await page.click("button", "Create a topic")
        for _ in range(12):
            await page.press("Tab")
            assert await page.js("Boolean(document.activeElement.closest('dialog, body'))")
        await page.press("Escape")
        await page.wait("document.activeElement.innerText === 'Create a topic'")


Step = tuple[str, str]
_ACTIONS: dict[str, tuple[str, list[Step], dict[str, str], str | None, dict[str, Any]]] = {
    "create-topic": (
        "topics",
        [("button", "Create a topic")],
        {"name": "returns", "partitions": "3", "configs": "cleanup.policy=compact"},
        None,
        {
            "name": "returns",
            "partitions": 3,
            "replication_factor": None,
            "configs": {"cleanup.policy": "compact"},
        },
    ),
    "delete-topic": (
        "topics/orders",
        [("button", "Delete topic")],
        {},
        "orders",
        {"name": "orders"},
    ),
    "create-partitions": (
        "topics/orders",
        [("button", "Add partitions")],
        {"count": "9"},
        None,
        {"topic": "orders", "count": 9},
    ),
    "alter-configs": (
        "topics/orders?tab=configs",
        [("button[aria-label='Change retention.ms']", "")],
        {"value": "60000"},
        None,
        {"type": "topic", "name": "orders", "set": {"retention.ms": "60000"}},
    ),
    "elect-leaders": (
        "topics",
        [("button", "Elect preferred leaders")],
        {},
        None,
        {"election": "preferred", "partitions": None},
    ),
    "reassign": (
        "topics/orders",
        [(".tbody select", "reassign")],
        {"replicas": "6, 4"},
        None,
        {"partitions": [{"topic": "orders", "partition": 0, "replicas": [6, 4]}]},
    ),
    "cancel-reassignment": (
        "reassignments",
        [(".tbody button", "Cancel")],
        {},
        None,
        {"partitions": [{"topic": "orders", "partition": 0}]},
    ),
    "delete-records": (
        "topics/orders",
        [(".tbody select", "records")],
        {"before": "-1"},
        "orders",
        {"topic": "orders", "partition": 0, "before": -1},
    ),
    "reset-offsets": (
        "groups/analytics-orders",
        [("button", "Reset offsets")],
        {"partitions": "0, 2-4", "to": "@2026-11-23T10:00:00Z"},
        "analytics-orders",
        {
            "group": "analytics-orders",
            "topic": "orders",
            "partitions": [0, 2, 3, 4],
            "to": "@1795428000000",
        },
    ),
    "delete-group": (
        "groups/analytics-orders",
        [("button", "Delete group")],
        {},
        "analytics-orders",
        {"group": "analytics-orders"},
    ),
    "remove-member": (
        "groups/analytics-orders",
        [("main button", "Remove")],
        {},
        "analytics-0",
        {"group": "analytics-orders", "member": "analytics-0-5b2c", "instance": None},
    ),
    "create-acl": (
        "acls",
        [("button", "Create a rule")],
        {"principal": "User:ann", "resource_name": "orders"},
        None,
        {
            "principal": "User:ann",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "pattern_type": "LITERAL",
        },
    ),
    "delete-acl": (
        "acls",
        [(".tbody button", "Delete")],
        {},
        "User:analytics",
        {
            "principal": "User:analytics",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
            "resource_type": "TOPIC",
            "resource_name": "orders",
            "pattern_type": "LITERAL",
        },
    ),
    "alter-quota": (
        "quotas",
        [("button", "Set a quota")],
        {"user": "ann", "value": "2048"},
        None,
        {
            "user": "ann",
            "client_id": None,
            "ip": None,
            "key": "producer_byte_rate",
            "value": 2048,
        },
    ),
    "abort-transaction": (
        "transactions",
        [(".tbody button", "Abort")],
        {},
        "payments",
        {"topic": "payments", "partition": 2},
    ),
    "unregister-broker": (
        "brokers/6",
        [("button", "Unregister")],
        {},
        "6",
        {"broker": 6},
    ),
}
"""Action to its view, the clicks to its dialog, its fields, the name to type, and the body sent."""


@pytest.mark.req("W2")
async def test_each_action_asks_confirms_and_shows_a_refusal(page: Page) -> None:
    async with serving(troubled()) as double:
        await page.goto(double.url)
        await ready(page)
        for name, (fragment, clicks, fields, confirm, body) in _ACTIONS.items():
            await visit(page, "no-such-view")
            await visit(page, fragment)
            for selector, text in clicks:
                if selector.endswith("select"):
                    await page.wait(f"document.querySelector('{selector}')")
                    await page.choose(selector, text)
                else:
                    await page.click(selector, text)
            await page.wait("document.querySelector('dialog[open]')")
            for field, value in fields.items():
                await page.fill(f"dialog [name='{field}']", value)
            submit = "document.querySelector('dialog button[type=submit]')"
            if confirm is not None:
                assert await page.js(f"{submit}.disabled"), name
                await page.fill("dialog [name='$confirm']", confirm)
            refused = next(iter(fields), None)
            sentence = f"User:operator may not do {name}."
            double.refusal = {"error": "DENIED", "message": sentence, "field": refused}
            await page.click("dialog button[type=submit]")
            await page.wait_text(sentence, "dialog")
            if refused is not None:
                assert await page.js("document.activeElement.name") == refused
            double.refusal = None
            await page.click("dialog button[type=submit]")
            await page.wait("!document.querySelector('dialog')")
            await page.wait_text(f"{name} is done.", "#toasts")
            assert double.acted[-1] == (name, body)
        await unharmed(page)


async def test_an_empty_table_fills_when_something_comes(page: Page) -> None:
    async with serving(calm()) as double:
        rules, double.world.acls = double.world.acls, []
        await page.goto(f"{double.url}#/acls")
        await page.wait_text("There is no rule.")
        double.world.acls = rules
        double.changed(acls=True)
        await page.wait_text("User:analytics", ".tbody")


async def test_a_network_that_drops_everything_is_noticed(page: Page) -> None:
    """It ends no stream, so the page asks when no event has come for a while."""
    async with serving(calm()) as double:
        await page.goto(double.url)
        await ready(page)
        double.answering.clear()
        await page.wait_text("Connection lost", "#connection", timeout_s=60)
        double.answering.set()
        await page.wait_text("Live", "#connection", timeout_s=60)
