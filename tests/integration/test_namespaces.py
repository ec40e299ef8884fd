"""Nodes in network namespaces: real silence, real loss, and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from jepsen.cli.main import run
from jepsen.environments import Quality
from jepsen.environments.local.namespaces import NamespaceNetwork, check_means, device_of, owner
from jepsen.errors import ClusterError, InputError
from jepsen.nemesis.plan import PACKAGES
from raftctl.localcluster.layout import LocalNode
from raftctl.localcluster.processes import ProcessRef, wait_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

try:
    check_means()
except InputError as lacking:
    pytest.skip(str(lacking), allow_module_level=True)

A, B = "broker-1", "broker-2"
DELAY_MS = 100.0
ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 9092))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    while got := connection.recv(100):
        connection.sendall(got)
"""
ASKS = """
import select, socket, struct, sys, time

def tries(connection):
    # struct tcp_info: tcpi_state, tcpi_ca_state, tcpi_retransmits
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)[2]

def silent(connection):
    while tries(connection) < 1:
        readable, _, failed = select.select([connection], [], [connection], 0.01)
        if readable or failed:
            return False
    return True

address = (sys.argv[1], 9092)
old = socket.create_connection(address)
for line in sys.stdin:
    match line.strip():
        case "echo":
            began = time.monotonic()
            old.sendall(b"?")
            assert old.recv(1) == b"?"
            print(time.monotonic() - began, flush=True)
        case "send":
            old.sendall(b"!")
            print(silent(old), flush=True)
        case "connect":
            new = socket.socket()
            new.setblocking(False)
            assert new.connect_ex(address) != 0
            print(silent(new), flush=True)
        case "healed":
            assert old.recv(1) == b"!"
            select.select([], [new], [])
            print(new.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0, flush=True)
"""
KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from jepsen.environments.local.namespaces import NamespaceNetwork
from raftctl.localcluster.layout import LocalNode
network = NamespaceNetwork()
network.prepare([LocalNode("broker-1", 1, "broker", 1, *network.hosts(1))], Path())
node = subprocess.Popen([*network.prefix("broker-1"), "cat"], stdin=subprocess.PIPE)
print(node.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_of(pid: int) -> list[str]:
    """What there is of that process's network."""
    lines = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    device = Path("/sys/class/net") / device_of(pid)
    names = [line.split()[0] for line in lines.splitlines()]
    return [name for name in names if owner(name) == pid] + [device.name] * device.exists()


async def start(network: NamespaceNetwork, node: str, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *network.prefix(node),
        sys.executable,
        "-S",
        "-c",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def ask(process: asyncio.subprocess.Process, word: str) -> str:
    """A process's answer to a line."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
    return await answer(process)


async def answer(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[NamespaceNetwork, Sequence[str]]]:
    network = NamespaceNetwork()
    hosts = network.hosts(2)
    nodes = [
        LocalNode(name, number, "broker", 9092, hosts[number]) for number, name in enumerate([A, B])
    ]
    try:
        network.prepare(nodes, Path())
        await network.open(dict)
        yield network, hosts
        await network.close()
    finally:
        network.remove()


@pytest.mark.req("J2")
async def test_a_cut_link_is_silent_and_a_slow_one_late() -> None:
    async with two_nodes() as (network, hosts):
        server = await start(network, B, ECHO, hosts[1])
        assert await answer(server) == "listens"
        client = await start(network, A, ASKS, hosts[1])
        assert float(await ask(client, "echo")) >= 0
        await network.set_quality({(A, B): Quality(delay_ms=DELAY_MS)})
        assert float(await ask(client, "echo")) >= DELAY_MS / 1000
        await network.set_quality({})
        await network.set_blocked([(A, B)])
        assert await ask(client, "send") == "True"
        assert await ask(client, "connect") == "True"
        await network.set_blocked([])
        assert await ask(client, "healed") == "True"
        for process in (client, server):
            process.kill()
            await process.communicate()
    assert left_of(os.getpid()) == []


@pytest.mark.req("J2")
def test_the_leader_in_its_namespace_is_cut_off_and_clients_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only = replace(PACKAGES["partition"], kinds=("isolate-leader",))
    monkeypatch.setitem(PACKAGES, "partition", only)
    options = "--network namespaces --brokers 1 --nemesis partition --output json"
    pace = "--time-limit 4 --interval 1 --rate 20 --concurrency 4"
    words = [*options.split(), *pace.split(), "--store", str(tmp_path)]
    run(["test", "register", *words])
    found = json.loads(capsys.readouterr().out)
    assert found["checkers"]["linearizable"]["valid"] is True, found
    folder = tmp_path / "latest"
    assert '["isolate-leader",[["controller-10' in (folder / "history.jsonl").read_text()
    assert "--network namespaces" in json.loads((folder / "test.json").read_text())["command"]
    properties = (folder / "nodes" / "broker-1" / "node.properties").read_text()
    assert "listeners=PLAINTEXT://198." in properties
    assert left_of(os.getpid()) == []


@pytest.mark.req("J2")
def test_nothing_is_left_of_a_network_that_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        assert left_of(os.getpid())
        raise ClusterError("no more devices")

    monkeypatch.setattr(NamespaceNetwork, "_make_detour", refuse)
    words = ["test", "register", "--network", "namespaces", "--store", str(tmp_path)]
    assert run(words) == 255
    assert "no more devices" in capsys.readouterr().err
    assert left_of(os.getpid()) == []


@pytest.mark.req("J2")
def test_what_a_killed_harness_left_is_swept_with_its_nodes() -> None:
    harness = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    node, _ = harness.communicate()
    assert left_of(harness.pid)
    process = ProcessRef(int(node), psutil.Process(int(node)).create_time())
    NamespaceNetwork()
    assert left_of(harness.pid) == []
    assert wait_gone([process], 30) == []
