"""The HTTP API of keys and values as any HTTP client sees it, and who waits on one node."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import aiohttp
import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.world import World
from raftctl.errors import ErrorCode, KafkaError
from raftctl.kv import KvFollower
from raftctl.kv import _follower as kv_follower
from raftctl.kv import _watch as kv_watch
from raftctl.kv._rights import KeyRights
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import KvLockRecord, KvSessionRecord, RemoveKvLockRecord
from raftctl.security import ANONYMOUS, Requester
from tests.unit.raftctl.kv.programs import Program, tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from raftctl.kv._events import KvChunk
    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record

pytestmark = pytest.mark.req("Q10")

JSON = "application/json"


class Browser(Program):
    """One that sends what it likes."""

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        return await self.send(path, json.dumps(body).encode(), {"Content-Type": JSON})

    async def send(self, path: str, data: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        """In pieces, since aiohttp warns of large bodies."""

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 100_000):
                yield data[start : start + 100_000]

        url = self.url + path
        async with self.http.post(url, data=pieces(), headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=3) as made:
        yield made


def ask(world: World, story: Callable[[Browser], Awaitable[None]], *, leader: bool = False) -> None:
    """Runs the story with a controller that leads, or with one that does not."""
    cluster = SimCluster(world, brokers=0)
    tell(world, cluster, Browser, lambda active, other: story(active if leader else other))


@pytest.mark.parametrize("leader", [True, False])
def test_every_controller_answers(world: World, leader: bool) -> None:
    async def story(browser: Browser) -> None:
        _, put = await browser.post("/put", key="a/b c", value="1")
        version = put["version"]
        found = {"key": "a/b c", "value": "1", "version": version}
        assert await browser.get("/get", key="a/b c") == (200, found)
        _, listed = await browser.get("/list", prefix="a")
        assert listed["keys"] == [found]
        assert listed["offset"] >= version
        status, stale = await browser.post("/cas", key="a/b c", value="2", expected_version=0)
        assert (status, stale["error"]) == (409, "INVALID_UPDATE_VERSION")
        assert stale["version"] == version
        await browser.post("/cas", key="a/b c", value_base64="/w==", expected_value="1")
        assert (await browser.get("/get", key="a/b c"))[1]["value_base64"] == "/w=="
        assert (await browser.post("/delete", key="a/b c", expected_value_base64="/w=="))[0] == 200
        assert (await browser.get("/get", key="a/b c"))[0] == 404
        assert (await browser.post("/delete", key="a/b c"))[0] == 404

    ask(world, story, leader=leader)


@pytest.mark.parametrize("leader", [True, False])
def test_sessions_and_locks(world: World, leader: bool) -> None:
    async def story(browser: Browser) -> None:
        _, opened = await browser.post("/session/open", timeout_ms=5_000)
        session = opened["session"]
        assert (await browser.post("/session/open", session=session))[1] == opened
        assert (await browser.post("/session/heartbeat", session=session))[1] == opened
        await browser.post("/put", key="e", value="", session=session)
        _, place = await browser.post("/lock", lock="l", session=session, value="me")
        assert place == {"lock": "l", "token": place["token"], "held": True}
        _, told = await browser.get("/session", session=session)
        assert (told["keys"], told["locks"]) == (["e"], ["l"])
        _, other = await browser.post("/session/open", timeout_ms=5_000)
        waiting = {"lock": "l", "session": other["session"]}
        _, second = await browser.post("/lock", **waiting, wait_ms=100)
        assert not second["held"]
        _, held = await browser.get("/lock", lock="l")
        assert (held["holder"]["token"], held["waiting"]) == (place["token"], 1)
        put = {"key": "k", "value": "1", "lock": "l"}
        status, fenced = await browser.post("/put", **put, token=second["token"])
        assert (status, fenced["error"]) == (409, "FENCED_MEMBER_EPOCH")
        assert fenced["version"] == place["token"]
        turn = asyncio.ensure_future(browser.post("/lock", **waiting, wait_ms=10_000))
        await asyncio.sleep(1)
        assert (await browser.post("/session/close", session=session))[0] == 200
        assert (await turn)[1] == {"lock": "l", "token": second["token"], "held": True}
        assert (await browser.post("/put", **put, token=second["token"]))[0] == 200
        assert (await browser.get("/get", key="e"))[0] == 404
        for path in ("/session/close", "/session/heartbeat"):
            status, over = await browser.post(path, session=session)
            assert (status, over["error"]) == (404, "UNKNOWN_MEMBER_ID")
        assert (await browser.get("/session", session=session))[0] == 404
        assert (await browser.post("/unlock", lock="l", token=second["token"]))[0] == 200
        assert (await browser.post("/unlock", lock="l", token=second["token"]))[0] == 404

    ask(world, story, leader=leader)


BAD_POSTS: list[tuple[str, dict[str, Any], str]] = [
    ("/put", {"value": ""}, "key"),
    ("/put", {"key": 5, "value": ""}, "key"),
    ("/put", {"key": "k"}, "value"),
    ("/put", {"key": "k", "value": "", "value_base64": ""}, "value"),
    ("/put", {"key": "k", "value_base64": "?"}, "value_base64"),
    ("/put", {"key": "k", "value": "\ud800"}, "value"),
    ("/put", {"key": "k", "value": "", "ttl": 3}, "ttl"),
    ("/put", {"key": "k", "value": "", "lock": "l"}, "token"),
    ("/put", {"key": "k", "value": "", "token": 3}, "lock"),
    ("/put", {"key": "k", "value": "", "session": "x"}, "session"),
    ("/cas", {"key": "k", "value": ""}, "expected_version"),
    ("/cas", {"key": "k", "value": "", "expected_version": True}, "expected_version"),
    ("/cas", {"key": "k", "value": "", "expected_version": -3}, "expected_version"),
    ("/cas", {"key": "k", "value": "", "expected_absent": 1}, "expected_absent"),
    (
        "/cas",
        {"key": "k", "value": "", "expected_absent": True, "expected_value": ""},
        "expected_absent",
    ),
    ("/session/heartbeat", {}, "session"),
    ("/session/open", {"timeout_ms": "soon"}, "timeout_ms"),
    ("/lock", {"lock": "l"}, "session"),
    ("/lock", {"session": "A" * 22}, "lock"),
    ("/lock", {"lock": "l", "session": "A" * 22, "wait_ms": 60_001}, "wait_ms"),
    ("/unlock", {"lock": "l"}, "token"),
]
BAD_GETS: list[tuple[str, dict[str, str], str]] = [
    ("/get", {}, "key"),
    ("/list", {"limit": "0"}, "limit"),
    ("/list", {"limit": "1001"}, "limit"),
    ("/list", {"limit": "\u0661"}, "limit"),
    ("/list", {"limit": "9" * 30}, "limit"),
    ("/watch", {"from": "-1"}, "from"),
    ("/watch", {"key": "a", "prefix": "b"}, "prefix"),
    ("/lock", {"lock": "l", "wait_ms": "x"}, "wait_ms"),
]


def test_bad_input_is_answered_by_its_field(world: World) -> None:
    async def story(browser: Browser) -> None:
        for path, body, field in BAD_POSTS:
            status, told = await browser.post(path, **body)
            assert (status, told["error"], told["field"]) == (400, "INVALID_REQUEST", field), told
            assert field in told["message"]
        for path, query, field in BAD_GETS:
            status, told = await browser.get(path, **query)
            assert (status, told["field"]) == (400, field), told
        status, told = await browser.post("/session/open", timeout_ms=10)
        assert (status, told["error"]) == (400, "INVALID_SESSION_TIMEOUT")
        assert "timeout_ms must be 1000 to 600000" in told["message"]
        assert (await browser.post("/put", key="k", value="x" * (1 << 20) + "x"))[0] == 413
        assert (await browser.get("/list"))[1]["keys"] == []

    ask(world, story)


def test_what_is_no_json_or_comes_from_a_page_is_refused(world: World) -> None:
    async def send(browser: Browser, data: bytes, headers: dict[str, str]) -> tuple[int, str]:
        status, document = await browser.send("/put", data, headers)
        return status, document.get("field", document["error"])

    async def story(browser: Browser) -> None:
        as_json = {"Content-Type": JSON}
        put = b'{"key": "k", "value": ""}'
        assert await send(browser, b"{", as_json) == (400, "body")
        assert await send(browser, b"[1]", as_json) == (400, "body")
        assert await send(browser, b"\xff", as_json) == (400, "body")
        assert await send(browser, b"[" * 100_000, as_json) == (400, "body")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert await send(browser, put, form) == (400, "Content-Type")
        assert await send(browser, put, {**as_json, "Origin": "http://evil"}) == (403, "Origin")
        huge = b" " * (4 * 1024 * 1024 + 1)
        assert await send(browser, huge, as_json) == (413, "MESSAGE_TOO_LARGE")
        url = browser.url + "/get"
        async with browser.http.get(url, params=[("key", "a"), ("key", "b")]) as answer:
            assert (answer.status, (await answer.json())["field"]) == (400, "key")

    ask(world, story)


# --- watches --------------------------------------------------------------------------------------


async def lines_of(answer: aiohttp.ClientResponse, count: int) -> list[Any]:
    return [json.loads(await answer.content.readline()) for _ in range(count)]


async def everything(answer: aiohttp.ClientResponse) -> bytes:
    """What comes until the connection breaks."""
    data = b""
    try:
        while piece := await answer.content.readany():
            data += piece
    except aiohttp.ClientError:
        return data
    raise AssertionError("the answer has come to its end")


def test_a_watch_tells_where_to_go_on_even_if_nothing_happens_to_its_keys(world: World) -> None:
    async def story(browser: Browser) -> None:
        _, put = await browser.post("/put", key="w", value="1")
        start = {"key": "w", "from": str(put["version"])}
        async with browser.http.get(browser.url + "/watch", params=start) as answer:
            assert answer.headers["Content-Type"] == "application/x-ndjson"
            first, event = await lines_of(answer, 2)
            assert first == {"type": "watching", "next": put["version"]}
            assert event == {"type": "put", **put, "value": "1", "next": put["version"] + 1}
            for number in range(20):
                await browser.post("/put", key=f"other-{number}", value="")
                await asyncio.sleep(0.5)
            (progress,) = await lines_of(answer, 1)
            assert progress["type"] == "progress"
            assert progress["next"] > event["next"]

    ask(world, story)


def test_a_watcher_that_does_not_read_is_cut_off_and_resumes(world: World) -> None:
    async def story(browser: Browser) -> None:
        values = [str(number) * 500_000 for number in range(8)]
        start = {"prefix": "w/"}
        answer = await browser.http.get(browser.url + "/watch", params=start, read_bufsize=1024)
        (first,) = await lines_of(answer, 1)
        for number, value in enumerate(values):
            await browser.post("/put", key=f"w/{number}", value=value)
        await asyncio.sleep(3 * kv_watch.WRITE_TIMEOUT_S)
        seen, position = [], first["next"]
        data = await everything(answer)
        for line in data.split(b"\n")[:-1]:
            event = json.loads(line)
            position = event["next"]
            seen += [event["value"]] if event["type"] == "put" else []
        assert len(seen) < len(values)
        again = {**start, "from": str(position)}
        url = browser.url + "/watch"
        async with browser.http.get(url, params=again, read_bufsize=1 << 22) as answer:
            rest = await lines_of(answer, 1 + len(values) - len(seen))
        assert seen + [event["value"] for event in rest[1:]] == values

    ask(world, story)


@pytest.mark.parametrize("leader", [True, False])
def test_a_watch_from_what_no_log_has_come_to_is_refused(world: World, leader: bool) -> None:
    """As of a client that comes with an offset of another cluster: it would hear of nothing."""

    async def story(browser: Browser) -> None:
        _, put = await browser.post("/put", key="w", value="1")
        soon = put["version"] + kv_watch.CONTROL_RECORDS_MAX
        async with browser.http.get(f"{browser.url}/watch?from={soon}") as answer:
            assert answer.status == 200
        status, told = await browser.get("/watch", **{"from": str(10 * soon)})
        assert (status, told["error"]) == (410, "OFFSET_OUT_OF_RANGE")
        assert "beyond the log's end" in told["message"]
        assert told["start_offset"] == 0

    ask(world, story, leader=leader)


def test_watches_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_watch, "WATCHES_MAX", 1)

    async def story(browser: Browser) -> None:
        async with browser.http.get(browser.url + "/watch"):
            status, told = await browser.get("/watch")
            assert (status, told["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")

    ask(world, story)


# --- who waits ------------------------------------------------------------------------------------


class FakeLoader:
    """Images that a test makes."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE


