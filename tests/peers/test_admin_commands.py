"""The commands of administrators on Apache Kafka: they ask for nothing that only we have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from raftctl.cli.main import FAILED, run
from tests.integration.clusters import wait_until
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Raftctl = Callable[..., Any]

pytestmark = [
    pytest.mark.req("A1", "A3"),
    pytest.mark.timeout(2 * INSTALL_TIMEOUT_S),
    pytest.mark.xdist_group("apache_kafka"),
]


@pytest.fixture
def raftctl(apache_kafka: str, capsys: pytest.CaptureFixture[str]) -> Raftctl:
    """Runs a command; what it printed, or if another status is expected, its complaint."""

    def run_command(*arguments: str, status: int = 0) -> Any:
        capsys.readouterr()
        command = [*arguments, "--bootstrap-server", apache_kafka, "--output", "json"]
        ended = run(command)
        told = capsys.readouterr()
        assert ended == status, told
        return json.loads(told.out) if status == 0 else told.err

    return run_command


def test_topics_and_partitions(raftctl: Raftctl, apache_kafka: str, tmp_path: Path) -> None:
    shape = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=-1")
    assert raftctl("topics", "create", "t", *shape) == {"created": "t"}
    # Apache Kafka's brokers hear of what the controller has done a moment later.
    created = {"topic": "t", "partitions": 2}
    wait_until(lambda: created in raftctl("topics", "list"), "the topic is listed")
    assert raftctl("partitions", "add", "t", "--partitions", "3")["partitions"] == 3
    wait_until(lambda: len(raftctl("topics", "describe", "t")["partitions"]) == 3, "3 partitions")
    producer = Producer({"bootstrap.servers": apache_kafka})
    for _ in range(5):
        producer.produce("t", b"x", partition=1)
    assert producer.flush(30) == 0
    listed = raftctl("partitions", "list", "--topic", "t", "--at-min-isr")
    assert [(one["partition"], one["leader"], one["isr"]) for one in listed] == [
        (number, 1, [1]) for number in range(3)
    ]
    for none in ("--under-replicated", "--offline", "--under-min-isr", "--not-preferred"):
        assert raftctl("partitions", "list", "--topic", "t", none) == []
    found = raftctl("partitions", "describe", "t:1")
    assert (found["leader"], found["replicas"], found["log_end_offset"]) == (1, [1], 5)
    wanted = tmp_path / "offsets.json"
    wanted.write_text('{"partitions": [{"topic": "t", "partition": 1, "offset": 3}]}')
    (deleted,) = raftctl("delete-records", "--offset-json-file", str(wanted))
    assert (deleted["low_watermark"], deleted["error"]) == (3, None)
    assert raftctl("partitions", "describe", "t:1")["log_start_offset"] == 3
    elected = raftctl("elect-leaders", "--partition", "t:0")
    assert [one["error"] for one in elected] == ["ELECTION_NOT_NEEDED"]
    plan = tmp_path / "plan.json"
    moves = [{"topic": "t", "partition": 0, "replicas": [1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = ("--reassignment-json-file", str(plan))
    assert raftctl("reassign-partitions", "--execute", *file)["rollback"]["partitions"] == moves
    wait_until(lambda: raftctl("reassign-partitions", "--list") == [], "no reassignment")
    (verified,) = raftctl("reassign-partitions", "--verify", *file)
    assert verified["status"] == "done"
    assert raftctl("topics", "delete", "t") == {"deleted": "t"}
    assert "UNKNOWN_TOPIC" in raftctl("topics", "delete", "t", status=FAILED)


def test_configs(raftctl: Raftctl) -> None:
    raftctl("topics", "create", "configured", "--replication-factor", "1")
    topic = ("--entity-type", "topic", "--entity-name", "configured")
    changes = ("--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    assert raftctl("configs", "alter", *topic, *changes)["altered"]
    expected = [("cleanup.policy", "delete,compact", "topic"), ("retention.ms", "5", "topic")]

    def found() -> list[tuple[str, str, str]]:
        # Others come from what the release sets for all brokers.
        entries = raftctl("configs", "describe", *topic)
        told = [(one["name"], one["value"], one["source"]) for one in entries]
        return [one for one in told if one[2] == "topic"]

    wait_until(lambda: found() == expected, "configs in force")
    wrong = ("--set", "retention.ms=x")
    assert "INVALID_CONFIG" in raftctl("configs", "alter", *topic, *wrong, status=FAILED)


def test_configs_of_all_brokers(raftctl: Raftctl) -> None:
    every = ("--entity-type", "brokers", "--entity-default")
    name = "log.cleaner.threads"
    assert raftctl("configs", "alter", *every, "--set", f"{name}=2")["altered"]

    def found() -> list[tuple[str, str]]:
        entries = raftctl("configs", "describe", *every)
        return [(one["value"], one["source"]) for one in entries if one["name"] == name]

    wait_until(lambda: found() == [("2", "all brokers")], "a config of all brokers")
    raftctl("configs", "alter", *every, "--delete", name)
    wait_until(lambda: not found(), "none of all brokers")
    read_only = ("--set", "node.id=7")
    raftctl("configs", "alter", *every, *read_only, status=FAILED)


def test_the_cluster(raftctl: Raftctl) -> None:
    assert len(raftctl("cluster-id")["cluster_id"]) == 22
    (broker,) = raftctl("brokers", "list")
    assert (broker["broker_id"], broker["fenced"]) == (1, False)
    (directory,) = raftctl("brokers", "log-dirs")
    assert (directory["error"], directory["broker_id"]) == (None, 1)
    features = {one["feature"]: one for one in raftctl("features", "describe")}
    metadata = features["metadata.version"]
    assert metadata["lowest"] <= metadata["level"] <= metadata["highest"]
    again = f"metadata.version={metadata['level']}"
    assert raftctl("features", "upgrade", "--feature", again, "--dry-run")["dry_run"]
    gone = raftctl("brokers", "unregister", "9", status=FAILED)
    assert "BROKER_ID_NOT_REGISTERED" in gone
    assert "broker 1 runs" in raftctl("brokers", "unregister", "1", status=FAILED)


def test_users_quotas_and_rules(raftctl: Raftctl, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("pencil")
    raftctl("users", "set", "alice", "--password-file", str(password))
    expected = [{"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    wait_until(lambda: raftctl("users", "list") == expected, "the user is there")
    raftctl("users", "delete", "alice", "--mechanism", "SCRAM-SHA-512")
    wait_until(lambda: raftctl("users", "list") == [], "the user is gone")
    both = ("--user", "alice", "--client-id-defaults")
    raftctl("quotas", "alter", *both, "--set", "producer_byte_rate=1000")
    entity = {"user": "alice", "client-id": None}
    quota = [{"entity": entity, "quotas": {"producer_byte_rate": 1000.0}}]
    wait_until(lambda: raftctl("quotas", "describe", "--user", "alice") == quota, "a quota")
    raftctl("quotas", "alter", *both, "--delete", "producer_byte_rate")
    wait_until(lambda: raftctl("quotas", "describe") == [], "no quota")
    # This cluster has no authorizer, which is what it says.
    assert "SECURITY_DISABLED" in raftctl("acls", "list", status=FAILED)
