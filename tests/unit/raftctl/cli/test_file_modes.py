"""Files with secrets: who may read those that are given, and those that are written (S6, S8)."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.files import read_config_file
from raftctl.cli.kafka.client_security import read_client_security
from raftctl.runtime.real import RealFileSystem

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("S6", "S8")

NODE = (
    "node.id=1\nprocess.roles=controller\nlog.dirs=/data\n"
    "listeners=CONTROLLER://127.0.0.1:9093\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
    "listener.security.protocol.map=CONTROLLER:SSL\n"
    "ssl.keystore.location=/etc/node.p12\n"
)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    f'sasl.jaas.config={MODULE} required username="a" password="hidden";\n'
)


def written(folder: Path, text: str, mode: int) -> str:
    path = folder / "a.properties"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("text", "mode", "is_warned"),
    [
        (f"{NODE}ssl.keystore.password=hidden\n", 0o644, True),
        (f"{NODE}ssl.keystore.password=hidden\n", 0o640, False),
        (f"{NODE}ssl.keystore.password=hidden\n", 0o600, False),
        (NODE, 0o644, False),
    ],
    ids=["all", "group", "user", "no secret"],
)
def test_a_configuration_with_secrets_that_all_may_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, mode: int, is_warned: bool
) -> None:
    path = written(tmp_path, text, mode)
    read_config_file(path)
    told = capsys.readouterr().err
    assert ("chmod 600" in told) == is_warned
    assert ("ssl.keystore.password" in told) == is_warned
    assert "hidden" not in told


def test_a_secret_of_the_command_line_is_not_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_config_file(written(tmp_path, NODE, 0o644), ["ssl.keystore.password=hidden"])
    assert "chmod" not in capsys.readouterr().err


@pytest.mark.parametrize(("mode", "is_warned"), [(0o644, True), (0o600, False), (0o640, False)])
def test_a_clients_file_that_all_may_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, is_warned: bool
) -> None:
    read_client_security(written(tmp_path, LOGIN, mode))
    told = capsys.readouterr().err
    assert ("chmod 600" in told) == is_warned
    assert "hidden" not in told


def test_a_clients_file_without_secrets_may_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_client_security(written(tmp_path, "security.protocol=PLAINTEXT\n", 0o644))
    assert capsys.readouterr().err == ""


def test_what_a_node_writes_is_for_its_user(tmp_path: Path) -> None:
    path = tmp_path / "log"
    RealFileSystem().open(str(path), create=True).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
