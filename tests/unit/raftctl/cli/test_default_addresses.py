"""Where commands find a cluster of which nobody gave an address."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from raftctl.cli import _arguments as arguments
from raftctl.cli.main import BAD_INPUT, FAILED, run
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.layout import layout_to_json, make_layout
from tests.unit.broker.apis.controlled import listening

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("A1", "A2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, without a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(arguments.BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.delenv(arguments.CONTROLLERS_VARIABLE, raising=False)
    return tmp_path


def made(folder: Path, broker_port: int) -> None:
    """What `raftctl up` leaves in the folder, as far as it is looked at."""
    directory = folder / arguments.DEFAULT_DIRECTORY
    directory.mkdir()
    layout = make_layout("7XUXvYGvQ5CD_zZCvkGlmw", [2], [broker_port, 1], {})
    (directory / "cluster.json").write_text(json.dumps(layout_to_json(layout)))


def listed() -> int:
    return run(["topics", "list", "--timeout", "5"])


async def test_the_cluster_of_the_working_folder_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with listening() as broker:
        made(folder, int(broker.address.rpartition(":")[2]))
        assert await asyncio.to_thread(listed) == BAD_INPUT
        assert "no broker of ./raftctl-cluster runs: raftctl up starts" in capsys.readouterr().err
        monkeypatch.setattr(LocalCluster, "is_running", lambda *_: True)
        assert await asyncio.to_thread(listed) == 0, capsys.readouterr().err


async def test_the_environment_names_a_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with listening() as broker:
        made(folder, 1)
        monkeypatch.setenv(arguments.BOOTSTRAP_VARIABLE, broker.address)
        assert await asyncio.to_thread(listed) == 0, capsys.readouterr().err


def test_without_any_address_the_ways_to_give_one_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, told in [
        (["topics", "list"], "--bootstrap-server: name at least one host:port, or set RAFTCTL_"),
        (["quorum", "describe"], "--controllers: name at least one host:port, or set RAFTCTL_"),
    ]:
        assert run(command) == BAD_INPUT
        assert told in capsys.readouterr().err
    monkeypatch.setenv(arguments.CONTROLLERS_VARIABLE, "127.0.0.1:1")
    assert run(["quorum", "describe", "--timeout", "1"]) == FAILED
    assert "no controller answers at 127.0.0.1:1" in capsys.readouterr().err


def test_a_host_without_an_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--bootstrap-server", "no-host.invalid:9092"]) == BAD_INPUT
    assert "--bootstrap-server no-host.invalid:9092: no such host" in capsys.readouterr().err


def test_help_says_where_addresses_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    for command, variable in [
        (["topics", "list"], arguments.BOOTSTRAP_VARIABLE),
        (["kv", "list"], arguments.CONTROLLERS_VARIABLE),
    ]:
        assert run([*command, "--help"]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert variable in told
        assert arguments.ADDRESSES_DEFAULT in told
