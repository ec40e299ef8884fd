"""`--command-config`: commands log in to a secured broker, by each library that they use."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import BAD_INPUT, FAILED, run
from tests.kit.certificates import Authority
from tests.kit.issuer import issuing
from tests.unit.broker.server.fakes import FakeBroker, running_with
from tests.unit.broker.server.sasl import KEYS, add_user, by_token, with_tokens

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("S7")

PASSWORD = "alice-secret"
"""Of PLAIN in KEYS as well."""
STORE_PASSWORD = "of-the-store"
_MODULES = "org.apache.kafka.common.security"
MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}
TIMEOUT_S = "5"
LIBRDKAFKA = ("topics", "list", "--timeout", TIMEOUT_S)
KAFKA_PYTHON = ("transactions", "list", "--timeout", TIMEOUT_S)
GROUPS = ("groups", "list", "--timeout", TIMEOUT_S)
CONSOLE = ("console", "consume", "--topic", "t")
ENCRYPTED = {
    **KEYS,
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
}


def login(mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
    """The keys of alice."""
    options = f'username="alice" password="{password}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_MODULES}.{MODULES[mechanism]} required {options};",
    }


def written(path: Path, keys: dict[str, str]) -> tuple[str, str]:
    """The option with a file that has the keys."""
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return "--command-config", str(path)


async def raftctl(broker: FakeBroker, *arguments: str) -> int:
    """The exit status of a command in another thread."""
    return await asyncio.to_thread(run, [*arguments, "--bootstrap-server", broker.address])


def names(broker: FakeBroker) -> set[str]:
    """Whose requests were served."""
    return {str(one.connection.principal) for one in broker.contexts}


@pytest.mark.parametrize("command", [LIBRDKAFKA, KAFKA_PYTHON])
@pytest.mark.parametrize("mechanism", MODULES)
async def test_commands_log_in(tmp_path: Path, mechanism: str, command: tuple[str, ...]) -> None:
    option = written(tmp_path / "client.properties", login(mechanism))
    async with running_with(KEYS, "t") as broker:
        add_user(broker, "SCRAM-SHA-512", "alice", PASSWORD)
        assert await raftctl(broker, *command, *option) == 0
        assert "User:alice" in names(broker)


@pytest.mark.parametrize("command", [LIBRDKAFKA, KAFKA_PYTHON])
async def test_commands_log_in_by_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with issuing({"alice": PASSWORD}) as issuer:
        option = written(tmp_path / "good.properties", by_token("alice", PASSWORD, issuer))
        wrong = written(tmp_path / "wrong.properties", by_token("alice", "not-hers", issuer))
        async with running_with(with_tokens(issuer), "t") as broker:
            assert await raftctl(broker, *command, *option) == 0
            assert "User:alice" in names(broker)
            assert await raftctl(broker, *command, *wrong) == FAILED
            gc.collect()
    assert "not-hers" not in capsys.readouterr().err


async def test_a_secret_is_not_sent_in_the_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with issuing({}) as issuer:
        keys = by_token("alice", PASSWORD, issuer)
    keys["sasl.oauthbearer.token.endpoint.url"] = "http://login.example.org/token"
    option = written(tmp_path / "client.properties", keys)
    for command in (LIBRDKAFKA, KAFKA_PYTHON):
        assert run([*command, *option, "--bootstrap-server", "127.0.0.1:1"]) == BAD_INPUT
        assert "token.endpoint.url=http://login" in capsys.readouterr().err


async def test_clients_log_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = written(tmp_path / "client.properties", login())
    load = ("--topic", "t", "--num-records", "10", *option, "--output", "json")
    async with running_with(KEYS, "t") as broker:
        assert await raftctl(broker, "bench", "produce", *load, "--record-size", "10") == 0
        assert json.loads(capsys.readouterr().out)["records"] == 10
        assert await raftctl(broker, "bench", "consume", *load) == 0
        assert json.loads(capsys.readouterr().out)["records"] == 10
        reading = ("--topic", "t", "--from-beginning", "--max-messages", "10", *option)
        assert await raftctl(broker, "console", "consume", *reading) == 0
        assert len(capsys.readouterr().out.splitlines()) == 10


@pytest.mark.parametrize("command", [LIBRDKAFKA, KAFKA_PYTHON, GROUPS, CONSOLE])
async def test_wrong_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    option = written(tmp_path / "client.properties", login(password="not-hers"))
    async with running_with(KEYS, "t") as broker:
        assert await raftctl(broker, *command, *option) == FAILED
        gc.collect()
    error = capsys.readouterr().err
    assert "SASL_AUTHENTICATION_FAILED: " in error
    assert "not-hers" not in error


@pytest.mark.parametrize("command", [LIBRDKAFKA, KAFKA_PYTHON])
@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
async def test_commands_speak_tls(tmp_path: Path, kind: str, command: tuple[str, ...]) -> None:
    authority = Authority()
    alice = authority.issue("alice")
    listener = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().store(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(tmp_path / "ca.pem"),
        "ssl.client.auth": "required",
    }
    keys = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": listener["ssl.truststore.location"],
        "ssl.keystore.type": kind,
    }
    if kind == "PEM":
        keys["ssl.keystore.location"] = alice.store(tmp_path / "alice.pem", STORE_PASSWORD)
        keys["ssl.key.password"] = STORE_PASSWORD
    else:
        keys["ssl.keystore.location"] = alice.pkcs12(tmp_path / "alice.p12", STORE_PASSWORD)
        keys["ssl.keystore.password"] = STORE_PASSWORD
    async with running_with(listener, "t") as broker:
        assert await raftctl(broker, *command, *written(tmp_path / "client", keys)) == 0
        assert names(broker) == {"User:CN=alice,O=Test"}


@pytest.mark.parametrize("command", [LIBRDKAFKA, KAFKA_PYTHON])
async def test_name_of_the_server_is_checked(tmp_path: Path, command: tuple[str, ...]) -> None:
    authority = Authority()
    stranger = authority.issue(hosts=("elsewhere.example.org",))
    listener = ENCRYPTED | {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": stranger.store(tmp_path / "node.pem"),
    }
    keys = login() | {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(tmp_path / "ca.pem"),
    }
    unchecked = keys | {"ssl.endpoint.identification.algorithm": ""}
    async with running_with(listener, "t") as broker:
        option = written(tmp_path / "checked", keys)
        assert await raftctl(broker, *command, *option) == FAILED
        with warnings.catch_warnings():
            # kafka-python does not close what fails in its handshake.
            warnings.simplefilter("ignore")
            gc.collect()
        assert await raftctl(broker, *command, *written(tmp_path / "unchecked", unchecked)) == 0
        assert "User:alice" in names(broker)


def test_a_key_without_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    option = written(path, {"ssl.truststore.location": "/ca.pem"})
    for command in (LIBRDKAFKA, KAFKA_PYTHON):
        assert run([*command, *option, "--bootstrap-server", "127.0.0.1:1"]) == BAD_INPUT
        error = capsys.readouterr().err
        assert f"--command-config {path}: ssl.truststore.location" in error


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    option = ("--command-config", "/nowhere/client.properties")
    assert run([*LIBRDKAFKA, *option, "--bootstrap-server", "127.0.0.1:1"]) == BAD_INPUT
    assert "No such file or directory" in capsys.readouterr().err
