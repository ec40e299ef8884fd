"""A cluster that asks for a login: how the harness reaches it, by each library of its clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.cli._options import rerun_command
from jepsen.core.spec import RunSpec
from jepsen.environments import ClusterSpec, Entrance
from jepsen.environments.external import (
    ExternalEnvironment,
    Witness,
    answers_kafka,
    broker_addresses,
    check_cluster,
    entrance_of,
)
from jepsen.environments.raftctl import read_login
from jepsen.errors import InputError
from jepsen.workloads import WorkloadOptions
from jepsen.workloads.sessions import session
from tests.kit.certificates import Authority
from tests.kit.issuer import issuing
from tests.unit.broker.server.fakes import running_with
from tests.unit.broker.server.sasl import KEYS, add_user, by_token, with_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("S7")

PASSWORD = "alice-secret"
"""Of PLAIN in KEYS as well."""
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def written(folder: Path, keys: dict[str, str]) -> str:
    """The path of a file that has the keys."""
    path = folder / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def login(password: str = PASSWORD) -> dict[str, str]:
    """The keys of alice."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
    }


def names(broker: FakeBroker) -> set[str]:
    """Whose requests were served."""
    return {str(one.connection.principal) for one in broker.contexts}


@pytest.mark.parametrize("library", ["aiokafka", "librdkafka"])
async def test_sessions_log_in(tmp_path: Path, library: str) -> None:
    path = written(tmp_path, login())
    async with running_with(KEYS, "t") as broker:
        spec = ClusterSpec(bootstrap_servers=broker.address, command_config=path)
        environment = ExternalEnvironment(spec)
        asked = session(environment, WorkloadOptions(topic="t", client=library))
        try:
            assert await asked.send("0", b"value") == 0
            assert await asked.ends(["0"], committed_only=False) == {"0": 1}
        finally:
            await asked.close()
        assert "User:alice" in names(broker)


@pytest.mark.parametrize("library", ["aiokafka", "librdkafka"])
async def test_sessions_log_in_by_a_token(tmp_path: Path, library: str) -> None:
    with issuing({"alice": PASSWORD}) as issuer:
        path = written(tmp_path, by_token("alice", PASSWORD, issuer))
        async with running_with(with_tokens(issuer), "t") as broker:
            spec = ClusterSpec(bootstrap_servers=broker.address, command_config=path)
            options = WorkloadOptions(topic="t", client=library)
            asked = session(ExternalEnvironment(spec), options)
            try:
                assert await asked.send("0", b"value") == 0
            finally:
                await asked.close()
            assert "User:alice" in names(broker)


async def test_a_cluster_is_checked_with_the_login(tmp_path: Path) -> None:
    async with running_with(KEYS, "t") as broker:
        entrance = entrance_of(broker.address, written(tmp_path, login()))
        await check_cluster(entrance, "new", keys=1, replication=1)
        assert "User:alice" in names(broker)
        assert await broker_addresses(entrance)
        wrong = entrance_of(broker.address, written(tmp_path, login("not-hers")))
        with pytest.raises(InputError, match="the cluster does not serve") as caught:
            await check_cluster(wrong, "new", keys=1, replication=1)
        assert "not-hers" not in str(caught.value)


async def test_a_cluster_is_watched_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    listener = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().store(tmp_path / "node.pem"),
    }
    keys = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(tmp_path / "ca.pem"),
    }
    async with running_with(listener, "t") as broker:
        entrance = entrance_of(broker.address, written(tmp_path, keys))
        await check_cluster(entrance, "new", keys=1, replication=1)
        assert entrance.login is not None
        host, _, port = broker.address.rpartition(":")
        assert await Witness.open(host, int(port)) is None
        witness = await Witness.open(host, int(port), read_login(written(tmp_path, keys)))
        assert witness is not None
        await witness.close()
        with pytest.raises(InputError, match="no broker answers"):
            await check_cluster(Entrance(broker.address), "new", keys=1, replication=1)


def test_a_run_is_repeated_with_the_login() -> None:
    spec = RunSpec("queue", "external", bootstrap_servers="h:1", command_config="client.properties")
    assert "--command-config client.properties" in rerun_command(spec)
    assert RunSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_broker_is_watched_by_who_logs_in(tmp_path: Path, mechanism: str) -> None:
    module = MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    keys = {
        **login(),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";',
    }
    async with running_with(KEYS, "t") as broker:
        add_user(broker, "SCRAM-SHA-512", "alice", PASSWORD)
        host, _, port = broker.address.rpartition(":")
        known = read_login(written(tmp_path, keys))
        witness = await Witness.open(host, int(port), known)
        assert witness is not None
        for _ in range(3):
            assert await answers_kafka(witness._reader, witness._writer, 10)
        await witness.close()
        wrong = {**keys, "sasl.jaas.config": keys["sasl.jaas.config"].replace(PASSWORD, "wrong")}
        unknown = read_login(written(tmp_path, wrong))
        assert await Witness.open(host, int(port), unknown) is None


async def test_faults_are_watched_where_clients_log_in(tmp_path: Path) -> None:
    path = written(tmp_path, login())
    spec = ClusterSpec(bootstrap_servers="h:1", control="breaker", command_config=path)
    with pytest.raises(InputError, match="breaker"):
        await asyncio.to_thread(ExternalEnvironment, spec)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({**login(), "acks": "all"}, "acks: it has no effect"),
        ({**login(), "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI"),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": "/nowhere/ca.pem",
            },
            "ssl.truststore.location",
        ),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, keys: dict[str, str], error: str) -> None:
    path = written(tmp_path, keys)
    with pytest.raises(InputError) as caught:
        entrance_of("h:1", path)
    assert str(caught.value).startswith(f"--command-config {path}: ")
    assert error in str(caught.value)
    assert PASSWORD not in str(caught.value)
