"""Ids of requests: unique without chance, safe to write, in the lines that are about them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftctl.tracing import Named, RequestIds, add_request_id, follow, is_request_id
from raftctl.tracing._request_ids import followed_id

START_MS = 0x19A7C3
pytestmark = pytest.mark.req("O2")


def line(**fields: Any) -> dict[str, Any]:
    """A line of the log as it leaves the processor."""
    return dict(add_request_id(None, "info", fields))


def test_ids_say_node_start_connection_and_number() -> None:
    ids = RequestIds(4, START_MS)
    assert [ids.of_connection(), ids.of_connection()] == ["4.19a7c3.1", "4.19a7c3.2"]
    assert [ids.of_request(), ids.of_request()] == ["4.19a7c3.0.1", "4.19a7c3.0.2"]
    assert is_request_id(ids.of_request())


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a\nb", 'a"b', "\x1b[31m", "é", "a" * 129, "<script>", "a;b"],
)
def test_what_could_forge_a_line_is_no_id(text: str) -> None:
    assert not is_request_id(text)


def test_a_line_names_the_request_that_is_followed() -> None:
    assert line(event="x") == {"event": "x"}
    follow(Named("4.1.2.3"))
    assert line(event="x") == {"event": "x", "request_id": "4.1.2.3"}
    assert line(event="x", request_id="own") == {"event": "x", "request_id": "own"}
    follow(None)
    assert line(event="x") == {"event": "x"}


class Ending:
    """A request that ends."""

    followed_id = "4.1.2.3"


async def test_tasks_of_a_request_are_followed_until_it_is_over() -> None:
    request, seen = Ending(), []

    async def work() -> None:
        seen.append(followed_id())
        await asyncio.sleep(0)
        seen.append(followed_id())

    follow(request)
    task = asyncio.create_task(work())
    follow(None)
    await asyncio.sleep(0)
    request.followed_id = ""
    await task
    assert seen == ["4.1.2.3", ""]
