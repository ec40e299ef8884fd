"""The commands of keys and values: what they print, what they refuse, how they hold a lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli import kv
from raftctl.cli._controllers import Controllers
from raftctl.cli._output import Output
from raftctl.cli.main import run
from raftctl.client import Client, Event, Holder
from raftctl.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.req("Q10", "A1")

AT = ("--controllers", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("put", "k", "v", "--fence", "1"), "--lock and --fence go together"),
        (("delete", "k", "--lock", "l"), "--lock and --fence go together"),
        (("elect", "e"), "VALUE of a candidate, or --listen"),
        (("elect", "e", "me", "--listen"), "VALUE of a candidate, or --listen"),
        (("list", "\udcff"), "UTF-8"),
    ],
)
def test_bad_arguments_are_told(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kv", *arguments, *AT]) == 2
    assert told in capsys.readouterr().err


def test_addresses_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "list", "--controllers", "nowhere"]) == 2
    assert "host:port" in capsys.readouterr().err


def test_lines_for_people_and_programs() -> None:
    put, removed = Event("k", b"\xff", 7), Event("k", None, 8)
    assert kv._event_line(put, Output.TABLE) == "7 put k \\xff"
    assert kv._event_line(removed, Output.TABLE) == "8 delete k"
    assert kv._event_line(put, Output.JSON) == (
        '{"type": "put", "key": "k", "version": 7, "value_base64": "/w=="}'
    )
    assert kv._event_line(removed, Output.JSON) == ('{"type": "delete", "key": "k", "version": 8}')
    assert kv._holder_line(Holder(7, "s", b"me"), Output.TABLE) == "7 me"
    assert kv._holder_line(None, Output.JSON) == "{}"


class FakeLock:
    """A lock that is held until the test takes it away."""

    name = "l"
    token = 7

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.released = False

    async def run(self, *command: str) -> int:
        lock: Any = self
        return await kv._run_command(lock, command)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[FakeLock]:
    """The locks that were held."""
    made: list[FakeLock] = []

    @contextlib.asynccontextmanager
    async def hold(client: Client, name: str, **_: object) -> AsyncIterator[FakeLock]:
        lock = FakeLock()
        made.append(lock)
        try:
            yield lock
        finally:
            lock.released = True

    monkeypatch.setattr(Client, "lock", hold)
    monkeypatch.setattr(Controllers, "ask", lambda *_: None)
    return made


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_a_command_runs_under_the_lock_and_tells_its_status(
    held: list[FakeLock], tmp_path: Path, script: str, status: int
) -> None:
    told = tmp_path / "told"
    whole = f"echo $RAFTCTL_LOCK $RAFTCTL_LOCK_TOKEN > {told}; {script}"
    assert run(["kv", "lock", "l", *AT, "--", "sh", "-c", whole]) == status
    assert told.read_text() == "l 7\n"
    assert len(held) == 1


@pytest.mark.parametrize("ignored", [False, True])
async def test_a_command_is_stopped_when_the_lock_is_lost(
    ignored: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By force if it does not listen."""
    monkeypatch.setattr(kv, "STOP_GRACE_S", 0.2 if ignored else 60)
    lock = FakeLock()
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    command = (sys.executable, "-c", code) if ignored else ("sleep", "600")
    running = asyncio.ensure_future(lock.run(*command))
    await asyncio.sleep(0)
    lock.lost.set()
    with pytest.raises(KafkaError, match="l is lost"):
        await running
    assert "the command is stopped" in capsys.readouterr().err


async def test_a_command_that_cannot_start_is_bad_input() -> None:
    with pytest.raises(ConfigError, match="/nowhere: No such file"):
        await FakeLock().run("/nowhere")


def test_a_command_that_is_told_to_end_gives_the_lock_back(
    held: list[FakeLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(holding: kv.Holding, document: object, text: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(kv.Holding, "show", show)
    assert run(["kv", "lock", "l", *AT]) == 130
    assert held[0].released


def test_a_lock_that_is_lost_ends_the_command_that_holds_it(
    held: list[FakeLock], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[object] = []

    def show(holding: kv.Holding, document: object, text: str) -> None:
        said.append(document)
        held[-1].lost.set()

    monkeypatch.setattr(kv.Holding, "show", show)
    assert run(["kv", "lock", "l", *AT]) == 1
    assert said == [{"lock": "l", "token": 7}]
    assert "UNKNOWN_MEMBER_ID: l is lost" in capsys.readouterr().err
