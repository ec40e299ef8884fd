"""Clusters that a program of their owner breaks: what it is called with, what it must answer."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import struct
import sys
from typing import TYPE_CHECKING

import pytest

from jepsen.environments import ClusterSpec, external
from jepsen.environments.external import ExternalEnvironment
from jepsen.errors import InputError
from jepsen.history import Op, OpType
from jepsen.nemesis import Nemesis
from jepsen.nemesis.faults import kind_struck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.req("J2", "J5")
PROGRAM = """
import pathlib, sys
calls = sys.argv[1]
words = sys.argv[2:]
if words == ["nodes"]:
    print("controller c-1 101", "broker b-1 1", "broker b-2 2", sep="\\n")
elif words == ["pause", "b-2"]:
    sys.exit("trouble\\nb-2 cannot be paused")
else:
    with pathlib.Path(calls).open("a") as file:
        file.write(" ".join(words) + "\\n")
"""


def command(folder: Path, program: str = PROGRAM) -> str:
    """Of a program that writes down what it is called with."""
    path = folder / "breaker.py"
    path.write_text(program)
    return shlex.join([sys.executable, str(path), str(folder / "calls")])


def environment(control: str) -> ExternalEnvironment:
    return ExternalEnvironment(ClusterSpec(bootstrap_servers="h:1", control=control))


async def test_the_nemesis_has_the_program_break_the_nodes_it_names(tmp_path: Path) -> None:
    cluster = environment(command(tmp_path))
    assert (cluster.controllers, cluster.brokers) == (["c-1"], ["b-1", "b-2"])
    assert (cluster.broker_name(2), cluster.broker_name(101)) == ("b-2", None)
    nemesis = Nemesis(cluster, random.Random(0))
    killed = (await nemesis.invoke(Op(0, 0, "nemesis", OpType.INVOKE, "kill", "one"))).value
    await nemesis.invoke(Op(1, 0, "nemesis", OpType.INVOKE, "start"))
    await cluster.terminate("b-1")
    await cluster.resume("b-2")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"kill {killed[0]}", f"start {killed[0]}", "stop b-1", "resume b-2"]


async def test_what_the_program_could_not_do_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pause b-2: b-2 cannot be paused"):
        await environment(command(tmp_path)).pause("b-2")


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('broker b-1')", "write `controller NAME ID`"),
        ("print('controller c-1 101')", "no line `broker NAME ID`"),
        ("raise SystemExit('no such cluster')", "no such cluster"),
    ],
)
def test_a_program_that_names_no_nodes_is_refused(tmp_path: Path, program: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        environment(command(tmp_path, program))


@pytest.mark.parametrize("control", ["/no/such/program", " ", "an 'open quote"])
def test_what_is_no_program_is_refused(control: str) -> None:
    with pytest.raises(InputError, match="--control"):
        environment(control)


class Broker:
    """Answers ApiVersions requests, until the file with what was called says it is struck."""

    def __init__(self, calls: Path, effective: tuple[str, ...]) -> None:
        self._calls = calls
        self._effective = effective

    def _last(self) -> str:
        called = self._calls.read_text().split() if self._calls.exists() else []
        return next((word for word in reversed(called) if word in self._effective), "")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                match self._last():
                    case "kill" | "stop":
                        break
                    case "pause":
                        continue
                # Correlation, no error, no versions.
                body = request[4:8] + struct.pack(">hi", 0, 0)
                writer.write(struct.pack(">i", len(body)) + body)
        writer.close()


@contextlib.asynccontextmanager
async def one_broker(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *effective: str
) -> AsyncIterator[ExternalEnvironment]:
    """A cluster in which only those words of the program have an effect."""
    monkeypatch.setattr(external, "GRACE_S", 0.1)
    monkeypatch.setattr(external, "SILENCE_S", 0.3)
    program = PROGRAM.replace(
        '"controller c-1 101", "broker b-1 1", "broker b-2 2"', '"broker b-1 1"'
    )
    broker = Broker(folder / "calls", effective)
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]

        async def addresses(_: str) -> dict[int, tuple[str, int]]:
            return {1: ("127.0.0.1", port)}

        monkeypatch.setattr(external, "broker_addresses", addresses)
        yield environment(command(folder, program))


@pytest.mark.parametrize("fault", ["kill", "pause", "restart"])
async def test_a_program_that_does_nothing_strikes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with one_broker(tmp_path, monkeypatch) as cluster:
        nemesis = Nemesis(cluster, random.Random(0))
        op = Op(0, 0, "nemesis", OpType.INVOKE, fault, "one")
        done = await nemesis.invoke(op)
    ended = Op(1, 0, "nemesis", done.type, fault, done.value, None, done.error)
    assert kind_struck(ended) == ""
    assert done.error is not None
    assert "b-1: --control reports success, but the broker still answers" in done.error
    undone = "resume" if fault == "pause" else "start"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == f"{undone} b-1"


@pytest.mark.parametrize("fault", ["kill", "pause", "restart"])
async def test_a_program_that_stops_the_broker_strikes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with one_broker(tmp_path, monkeypatch, "kill", "stop", "pause") as cluster:
        nemesis = Nemesis(cluster, random.Random(0))
        done = await nemesis.invoke(Op(0, 0, "nemesis", OpType.INVOKE, fault, "one"))
    assert (done.value, done.error) == (["b-1"], None)


async def test_a_broker_that_never_answered_shows_nothing() -> None:
    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(deaf, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        assert await external.Witness.open("127.0.0.1", port) is None
