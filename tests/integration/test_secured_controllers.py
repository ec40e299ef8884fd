"""Controllers that nodes and operators log in to over TLS: real processes and commands (S6, S7)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli.main import BAD_INPUT, FAILED, run
from raftctl.config import write_properties
from tests.integration.clusters import add_keys, running_cluster, wait_until
from tests.kit.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
WORDS = {"node": "of-node", "admin": "of-admin", "ann": "of-ann"}
USERS = " ".join(f'user_{name}="{word}"' for name, word in WORDS.items())
LOGIN = f'{MODULE} required username="node" password="{WORDS["node"]}" {USERS};'


def secured(folder: Path) -> dict[str, str]:
    """The keys of each node, with certificates in a folder."""
    authority = Authority()
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,HTTP:PLAINTEXT,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": LOGIN,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().store(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(folder / "ca.pem"),
        "authorizer.class.name": "standard",
        "super.users": "User:node;User:admin;User:ANONYMOUS",
    }


def properties(folder: Path, user: str, *, word: str = "", protocol: str = "SASL_SSL") -> str:
    """The path of a file by which commands log in."""
    own = f'username="{user}" password="{word or WORDS[user]}"'
    keys = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"{MODULE} required {own};",
    }
    if protocol == "SASL_SSL":
        keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{folder}/ca.pem"}
    path = folder / f"{user}{len(word)}{protocol}.properties"
    path.write_text(write_properties(keys))
    path.chmod(0o600)
    return str(path)


class Operator:
    """Somebody who runs commands on the controllers."""

    def __init__(
        self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str], file: str
    ) -> None:
        self._where = (
            *("--controllers", ",".join(node.address for node in cluster.layout.controllers)),
            *("--command-config", file),
        )
        self._capsys = capsys

    def run(self, *arguments: str) -> int:
        return run([*arguments, *self._where])

    def output(self, *arguments: str) -> Any:
        self._capsys.readouterr()
        status = self.run(*arguments, "--output", "json")
        captured = self._capsys.readouterr()
        assert status == 0, captured.err
        return json.loads(captured.out)

    def error(self, *arguments: str) -> str:
        """The sentence of a command that fails."""
        self._capsys.readouterr()
        assert self.run(*arguments) in (FAILED, BAD_INPUT)
        return self._capsys.readouterr().err


@pytest.mark.req("S2", "S3", "S6", "S7")
@pytest.mark.timeout(300)
def test_nodes_and_operators_log_in_to_controllers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    keys = secured(folder)
    with running_cluster(tmp_path / "cluster", 3, 1) as cluster:
        for node in cluster.layout.nodes:
            cluster.kill(node)
            add_keys(cluster, node, keys)
        for node in cluster.layout.nodes:
            cluster.start(node)
        admin = Operator(cluster, capsys, properties(folder, "admin"))
        ann = Operator(cluster, capsys, properties(folder, "ann"))
        wait_until(
            lambda: (
                admin.run("quorum", "describe") == 0
                and admin.output("quorum", "describe")["CurrentObservers"]
            ),
            "the broker follows the quorum",
        )
        # Keys: nobody but super users, then those whom a rule allows.
        assert admin.run("kv", "put", "app/one", "1") == 0
        assert "User:ann may not READ the key app/one" in ann.error("kv", "get", "app/one")
        rule = ("--principal", "User:ann", "--prefix", "app/", "--operation", "read")
        assert "may not ALTER the cluster" in ann.error("kv", "allow", *rule)
        assert admin.run("kv", "allow", *rule) == 0
        assert ann.output("kv", "get", "app/one")["value"] == "1"
        assert "may not WRITE the key app/one" in ann.error("kv", "put", "app/one", "2")
        assert [one["key"] for one in ann.output("kv", "list", "app/")["keys"]] == ["app/one"]
        assert "may not READ all keys" in ann.error("kv", "list")
        assert [one["prefix"] for one in admin.output("kv", "rules")["rules"]] == ["app/"]
        assert len(admin.output("kv", "revoke", "--principal", "User:ann")["rules"]) == 1
        assert "may not READ" in ann.error("kv", "get", "app/one")
        # Metadata and the quorum: for who may describe and alter the cluster.
        assert "controllers" in " ".join(admin.output("metadata", "shell", "ls", "/"))
        assert "CLUSTER_AUTHORIZATION_FAILED" in ann.error("metadata", "shell", "ls", "/")
        (other, *_) = [
            one["id"]
            for one in admin.output("quorum", "describe")["CurrentVoters"]
            if one["id"] != admin.output("quorum", "describe")["LeaderId"]
        ]
        assert "may not" in ann.error("quorum", "transfer", "--to", str(other))
        assert admin.run("quorum", "transfer", "--to", str(other)) == 0
        assert admin.output("quorum", "describe")["LeaderId"] == other
        assert admin.run("status") == 0
        # Who may not come in.
        wrong = Operator(cluster, capsys, properties(folder, "admin", word="wrong"))
        assert "SASL_AUTHENTICATION_FAILED" in wrong.error("quorum", "describe")
        assert "SASL_AUTHENTICATION_FAILED" in wrong.error("kv", "get", "app/one")
        assert "SASL_AUTHENTICATION_FAILED" in wrong.error("status")
        plain = Operator(cluster, capsys, properties(folder, "admin", protocol="SASL_PLAINTEXT"))
        assert "--command-config" in plain.error("quorum", "describe")
