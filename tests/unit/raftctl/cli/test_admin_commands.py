"""The commands of administrators, from the command line to the controller's metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from raftctl.cli.main import BAD_INPUT, FAILED
from raftctl.config import make_config
from raftctl.controller import ControllerConfig
from raftctl.ids import uuid_text
from tests.unit.broker.apis.controlled import listening
from tests.unit.raftctl.cli.command_line import CommandLine
from tests.unit.raftctl.controller.cluster import CLUSTER_ID

if TYPE_CHECKING:
    from pathlib import Path

ASSIGNED = ("create", "u", "--replica-assignment")
HOURS = "log.retention.hours"
HOUR_MS = str(60 * 60 * 1000)


@pytest.mark.req("C3", "A1")
async def test_topics_alter(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        status, out, _ = await raftctl.status("topics", "alter", "t", "--partitions", "3")
        assert (status, out) == (0, "t has 3 partitions\n")
        assert len(broker.cluster.topic("t").partitions) == 3
        status, _, err = await raftctl.status("topics", "alter", "t", "--partitions", "2")
        assert status == FAILED
        assert "INVALID_PARTITIONS" in err
        assert "must be above 3" in err


@pytest.mark.req("C3", "A1")
async def test_topics_create_describe_and_delete(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        shape = ("--replica-assignment", "1:2,2:3", "--config", "retention.ms=5")
        create = ("topics", "create", "t")
        status, out, err = await raftctl.status(*create, *shape, "--validate-only")
        assert (status, out) == (0, "could create t\n"), err
        assert broker.cluster.image.topics.by_name("t") is None
        assert await raftctl.json(*create, *shape) == {"created": "t"}
        assert dict(broker.cluster.image.config(2, "t")) == {"retention.ms": "5"}
        topic_id = uuid_text(broker.cluster.topic("t").topic_id)
        assert await raftctl.json("topics", "describe", "t") == {
            "topic": "t",
            "topic_id": topic_id,
            "partitions": [
                {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1, 2]},
                {"partition": 1, "leader": 2, "replicas": [2, 3], "isr": [2, 3]},
            ],
        }
        status, out, _ = await raftctl.status("topics", "describe", "t")
        assert out.startswith(f"t, id {topic_id}\nPARTITION  LEADER")
        assert await raftctl.json(*create, "--if-not-exists") == {"created": None}
        assert uuid_text(broker.cluster.topic("t").topic_id) == topic_id
        assert await raftctl.json("topics", "delete", "t") == {"deleted": "t"}
        assert await raftctl.json("topics", "delete", "t", "--if-exists") == {"deleted": None}


@pytest.mark.req("C3")
async def test_topics_take_their_counts_from_the_controllers_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {
        "process.roles": "controller",
        "node.id": "101",
        "controller.quorum.voters": "101@127.0.0.1:7101",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:7101",
        "log.dirs": "/nowhere",
        "num.partitions": "4",
        "default.replication.factor": "2",
    }
    async with listening(ControllerConfig.of(make_config(values), CLUSTER_ID)) as broker:
        raftctl = CommandLine(capsys, broker)
        await raftctl.json("topics", "create", "t")
        topic = broker.cluster.topic("t")
        assert [len(one.replicas) for _, one in topic.items()] == [2] * 4


@pytest.mark.req("C3", "A2")
async def test_topics_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        before = broker.cluster.image.topics
        for arguments, expected, told in [
            (("create", "t"), FAILED, "TOPIC_ALREADY_EXISTS: Topic 't' already exists"),
            (("create", ".."), FAILED, "INVALID_TOPIC_EXCEPTION"),
            (("create", "a b"), FAILED, "has characters other than letters"),
            (("create", "u", "--partitions", "0"), FAILED, "INVALID_PARTITIONS"),
            (("create", "u", "--partitions", "99999999999"), BAD_INPUT, "--partitions"),
            (("create", "u", "--replication-factor", "9"), FAILED, "only 3 broker(s)"),
            (("create", "u", "--replication-factor", "99999"), BAD_INPUT, "--replication-factor"),
            (("create", "u", "--config", "x"), BAD_INPUT, "--config x: write key=value"),
            (("create", "u", "--config", "x=1"), FAILED, "Unknown topic config name: x"),
            (("create", "u", "--config", "retention.ms=x"), FAILED, "must be an integer"),
            ((*ASSIGNED, "1:1"), FAILED, "two replicas on one broker"),
            ((*ASSIGNED, "1:9"), FAILED, "broker 9, which is not registered"),
            ((*ASSIGNED, "1:2,3"), FAILED, "Partition 1 has 1 replica(s)"),
            ((*ASSIGNED, "1:x"), BAD_INPUT, "write ids as 1:2,2:3"),
            ((*ASSIGNED, "1:-2"), BAD_INPUT, "write ids as 1:2,2:3"),
            ((*ASSIGNED, ""), BAD_INPUT, "write ids as 1:2,2:3"),
            ((*ASSIGNED, "1:2", "--partitions", "1"), BAD_INPUT, "leave out --partitions"),
            (("alter", "t", "--partitions", "99999999999"), BAD_INPUT, "--partitions"),
            (("describe", ""), BAD_INPUT, "TOPIC is empty"),
            (("describe", "u"), FAILED, "UNKNOWN_TOPIC_OR_PARTITION: no topic u"),
            (("delete", "u"), FAILED, "UNKNOWN_TOPIC_OR_PARTITION: no topic u"),
            (("list", "--timeout", "-1"), BAD_INPUT, "--timeout"),
            (("list", "--timeout", "nan"), BAD_INPUT, "--timeout"),
        ]:
            status, out, err = await raftctl.status("topics", *arguments)
            assert (status, out) == (expected, ""), (arguments, err)
            assert told in " ".join(err.split()), arguments
        assert broker.cluster.image.topics is before


@pytest.mark.req("C5", "A1")
async def test_elect_leaders(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        cluster = broker.cluster
        cluster.assign("t", (2, 1), (1, 2))
        cluster.fence(2)
        cluster.heartbeat(2)
        cluster.alter(1, cluster.item("t", 1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        two = ("--partition", "t:0", "--partition", "t:1")
        found = await raftctl.json("elect-leaders", *two)
        assert [one["error"] for one in found] == [None, "ELECTION_NOT_NEEDED"]
        assert cluster.state("t") == (2, (1, 2))
        status, _, err = await raftctl.status("elect-leaders", "--partition", "t:9")
        assert status == FAILED
        assert "UNKNOWN_TOPIC_OR_PARTITION" in err
        for arguments in ((), ("--partition", "t"), (*two, "--all-topic-partitions")):
            status, _, err = await raftctl.status("elect-leaders", *arguments)
            assert status == BAD_INPUT
        assert await raftctl.json("elect-leaders", "--all-topic-partitions") == []


@pytest.mark.req("C9", "A1")
async def test_configs(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        topic = ("--entity-type", "topic", "--entity-name", "t")
        altering = ("configs", "alter", *topic)
        changes = ("--set", "retention.ms=5", "--append", "cleanup.policy=compact")
        status, out, _ = await raftctl.status(*altering, *changes)
        assert (status, out) == (0, "altered topic t: retention.ms, cleanup.policy\n")
        found = await raftctl.json("configs", "describe", *topic)
        assert [(one["name"], one["value"], one["source"]) for one in found] == [
            ("cleanup.policy", "delete,compact", "topic"),
            ("retention.ms", "5", "topic"),
        ]
        assert len(await raftctl.json("configs", "describe", *topic, "--all")) > 30
        kafkas = ("--add-config", "cleanup.policy=[compact,delete],retention.ms=6")
        assert (await raftctl.status(*altering, *kafkas, "--validate-only"))[:2] == (
            0,
            "could alter topic t: cleanup.policy, retention.ms\n",
        )
        status, out, _ = await raftctl.status(
            *altering, "--delete-config", "retention.ms", "--validate-only"
        )
        assert (status, out) == (0, "could alter topic t: retention.ms\n")
        status, _, err = await raftctl.status(*altering, "--set", "retention.ms=x")
        assert status == FAILED
        assert "INVALID_CONFIG: Invalid value 'x' for retention.ms" in err
        one = ("--entity-type", "broker", "--entity-name", "1")
        await raftctl.status("configs", "alter", *one, "--set", "log.retention.ms=7")
        found = await raftctl.json("configs", "describe", *one)
        assert [(one["name"], one["source"]) for one in found] == [("log.retention.ms", "broker")]
        for wrong in ((), ("--set", "retention.ms")):
            status, _, _ = await raftctl.status(*altering, *wrong)
            assert status == BAD_INPUT
        nobody = ("--entity-type", "topic", "--entity-name", "")
        status, _, err = await raftctl.status("configs", "describe", *nobody)
        assert status == BAD_INPUT
        assert "--entity-name" in err


@pytest.mark.req("C9", "A1")
async def test_configs_of_all_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        every = ("--entity-type", "brokers", "--entity-default")
        status, out, err = await raftctl.status("configs", "alter", *every, "--set", f"{HOURS}=2")
        assert (status, out) == (0, f"altered all brokers: {HOURS}\n"), err
        assert dict(broker.cluster.image.config(4, "")) == {HOURS: "2"}
        assert await raftctl.json("configs", "describe", *every) == [
            {
                "name": HOURS,
                "value": "2",
                "source": "all brokers",
                "read_only": False,
                "synonyms": [{"name": HOURS, "value": "2", "source": "all brokers"}],
            }
        ]
        one = ("--entity-type", "broker", "--entity-name", "1")
        await raftctl.status("configs", "alter", *one, "--set", f"{HOURS}=1")
        (found,) = await raftctl.json("configs", "describe", *one)
        assert [(one["value"], one["source"]) for one in found["synonyms"]] == [
            ("1", "broker"),
            ("2", "all brokers"),
            ("168", "default"),
        ]
        topic = ("--entity-type", "topics", "--entity-name", "t")
        (kept,) = await raftctl.json("configs", "describe", *topic)
        assert (kept["name"], kept["value"], kept["source"]) == ("retention.ms", HOUR_MS, "broker")
        status, out, _ = await raftctl.status("configs", "describe", *topic)
        assert f"broker: {HOURS}=1; all brokers: {HOURS}=2; default: log.retention.ms=" in out
        await raftctl.status("configs", "alter", *one, "--delete", HOURS)
        await raftctl.status("configs", "alter", *every, "--delete", HOURS)
        assert await raftctl.json("configs", "describe", *every) == []
        assert await raftctl.json("configs", "describe", *topic) == []


@pytest.mark.req("O3", "A1")
async def test_levels_of_a_brokers_loggers(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
        status, out, err = await raftctl.status(
            "configs", "alter", *loggers, "--set", "broker.replication=DEBUG"
        )
        assert (status, out) == (0, "altered broker-logger 1: broker.replication\n"), err
        found = await raftctl.json("configs", "describe", *loggers)
        levels = {one["name"]: (one["value"], one["source"]) for one in found}
        assert levels["broker.replication.fetcher"] == ("DEBUG", "logger")
        assert levels["root"] == ("INFO", "logger")
        change = ("--alter", "--broker-logger", "1", "--delete-config", "broker.replication")
        await raftctl.status("configs", *change)
        found = await raftctl.json("configs", "describe", *loggers)
        assert {one["value"] for one in found} == {"INFO"}
        for wrong, words in (("brokre=DEBUG", "Logger brokre does not"), ("root=x", "Valid log")):
            status, _, err = await raftctl.status("configs", "alter", *loggers, "--set", wrong)
            assert status == FAILED
            assert words in " ".join(err.split())
        nobody = ("--entity-type", "broker-logger", "--entity-default", "--set", "root=INFO")
        assert (await raftctl.status("configs", "alter", *nobody))[0] == BAD_INPUT


@pytest.mark.req("C9", "A2")
async def test_configs_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        brokers, topic = ("--entity-type", "broker"), ("--entity-type", "topic")
        every, t = (*brokers, "--entity-default"), (*topic, "--entity-name", "t")
        one = (*brokers, "--entity-name", "1")
        some = ("--set", f"{HOURS}=2")
        for arguments, expected, told in [
            ((*every, "--set", "node.id=2"), FAILED, "node.id cannot change while brokers run"),
            ((*every, "--set", "no.such=2"), FAILED, "no.such cannot change"),
            ((*every, "--set", f"{HOURS}=x"), FAILED, f"Invalid value 'x' for {HOURS}"),
            ((*one, "--set", "min.insync.replicas=2"), FAILED, "the same for all brokers"),
            ((*t, *some), FAILED, f"Unknown topic config name: {HOURS}"),
            ((*t, "--set", "retention.mss=1"), FAILED, "retention.mss; did you mean retention.ms?"),
            ((*every, "--entity-name", "1", *some), BAD_INPUT, "or --entity-default"),
            ((*brokers, *some), BAD_INPUT, "give --entity-name NAME or --entity-default"),
            ((*topic, "--entity-default", *some), BAD_INPUT, "a topic has none"),
            ((*brokers, "--entity-name", "x", *some), BAD_INPUT, "named by its id"),
            ((*brokers, "--entity-name", "9", *some), FAILED, "there is no broker 9 now"),
            (("--entity-type", "users", *some), BAD_INPUT, "name one of topic, broker, group"),
            ((*t, "--set", "retention.ms=1", "--delete", "retention.ms"), BAD_INPUT, "named twice"),
            ((*t, "--delete", "retention.ms=1"), BAD_INPUT, "write the KEY alone"),
            ((*t, "--append", "retention.ms"), BAD_INPUT, "--append 'retention.ms' sets nothing"),
        ]:
            status, out, err = await raftctl.status("configs", "alter", *arguments)
            assert (status, out) == (expected, ""), err
            assert told in " ".join(err.split()), err
        assert not broker.cluster.image.config(4, "")
        assert not broker.cluster.image.config(2, "t")


@pytest.mark.req("C9", "A1")
async def test_configs_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        group = ("--entity-type", "group", "--entity-name", "g")
        change = ("--set", "consumer.session.timeout.ms=50000")
        status, _, err = await raftctl.status("configs", "alter", *group, *change)
        assert status == 0, err
        (found,) = await raftctl.json("configs", "describe", *group)
        assert (found["value"], found["source"]) == ("50000", "group")


@pytest.mark.req("C7", "A1")
async def test_reassign_partitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with listening() as broker:
        cluster = broker.cluster
        cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        (tmp_path / "topics.json").write_text('{"version": 1, "topics": [{"topic": "t"}]}')
        moved = {"topic": "t", "partition": 0, "replicas": [1, 3]}
        plan_file = tmp_path / "plan.json"
        plan_file.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        command = "reassign-partitions"
        plan = ("--reassignment-json-file", str(plan_file))

        topics = ("--topics-to-move-json-file", str(tmp_path / "topics.json"))
        found = await raftctl.json(command, "--generate", *topics, "--broker-list", "1,3")
        (proposed,) = found["proposed"]["partitions"]
        assert sorted(proposed["replicas"]) == [1, 3]
        assert found["current"]["partitions"] == [moved | {"replicas": [1, 2]}]

        found = await raftctl.json(command, "--execute", *plan, "--throttle", "1000")
        assert found["partitions"] == [{"topic": "t", "partition": 0, "result": "begun"}]
        assert found["rollback"]["partitions"] == [moved | {"replicas": [1, 2]}]
        assert dict(cluster.image.config(2, "t")) == {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
        rate = "follower.replication.throttled.rate"
        assert cluster.image.config(4, "3")[rate] == "1000"
        (listed,) = await raftctl.json(command, "--list")
        assert (listed["adding_replicas"], listed["removing_replicas"]) == ([3], [2])
        status, out, err = await raftctl.status(command, "--verify", *plan)
        assert (status, "in progress" in out) == (FAILED, True)
        assert "REASSIGNMENT_IN_PROGRESS" in err

        cluster.alter(1, cluster.item("t", 1, 2, 3))
        broker.publish()
        (verified,) = await raftctl.json(command, "--verify", *plan)
        assert verified["status"] == "done"
        assert not cluster.image.config(2, "t")
        assert rate not in cluster.image.config(4, "3")
        status, out, err = await raftctl.status(command, "--cancel", *plan)
        assert status == FAILED
        assert "NO_REASSIGNMENT_IN_PROGRESS" in err


@pytest.mark.req("C7", "A1")
async def test_reassign_partitions_with_bad_arguments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "topics.json").write_text('{"version": 1, "topics": [{"topic": "nowhere"}]}')
    topics = ("--topics-to-move-json-file", str(tmp_path / "topics.json"))
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        for arguments, expected, told in [
            ((), BAD_INPUT, "give one of"),
            (("--list", "--verify"), BAD_INPUT, "give one of"),
            (("--execute",), BAD_INPUT, "--reassignment-json-file FILE is needed"),
            (("--execute", "--reassignment-json-file", "/no/file"), BAD_INPUT, "cannot be read"),
            (("--generate", *topics), BAD_INPUT, "--broker-list"),
            (("--generate", *topics, "--broker-list", "1,9"), BAD_INPUT, "no broker 9"),
            (("--generate", *topics, "--broker-list", "1,2"), FAILED, "no topic nowhere"),
        ]:
            status, _, err = await raftctl.status("reassign-partitions", *arguments)
            assert (status, told in err) == (expected, True), (arguments, err)


# --- features and brokers -------------------------------------------------------------------------


@pytest.mark.req("C11", "A1")
async def test_features(capsys: pytest.CaptureFixture[str]) -> None:
    elr = "eligible.leader.replicas.version"
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        before = {one["feature"]: one for one in await raftctl.json("features", "describe")}
        assert before[elr] == {"feature": elr, "lowest": 0, "highest": 1, "level": 0}
        asked = ("features", "upgrade", "--feature", f"{elr}=1")
        status, out, _ = await raftctl.status(*asked, "--dry-run")
        assert (status, out) == (0, f"{elr} would be 1\n")
        assert elr not in broker.cluster.image.features
        assert await raftctl.json(*asked) == {"features": {elr: 1}, "dry_run": False}
        assert broker.cluster.image.features[elr] == 1
        status, out, _ = await raftctl.status("features", "downgrade", "--feature", f"{elr}=0")
        assert (status, out) == (0, f"{elr} is 0\n")
        assert broker.cluster.image.features[elr] == 0


@pytest.mark.req("C11", "A2")
async def test_features_refused(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        for arguments, expected, complaint in (
            (("metadata.version",), BAD_INPUT, "write NAME=LEVEL"),
            (("metadata.version=new",), BAD_INPUT, "write NAME=LEVEL"),
            (("a=1", "--feature", "a=2"), BAD_INPUT, "names a feature twice"),
            (("metadata.version=99",), FAILED, "INVALID_UPDATE_VERSION: The level of metadata"),
        ):
            status, _, err = await raftctl.status("features", "upgrade", "--feature", *arguments)
            assert status == expected, err
            assert complaint in err
            assert err.count("\n") == 1, "one line"


@pytest.mark.req("C2", "A1")
async def test_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.fence(2)
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        found = await raftctl.json("brokers", "list")
        assert [(one["broker_id"], one["fenced"]) for one in found] == [
            (one, broker.cluster.image.brokers[one].fenced)
            for one in sorted(broker.cluster.image.brokers)
        ]
        status, out, _ = await raftctl.status("brokers", "list")
        assert status == 0
        assert out.splitlines()[0].split() == ["BROKER", "ADDRESS", "RACK", "FENCED"]


@pytest.mark.req("C2", "A1")
async def test_brokers_unregister(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.fence(2)
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        status, _, err = await raftctl.status("brokers", "unregister", "3")
        assert (status, "broker 3 runs: stop it first" in err) == (FAILED, True)
        assert await raftctl.json("brokers", "unregister", "2") == {"unregistered": 2}
        assert sorted(broker.cluster.image.brokers) == [1, 3]
        status, _, err = await raftctl.status("brokers", "unregister", "2")
        assert (status, "BROKER_ID_NOT_REGISTERED" in err) == (FAILED, True)
        status, out, _ = await raftctl.status("brokers", "unregister", "3", "--force")
        assert (status, out) == (0, "unregistered broker 3\n")
        assert list(broker.cluster.image.brokers) == [1]


@pytest.mark.req("A1")
async def test_cluster_id(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        status, out, _ = await raftctl.status("cluster-id")
        assert (status, out) == (0, f"{broker.context.cluster_id}\n")
        assert await raftctl.json("cluster-id") == {"cluster_id": broker.context.cluster_id}


# --- partitions -----------------------------------------------------------------------------------


@pytest.mark.req("C3", "A1")
async def test_partitions_list(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        cluster = broker.cluster
        cluster.assign("whole", (1, 2))
        cluster.assign("lacking", (1, 3), (3, 1))
        cluster.assign("silent", (3,))
        cluster.fence(3)
        broker.publish()
        raftctl = CommandLine(capsys, broker)

        async def found(*filters: str) -> list[tuple[str, int]]:
            listed = await raftctl.json("partitions", "list", *filters)
            return [(one["topic"], one["partition"]) for one in listed]

        lacking, silent = [("lacking", 0), ("lacking", 1)], [("silent", 0)]
        assert await found() == [*lacking, *silent, ("whole", 0)]
        assert await found("--topic", "whole") == [("whole", 0)]
        assert await found("--under-replicated-partitions") == lacking
        assert await found("--unavailable-partitions") == await found("--offline") == silent
        assert await found("--offline", "--under-replicated") == [*lacking, *silent]
        assert await found("--not-preferred") == [*lacking[1:], *silent]
        assert await found("--at-min-isr") == [*lacking, *silent]
        assert await found("--under-min-isr") == []
        command = ("configs", "alter", "--entity-type", "topic", "--entity-name", "lacking")
        await raftctl.status(*command, "--set", "min.insync.replicas=2")
        assert await found("--under-min-isr-partitions") == lacking
        status, out, _ = await raftctl.status("partitions", "list", "--offline")
        assert status == 0
        assert [line.split() for line in out.splitlines()] == [
            ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN-SYNC"],
            ["silent", "0", "-", "3", "3"],
        ]
        status, _, err = await raftctl.status("partitions", "list", "--topic", "nowhere")
        assert (status, "no topic nowhere" in err) == (FAILED, True)
        cluster.assign("__consumer_offsets", (1,))
        broker.publish()
        assert ("__consumer_offsets", 0) in await found()
        assert await found("--exclude-internal") == [*lacking, *silent, ("whole", 0)]
        topics = await raftctl.json("topics", "list", "--exclude-internal")
        assert [one["topic"] for one in topics] == ["lacking", "silent", "whole"]


@pytest.mark.req("A1")
async def test_nothing_to_list_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        raftctl = CommandLine(capsys, broker)
        for arguments, told in [
            (("topics", "list"), "there are no topics"),
            (("users", "list"), "no user has a password"),
            (("acls", "list"), "no such rule"),
            (("quotas", "describe"), "no such quota"),
            (("reassign-partitions", "--list"), "no partition is moving"),
        ]:
            status, out, err = await raftctl.status(*arguments)
            assert (status, out) == (0, f"{told}\n"), (arguments, err)


@pytest.mark.req("C3", "A1")
async def test_partitions_describe_and_add(capsys: pytest.CaptureFixture[str]) -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        raftctl = CommandLine(capsys, broker)
        found = await raftctl.json("partitions", "describe", "t:0")
        assert (found["leader"], found["replicas"], found["isr"]) == (1, [1, 2], [1, 2])
        assert (found["log_start_offset"], found["log_end_offset"]) == (0, 0)
        assert found["topic_id"] == (await raftctl.json("topics", "describe", "t"))["topic_id"]
        for wrong, expected in (("t:7", FAILED), ("nowhere:0", FAILED), ("t", BAD_INPUT)):
            status, _, err = await raftctl.status("partitions", "describe", wrong)
            assert status == expected, err
        status, out, _ = await raftctl.status("partitions", "add", "t", "--partitions", "3")
        assert (status, out) == (0, "t has 3 partitions\n")
        assert len(broker.cluster.topic("t").partitions) == 3
