"""Levels of a node's loggers over HTTP, and by `raftctl loggers` (row O3)."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientSession, web

from raftctl.admin import LoggersApi
from raftctl.cli.main import BAD_INPUT, FAILED, run
from raftctl.loggers import LOGGERS, Level, LogLevels
from raftctl.runtime.real import make_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.req("O3")

PATH = "/api/v1/loggers"


class Served:
    """A node's log at INFO, whose levels are served."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        self.log = make_log(self.written, "info")
        self.levels = LogLevels.of(self.log)
        self.address = ""

    async def ask(self, method: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        async with (
            ClientSession() as session,
            session.request(method, f"http://{self.address}{PATH}", data=body) as answer,
        ):
            return answer.status, await answer.json()


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    node = Served()
    app = web.Application()
    app.add_routes(LoggersApi(7, node.log).routes())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    node.address = f"{host}:{port}"
    try:
        yield node
    finally:
        await runner.cleanup()


async def test_levels_are_shown_and_changed() -> None:
    async with served() as node:
        status, answer = await node.ask("GET")
        assert (status, answer["node_id"]) == (200, 7)
        assert answer["loggers"] == dict.fromkeys(LOGGERS, "INFO")
        body = json.dumps({"set": {"raftctl": "DEBUG", "raftctl.rpc": "ERROR"}})
        status, answer = await node.ask("PUT", body)
        assert (status, answer["loggers"]["raftctl.quorum"]) == (200, "DEBUG")
        log = node.log.bind(logger="raftctl.quorum")
        log.debug("shown")
        body = json.dumps({"unset": ["raftctl", "raftctl.rpc"]})
        assert (await node.ask("PUT", body))[1]["loggers"]["raftctl.rpc"] == "INFO"
        log.debug("hidden")
        written = node.written.getvalue()
        assert '"shown"' in written
        assert "hidden" not in written


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("no json", "INVALID_REQUEST", "the body must be"),
        ("[]", "INVALID_REQUEST", "the body must be"),
        ("{}", "INVALID_REQUEST", "the body must be"),
        ('{"set": {"root": 1}}', "INVALID_REQUEST", "the body must be"),
        ('{"set": {"root": "INFO"}, "more": 1}', "INVALID_REQUEST", "the body must be"),
        ('{"set": {"raftctl": "INFO"}, "unset": ["raftctl"]}', "INVALID_REQUEST", "the body must"),
        ('{"set": {"root": "DEBUG", "raftctl": "LOUD"}}', "INVALID_CONFIG", "LOUD is no level"),
        ('{"set": {"root": "DEBUG", "raft": "INFO"}}', "INVALID_CONFIG", "Logger raft does not"),
        ('{"set": {"raftctl": "DEBUG"}, "unset": ["root"]}', "INVALID_REQUEST", "not allowed"),
    ],
)
async def test_what_cannot_be_changes_nothing(body: str, error: str, words: str) -> None:
    async with served() as node:
        status, answer = await node.ask("PUT", body)
        assert (status, answer["error"]) == (400, error)
        assert words in answer["message"]
        assert set(node.levels.all().values()) == {Level.INFO}


async def test_the_command_asks_each_controller(capsys: pytest.CaptureFixture[str]) -> None:
    async def raftctl(*arguments: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(run, ["loggers", *arguments])
        out, err = capsys.readouterr()
        return status, out, " ".join(err.split())

    async with served() as one, served() as two:
        both = ("--controllers", f"{one.address},{two.address}")
        status, out, err = await raftctl("alter", *both, "--set", "raftctl.quorum=DEBUG")
        assert (status, out) == (0, "altered raftctl.quorum at node 7, 7\n"), err
        for node in (one, two):
            assert node.levels.level("raftctl.quorum") is Level.DEBUG
        status, out, _ = await raftctl("describe", *both, "--output", "json")
        rows = json.loads(out)
        assert len(rows) == 2 * len(LOGGERS)
        assert {"node": 7, "logger": "raftctl.quorum", "level": "DEBUG"} in rows
        assert (await raftctl("alter", *both, "--unset", "raftctl.quorum"))[0] == 0
        assert one.levels.level("raftctl.quorum") is Level.INFO
        status, _, err = await raftctl("alter", *both, "--set", "nobody=INFO")
        assert status == FAILED
        assert "Logger nobody does not exist" in err
        for wrong in ((), ("--set", "root")):
            assert (await raftctl("alter", *both, *wrong))[0] == BAD_INPUT
    status, _, err = await raftctl("describe", *both)
    assert status == FAILED
    assert "no controller answers" in err
