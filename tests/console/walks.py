"""Walks through the page that several tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from tests.console.browsers import Page
    from tests.console.double import Double

NAV = {
    "Overview": "Overview",
    "Problems": "Problems",
    "Quorum": "Quorum",
    "Brokers": "Brokers",
    "Reassignments": "Reassignments",
    "Topics": "Topics",
    "Messages": "Messages",
    "Groups": "Groups",
    "Transactions": "Transactions",
    "Configs": "Configs",
    "ACLs": "ACLs",
    "Quotas": "Quotas",
}
"""Link of the navigation to the heading of its view."""


def views_of(double: Double) -> list[str]:
    """The fragment of every view, with one of each kind."""
    world = double.world
    return [
        "",
        "problems",
        "quorum",
        "brokers",
        "brokers/5",
        "reassignments",
        "topics",
        "topics?only=1&sort=-partitions",
        "topics/orders",
        "topics/orders?tab=configs&defaults=1",
        "topics/orders?tab=messages&from=earliest",
        "messages",
        "messages?topic=orders&partition=0&from=120400&format=hex",
        "groups",
        f"groups/{_quoted(world.groups[0]['group'])}",
        "transactions",
        f"transactions/{_quoted(world.transactions[-1]['transactional_id'])}",
        "configs",
        "configs/broker/5",
        "acls",
        "quotas",
        "no-such-view",
    ]


def _quoted(name: str) -> str:
    return quote(name, safe="")


async def visit(page: Page, fragment: str) -> None:
    """Show a view, and wait until it has what it asked for."""
    await page.js(f"(location.hash = '#/{fragment}', true)")
    await ready(page)


async def ready(page: Page) -> None:
    """Wait until nothing on the page waits for the server."""
    await page.wait(
        "document.querySelector('h1') && document.querySelector('main').innerText.length > 8"
        " && !document.querySelector('[aria-busy=true]')"
        " && !document.querySelector('main').innerText.includes('Loading')"
        " && document.querySelector('#connection').innerText.includes('Live')"
    )


async def unharmed(page: Page) -> None:
    """Fail if script of a name has run, if the policy was violated, or the page had an error."""
    seen: dict[str, Any] = await page.js("({...window.seen, hacked: window.hacked ?? null})")
    assert seen == {"violations": [], "errors": [], "hacked": None}, seen