class Images:
    """A follower that is told of records."""

    def __init__(self) -> None:
        self.loader = FakeLoader()
        self.follower = KvFollower(_as_loader(self.loader))

    async def confirmed(self) -> MetadataImage:
        return self.loader.image

    def publish(self, *records: Record) -> None:
        image = self.loader.image
        delta = MetadataDelta(image)
        for offset, record in enumerate(records, image.offset + 1):
            delta.replay(record, offset)
        self.loader.image = delta.apply(image.offset + len(records), 1, 0)
        self.follower.publish(delta, self.loader.image)


def _as_loader(fake: Any) -> MetadataLoader:
    loader: MetadataLoader = fake
    return loader


async def test_only_the_next_in_the_queue_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images()
    sessions = [UUID(int=number) for number in range(10)]
    images.publish(*[KvSessionRecord(session, 1_000) for session in sessions])
    images.publish(*[KvLockRecord("l", session, b"") for session in sessions])
    tokens = [waiter.token for waiter in images.loader.image.coordination.queue("l")]
    woken = []
    woken_once = KvFollower._woken

    async def count(follower: KvFollower, lock: str, token: int | None) -> None:
        await woken_once(follower, lock, token)
        woken.append(token)

    monkeypatch.setattr(KvFollower, "_woken", count)
    waiting = [asyncio.ensure_future(images.follower.turn("l", token)) for token in tokens]
    await asyncio.sleep(0)
    images.publish(RemoveKvLockRecord("l", tokens[0]))
    await asyncio.sleep(0.01)
    assert woken == [tokens[1]]
    images.publish(RemoveKvLockRecord("l", tokens[5]))
    await asyncio.sleep(0.01)
    assert woken == [tokens[1], tokens[5]], "whose place is gone hears of it, the others do not"
    gone = await waiting[5]
    assert gone is not None
    assert gone.token == tokens[1]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert images.follower._locks == {}


