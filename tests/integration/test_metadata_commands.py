"""Keys and values, the quorum, the log and the metadata of a running cluster, from commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.cli.main import run
from tests.integration.clusters import active_controller, running_cluster, wait_until
from tests.integration.commands import ROOT, raftctl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster


HOLD = "echo $RAFTCTL_LOCK_TOKEN; exec sleep 600"


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """3 controllers, and a broker as their observer."""
    with running_cluster(tmp_path_factory.mktemp("nodes") / "cluster", brokers=1) as running:
        yield running


def at(cluster: LocalCluster) -> tuple[str, str]:
    return "--controllers", ",".join(node.address for node in cluster.layout.controllers)


def kv(cluster: LocalCluster, *words: str) -> Any:
    return raftctl("kv", *words, *at(cluster), "--output", "json").document


def refusal(cluster: LocalCluster, *words: str) -> str:
    done = raftctl("kv", *words, *at(cluster))
    assert (done.status, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.req("Q10", "A1", "A2")
def test_keys_are_set_read_compared_and_removed(cluster: LocalCluster) -> None:
    assert "RESOURCE_NOT_FOUND: no key color" in refusal(cluster, "get", "color")
    first = kv(cluster, "put", "color", "blue")["version"]
    assert kv(cluster, "get", "color") == {"key": "color", "value": "blue", "version": first}
    second = kv(cluster, "cas", "color", "red", "--expect-version", str(first))["version"]
    assert second > first
    stale = refusal(cluster, "cas", "color", "green", "--expect-version", str(first))
    assert f"INVALID_UPDATE_VERSION: color has version {second}; nothing was changed" in stale
    assert "INVALID_UPDATE" in refusal(cluster, "cas", "color", "green", "--expect-absent")
    kv(cluster, "cas", "color", "green", "--expect-value", "red")
    assert raftctl("kv", "get", "color", *at(cluster)).stdout == "green\n"
    kv(cluster, "delete", "color")
    assert "color does not exist" in refusal(cluster, "delete", "color")


class Here:
    """Commands in this process, which spares the start of one for each."""

    def __init__(self, cluster: LocalCluster, captured: pytest.CaptureFixture[str]) -> None:
        self._at = at(cluster)
        self._captured = captured

    def run(self, *words: str, command: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """The exit status and what was written, also by what the command started."""
        self._captured.readouterr()
        status = run(["kv", *words, *self._at, *(("--", *command) if command else ())])
        return status, *self._captured.readouterr()

    def ask(self, *words: str) -> Any:
        """The document of a command that succeeded."""
        status, out, errors = self.run(*words, "--output", "json")
        assert status == 0, errors
        return json.loads(out)


@pytest.fixture
def here(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Here:
    return Here(cluster, capfd)


@pytest.mark.req("Q10", "A1", "A2")
def test_keys_are_listed_watched_and_leaders_told(cluster: LocalCluster, here: Here) -> None:
    version = here.ask("put", "list/a", "1")["version"]
    listed = here.ask("list", "list/")
    assert listed["keys"] == [{"key": "list/a", "value": "1", "version": version}]
    removed = here.ask("delete", "list/a")["version"]
    told = here.run("watch", "list/", "--prefix", "--from", str(version), "--count", "2")
    assert told[1].splitlines() == [f"{version} put list/a 1", f"{removed} delete list/a"]
    listen = ("elect", "boss", "--listen", "--count", "1")
    assert here.run(*listen)[1] == "nobody leads\n"
    other = (sys.executable, "-m", "raftctl", "kv", *listen, *at(cluster))
    status, out, _ = here.run("elect", "boss", "me", command=other)
    assert (status, out.endswith(" me\n")) == (0, True)


@pytest.mark.req("Q10", "A1")
def test_a_lock_of_a_killed_client_is_released_and_its_token_refused(
    cluster: LocalCluster, here: Here
) -> None:
    words = ("kv", "lock", "jobs", "--session-timeout", "1.5", *at(cluster), "--")
    command = (sys.executable, "-m", "raftctl", *words, "sh", "-c", HOLD)
    holder = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )
    guard = ("--lock", "jobs", "--fence")
    try:
        assert holder.stdout is not None
        old = holder.stdout.readline().strip()
        assert here.ask("put", "job", "1", *guard, old)["version"] > int(old)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()
    put = f"{sys.executable} -m raftctl kv put job 2 --lock jobs --fence $RAFTCTL_LOCK_TOKEN"
    script = f"{put} {' '.join(at(cluster))} >&2 && echo $RAFTCTL_LOCK_TOKEN; exit 7"
    status, new, errors = here.run("lock", "jobs", command=("sh", "-c", script))
    assert status == 7, errors
    assert int(new) > int(old)
    status, _, errors = here.run("put", "job", "3", *guard, old)
    assert (status, "FENCED_MEMBER_EPOCH: jobs is held by nobody" in errors) == (1, True)
    assert here.ask("get", "job")["value"] == "2"


@pytest.mark.req("Q9", "Q10")
def test_a_key_outlives_the_active_controller(cluster: LocalCluster) -> None:
    version = kv(cluster, "put", "kept", "1")["version"]
    killed = active_controller(cluster)
    cluster.kill(killed)
    try:
        assert kv(cluster, "get", "kept") == {"key": "kept", "value": "1", "version": version}
        assert kv(cluster, "put", "kept", "2")["version"] > version
    finally:
        cluster.start(killed)
    wait_until(lambda: cluster.status().answers[killed.address], "the controller is back")


@pytest.mark.req("A1", "Q5")
def test_the_quorum_is_described(cluster: LocalCluster) -> None:
    leader = active_controller(cluster)
    status = raftctl("quorum", "describe", "--status", *at(cluster), "--output", "json").document
    assert status["ClusterId"] == cluster.layout.cluster_id
    assert status["LeaderId"] == leader.node_id
    assert {one["id"] for one in status["CurrentVoters"]} == {101, 102, 103}
    text = raftctl("quorum", "describe", "--status", *at(cluster)).stdout
    assert f"LeaderId:             {leader.node_id}\n" in text

    command = ("quorum", "describe", "--replication", *at(cluster), "--output", "json")
    wait_until(lambda: len(raftctl(*command).document) == 4, "three voters and an observer")
    rows = raftctl(*command).document
    assert [row["Status"] for row in rows] == ["Leader", "Follower", "Follower", "Observer"]
    assert rows[0]["NodeId"] == leader.node_id
    # A record that the leader has appended, and not yet on its disk, is a lag of its own.
    wait_until(lambda: raftctl(*command).document[0]["Lag"] == 0, "the leader's log is on its disk")
    table = raftctl("quorum", "describe", "--replication", "--human-readable", *at(cluster))
    assert "LastCaughtUpTimestamp" in table.stdout.splitlines()[0]
    assert "ms ago" in table.stdout


@pytest.mark.req("Q5")
def test_an_observer_that_lags_is_seen_by_records_and_by_time(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def lag() -> tuple[int, int]:
        """Of the observer, in records and in ms behind the leader."""
        capsys.readouterr()
        command = ("quorum", "describe", "--replication", *at(cluster), "--output", "json")
        assert run(command) == 0
        leader, *_, observer = json.loads(capsys.readouterr().out)
        assert (leader["Status"], observer["Status"]) == ("Leader", "Observer")
        late_ms = leader["LastCaughtUpTimestamp"] - observer["LastCaughtUpTimestamp"]
        return observer["Lag"], late_ms

    broker = cluster.process(cluster.layout.brokers[0])
    assert broker is not None
    broker.send(signal.SIGSTOP)
    try:
        records = 5
        for number in range(records):
            assert run(["kv", "put", "many", str(number), *at(cluster)]) == 0
        wait_until(lambda: lag()[1] > 1_000, "it is a second late")
        assert lag()[0] >= records
    finally:
        broker.send(signal.SIGCONT)
    wait_until(lambda: lag()[0] < records, "it has caught up")


@pytest.mark.req("A1")
def test_the_shell_shows_a_live_cluster(cluster: LocalCluster) -> None:
    version = kv(cluster, "put", "services/a", "x")["version"]

    def shell(*words: str) -> list[str]:
        lines: list[str] = raftctl(
            "metadata", "shell", *words, *at(cluster), "--output", "json"
        ).document
        return lines

    assert shell("ls") == [
        "brokers/",
        "configs/",
        "controllers/",
        "features/",
        "kv/",
        "locks/",
        "producer_ids/",
        "provenance/",
        "sessions/",
        "topics/",
    ]
    assert shell("cat", "/kv/services%2Fa/value") == ["x"]
    assert shell("cat", "kv/services%2Fa/version") == [str(version)]
    assert shell("find", "/", "metadata.version") == ["/features/metadata.version"]
    assert shell("ls", "brokers") == ["1"]
    nothing = raftctl("metadata", "shell", "ls", "/nothing", *at(cluster))
    assert (nothing.status, nothing.stderr) == (
        1,
        "raftctl: RESOURCE_NOT_FOUND: /nothing: there is no nothing\n",
    )


@pytest.mark.req("L10", "Q12", "A1")
def test_a_stopped_node_is_dumped_and_verified(cluster: LocalCluster) -> None:
    version = kv(cluster, "put", "dumped", "1")["version"]
    followers = [n for n in cluster.layout.controllers if n != active_controller(cluster)]
    node = followers[0]
    config = str(cluster.log_path(node).with_name("node.properties"))
    busy = raftctl("storage", "verify", "--config", config)
    assert busy.status == 2
    wait_until(
        lambda: (cluster.status().answers[node.address] or {})["high_watermark"] > version,
        "the follower has the record",
    )
    cluster.kill(node)
    try:
        good = raftctl("storage", "verify", "--config", config, "--output", "json").document
        assert {finding["state"] for finding in good} <= {"ok", "torn tail"}
        directory = str(cluster.log_path(node).with_name("data"))
        dump = raftctl("log", "dump", directory, "--from", str(version), "--output", "json")
        batches = [json.loads(line) for line in dump.stdout.splitlines()]
        records = [record for batch in batches for record in batch["records"]]
        put = next(record for record in records if record["offset"] == version)
        assert put["type"] == "KvRecord"
        assert (put["key"], put["value"]) == ("dumped", "1")
        shell = raftctl("metadata", "shell", "cat", "kv/dumped/value", "--directory", directory)
        assert shell.stdout == "1\n"
    finally:
        cluster.start(node)