async def test_who_waits_on_one_node_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_follower, "WAITING_MAX", 1)
    images = Images()
    waiting = asyncio.ensure_future(images.follower.another_holder("l", -1))
    await asyncio.sleep(0)
    with pytest.raises(KafkaError) as raised:
        await images.follower.another_holder("l", -1)
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    images.publish(KvSessionRecord(UUID(int=1), 1_000), KvLockRecord("l", UUID(int=1), b""))
    await waiting


class Compacted:
    """Events of a log whose start has passed a watcher by."""

    start_offset = 40

    def read(self, offset: int) -> KvChunk:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"from: offset {offset} is compacted")


async def test_a_watcher_whom_the_log_has_left_behind_is_told() -> None:
    written: list[Any] = []

    class Lines:
        ended = False

        async def write(self, *lines: Any) -> None:
            written.extend(lines)

    events: Any = Compacted()
    lines: Any = Lines()
    images = Images()
    rights = KeyRights(None, Requester(ANONYMOUS, "127.0.0.1"), images.confirmed)
    watches = kv_watch.KvWatches(events, images.follower, images.confirmed, lambda _: rights)
    await watches._step(lines, kv_watch._Watch(None, "", 7, rights))
    (told,) = written
    assert (told["type"], told["error"]) == ("error", "OFFSET_OUT_OF_RANGE")
    assert told["start_offset"] == 40
    assert lines.ended
