"""Actions of the console: their requests, results and refusals, and their lines in the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from raftctl.console.actions._actions import ACTIONS, SUBJECT_MAX
from raftctl.errors import ErrorCode, KafkaError
from raftctl.plugins import ANY_BROKER
from tests.unit.raftctl.console import test_groups as groups
from tests.unit.raftctl.console import test_transactions as transactions
from tests.unit.raftctl.console.fake_brokers import FakeBrokers
from tests.unit.raftctl.console.served import Answer, broker, partition, serving, topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.raftctl.console.served import Served

pytestmark = pytest.mark.req("W2")
OWN = {"X-Raftctl-Console": "1"}
LIMIT_BYTES = "producer_byte_rate"
RULE = {
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "PREFIXED",
}
NUMBERS = {
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
    "resource_type": 2,
    "resource_name": "orders",
    "pattern_type": 4,
}
OK = {"error_code": 0, "error_message": None}


class Case(NamedTuple):
    """An action, and what becomes of it."""

    action: str
    body: dict[str, Any]
    api: str
    broker_id: int
    sent: dict[str, Any]
    """A part of the request."""
    answer: dict[str, Any]
    done: str


def one_topic(**more: Any) -> dict[str, Any]:
    return {"name": "t", "num_partitions": 2, **OK, **more}


def led(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": 1, **OK, **more}]}]


CASES = [
    Case(
        "create-topic",
        {"name": "t", "configs": {"retention.ms": "1"}, "validate_only": True},
        "CREATE_TOPICS",
        ANY_BROKER,
        {
            "validate_only": True,
            "topics": [
                {
                    "name": "t",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": (),
                    "configs": [{"name": "retention.ms", "value": "1"}],
                }
            ],
        },
        {"topics": [one_topic()]},
        "topic t could be created with 2 partitions",
    ),
    Case(
        "delete-topic",
        {"name": "t"},
        "DELETE_TOPICS",
        ANY_BROKER,
        {"topics": [{"name": "t", "topic_id": None}]},
        {"responses": [OK]},
        "topic t is deleted",
    ),
    Case(
        "create-partitions",
        {"topic": "t", "count": 4},
        "CREATE_PARTITIONS",
        ANY_BROKER,
        {"topics": [{"name": "t", "count": 4, "assignments": None}], "validate_only": False},
        {"results": [OK]},
        "topic t has 4 partitions",
    ),
    Case(
        "alter-configs",
        {"type": "broker", "name": "2", "set": {"a": "x"}, "remove": ["b"]},
        "INCREMENTAL_ALTER_CONFIGS",
        2,
        {
            "resources": [
                {
                    "resource_type": 4,
                    "resource_name": "2",
                    "configs": [
                        {"name": "a", "config_operation": 0, "value": "x"},
                        {"name": "b", "config_operation": 1, "value": None},
                    ],
                }
            ]
        },
        {"responses": [OK]},
        "a, b of broker 2 are changed",
    ),
    Case(
        "elect-leaders",
        {"election": "unclean", "partitions": [{"topic": "t", "partition": 1}]},
        "ELECT_LEADERS",
        ANY_BROKER,
        {"election_type": 1, "topic_partitions": [{"topic": "t", "partitions": [1]}]},
        {
            "error_code": 0,
            "replica_election_results": [
                {
                    "topic": "t",
                    "partition_result": [
                        {"partition_id": 1, **OK},
                        {"partition_id": 2, "error_code": 84, "error_message": None},
                    ],
                }
            ],
        },
        "1 leader elected (unclean); 1 needed none",
    ),
    Case(
        "reassign",
        {"partitions": [{"topic": "t", "partition": 1, "replicas": [2, 1]}]},
        "ALTER_PARTITION_REASSIGNMENTS",
        ANY_BROKER,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "replicas": [2, 1]}]}]},
        {**OK, "responses": led()},
        "t-1 moves to other replicas: see the reassignments",
    ),
    Case(
        "cancel-reassignment",
        {"partitions": [{"topic": "t", "partition": 1}]},
        "ALTER_PARTITION_REASSIGNMENTS",
        ANY_BROKER,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "replicas": None}]}]},
        {**OK, "responses": led()},
        "t-1 keeps its replicas",
    ),
    Case(
        "delete-records",
        {"topic": "t", "partition": 1, "before": -1},
        "DELETE_RECORDS",
        2,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "offset": -1}]}]},
        {"topics": led(low_watermark=9)},
        "t-1 begins at offset 9 now",
    ),
    Case(
        "delete-group",
        {"group": "g"},
        "DELETE_GROUPS",
        2,
        {"groups_names": ["g"]},
        {"results": [OK]},
        "group g is deleted, with its offsets",
    ),
    Case(
        "remove-member",
        {"group": "g", "member": "m-1", "instance": "static"},
        "LEAVE_GROUP",
        2,
        {"group_id": "g"},
        {"error_code": 0, "members": [OK]},
        "member static is removed from group g",
    ),
    Case(
        "create-acl",
        RULE,
        "CREATE_ACLS",
        ANY_BROKER,
        {"creations": [{**NUMBERS, "resource_pattern_type": 4}]},
        {"results": [OK]},
        "added the rule ALLOW User:alice from * READ TOPIC prefixed orders",
    ),
    Case(
        "delete-acl",
        RULE,
        "DELETE_ACLS",
        ANY_BROKER,
        {
            "filters": [
                {
                    "resource_type_filter": 2,
                    "resource_name_filter": "orders",
                    "pattern_type_filter": 4,
                    "principal_filter": "User:alice",
                    "host_filter": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        {"filter_results": [{**OK, "matching_acls": [OK]}]},
        "removed the rule ALLOW User:alice from * READ TOPIC prefixed orders",
    ),
    Case(
        "alter-quota",
        {"user": "<default>", "client_id": "c", "key": LIMIT_BYTES, "value": 1.5},
        "ALTER_CLIENT_QUOTAS",
        ANY_BROKER,
        {
            "entries": [
                {
                    "entity": [
                        {"entity_type": "user", "entity_name": None},
                        {"entity_type": "client-id", "entity_name": "c"},
                    ],
                    "ops": [{"key": LIMIT_BYTES, "value": 1.5, "remove": False}],
                }
            ]
        },
        {"entries": [OK]},
        "producer_byte_rate of user <default>, client-id c is set to 1.5",
    ),
    Case(
        "alter-quota",
        {"ip": "10.0.0.7", "key": "connection_creation_rate", "value": None},
        "ALTER_CLIENT_QUOTAS",
        ANY_BROKER,
        {},
        {"entries": [OK]},
        "connection_creation_rate of ip 10.0.0.7 is removed",
    ),
    Case(
        "unregister-broker",
        {"broker": 7},
        "UNREGISTER_BROKER",
        ANY_BROKER,
        {"broker_id": 7},
        OK,
        "broker 7 is unregistered",
    ),
]


def some_topics(served: Served) -> None:
    served.commit(
        *broker(1),
        *broker(2),
        *topic("t", partition(1, replicas=(1, 2)), partition(1, 1, replicas=(2, 1))),
        *topic("__consumer_offsets", partition(8, replicas=(1,))),
        *topic("__transaction_state", partition(9, replicas=(1,))),
    )


async def post(served: Served, action: str, body: Any, who: str | None = None) -> Answer:
    path = f"/console/api/actions/{action}"
    return await served.ask(path, who=who, method="POST", headers=OWN, json=body)


def lines(served: Served) -> list[dict[str, Any]]:
    """What the log has of actions."""
    found = [json.loads(line) for line in served.lines.getvalue().splitlines()]
    return [one for one in found if one["event"] == "console_action"]


def coordinated(answers: Mapping[str, Any]) -> FakeBrokers:
    fake = FakeBrokers({"FIND_COORDINATOR": groups.found_at(2)})
    fake.answers.update(answers)
    return fake


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.action} {len(case.body)}")
async def test_an_action_is_a_request_as_its_requester(case: Case) -> None:
    fake = coordinated({case.api: case.answer})
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await post(served, case.action, case.body, "User:alice@10.0.0.7")
        assert answer.document == {"done": case.done}
        [asked] = fake.questions(case.api)
        assert asked.broker_id == case.broker_id
        assert asked.body.items() >= case.sent.items()
        assert {str(one.requester.principal) for one in fake.asked} == {"User:alice"}
        assert {one.requester.host for one in fake.asked} == {"10.0.0.7"}
        [line] = lines(served)
        assert line["principal"] == "User:alice"
        assert (line["host"], line["action"], line["result"]) == ("10.0.0.7", case.action, "NONE")
        assert line["subject"]


def test_every_action_has_a_case() -> None:
    tested = {case.action for case in CASES} | {"reset-offsets", "abort-transaction"}
    assert tested == ACTIONS.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.action} {len(case.body)}")
async def test_a_field_that_is_not_known_does_nothing(case: Case) -> None:
    fake = coordinated({case.api: case.answer})
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await post(served, case.action, {**case.body, "surprise": 1})
        assert (answer.status, answer.document["field"]) == (400, "surprise")
        assert fake.asked == []
        assert lines(served) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.action} {len(case.body)}")
async def test_a_refusal_of_the_broker_is_that_of_the_action(case: Case) -> None:
    fake = coordinated({case.api: refused(case.answer, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)})
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await post(served, case.action, case.body)
        assert answer.status == 403
        assert answer.document["error"] == "CLUSTER_AUTHORIZATION_FAILED"
        [line] = lines(served)
        assert line["result"] == "CLUSTER_AUTHORIZATION_FAILED"


def refused(answer: Any, code: ErrorCode) -> Any:
    """The answer with an error in the place of each success."""
    if isinstance(answer, list):
        return [refused(one, code) for one in answer]
    if not isinstance(answer, dict):
        return answer
    found = {key: refused(value, code) for key, value in answer.items()}
    inner = any(isinstance(value, list) and value for value in answer.values())
    if found.get("error_code") == 0 and not inner:
        found["error_code"] = code
    return found


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("create-topic", {}, "name"),
        ("create-topic", {"name": 7}, "name"),
        ("create-topic", {"name": "t", "partitions": "two"}, "partitions"),
        ("create-topic", {"name": "t", "partitions": 0}, "partitions"),
        ("create-topic", {"name": "t", "configs": {"a": 1}}, "configs.a"),
        ("create-topic", {"name": "t", "configs": [1]}, "configs"),
        ("create-topic", {"name": "t", "validate_only": 1}, "validate_only"),
        ("create-topic", {"name": "\ud800"}, "name"),
        ("create-partitions", {"topic": "t"}, "count"),
        ("delete-records", {"topic": "t", "partition": 0, "before": -2}, "before"),
        ("elect-leaders", {"election": "fair"}, "election"),
        ("elect-leaders", {"partitions": []}, "partitions"),
        ("elect-leaders", {"partitions": ["t"]}, "partitions"),
        ("elect-leaders", {"partitions": [{"topic": "t"}]}, "partitions[0].partition"),
        ("reassign", {}, "partitions"),
        ("reassign", {"partitions": [{"topic": "t", "partition": 0}]}, "partitions"),
        (
            "reassign",
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]},
            "partitions[0].replicas",
        ),
        (
            "reassign",
            {"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "x": 1}]},
            "partitions[0].x",
        ),
        ("cancel-reassignment", {"partitions": [{"topic": "t", "partition": 0}] * 2}, "partitions"),
        ("reset-offsets", {"group": "g", "topic": "t", "to": "soon"}, "to"),
        ("reset-offsets", {"group": "g", "topic": "t", "to": "9" * 40}, "to"),
        ("remove-member", {"group": "g"}, "member"),
        ("create-acl", {**RULE, "operation": "FLY"}, "operation"),
        ("create-acl", {**RULE, "resource_type": "KEY"}, "resource_type"),
        ("create-acl", {**RULE, "principal": "alice"}, "principal"),
        ("create-acl", {**RULE, "pattern_type": "MATCH"}, "pattern_type"),
        ("alter-quota", {"key": LIMIT_BYTES, "value": 1}, "user"),
        ("alter-quota", {"user": "a", "key": LIMIT_BYTES, "value": "1"}, "value"),
        ("alter-quota", {"user": "a", "key": LIMIT_BYTES, "value": True}, "value"),
        ("alter-configs", {"type": "user", "name": "a"}, "type"),
        ("alter-configs", {"type": "topic", "name": "t"}, "set"),
        ("alter-configs", {"type": "broker", "name": "x", "set": {"a": "1"}}, "name"),
        (
            "alter-configs",
            {"type": "topic", "name": "t", "set": {"a": "1"}, "remove": ["a"]},
            "set.a",
        ),
        ("alter-configs", {"type": "topic", "name": "t", "remove": [1]}, "remove"),
        ("abort-transaction", {}, "topic"),
        ("abort-transaction", {"topic": "t"}, "partition"),
        ("unregister-broker", {"broker": -1}, "broker"),
        ("unregister-broker", [], "body"),
    ],
)
async def test_a_bad_body_names_the_field_and_does_nothing(
    action: str, body: Any, field: str
) -> None:
    fake = coordinated({})
    async with serving(client=fake) as served:
        some_topics(served)
        answer = await post(served, action, body)
        assert (answer.status, answer.document["field"]) == (400, field)
        assert fake.asked == []


@pytest.mark.parametrize(
    ("action", "body", "api", "answer", "field"),
    [
        (
            "create-topic",
            {"name": "t", "configs": {"retention": "1", "retention.ms": "x"}},
            "CREATE_TOPICS",
            {"topics": [one_topic(error_code=40, error_message="retention.ms is no number")]},
            "configs.retention.ms",
        ),
        (
            "create-topic",
            {"name": "t", "replication_factor": 9},
            "CREATE_TOPICS",
            {"topics": [one_topic(error_code=38)]},
            "replication_factor",
        ),
        (
            "alter-configs",
            {"type": "topic", "name": "t", "set": {"a.b": "1"}},
            "INCREMENTAL_ALTER_CONFIGS",
            {"responses": [{"error_code": 40, "error_message": "a.b must be 2"}]},
            "set.a.b",
        ),
        (
            "delete-records",
            {"topic": "t", "partition": 1, "before": 7},
            "DELETE_RECORDS",
            {"topics": led(error_code=1)},
            "before",
        ),
        (
            "alter-quota",
            {"user": "a", "key": "nonsense", "value": 1},
            "ALTER_CLIENT_QUOTAS",
            {"entries": [{"error_code": 42, "error_message": "There is no quota nonsense"}]},
            "key",
        ),
    ],
)
async def test_what_the_broker_says_of_a_field_is_said_at_the_field(
    action: str, body: dict[str, Any], api: str, answer: dict[str, Any], field: str
) -> None:
    async with serving(client=coordinated({api: answer})) as served:
        some_topics(served)
        found = await post(served, action, body)
        assert (found.status, found.document["field"]) == (400, field)


async def test_of_several_partitions_the_first_that_failed_is_named() -> None:
    results = [
        {"partition_index": n, "error_code": code, "error_message": None}
        for n, code in enumerate((0, 3, 3))
    ]
    answer = {**OK, "responses": [{"name": "t", "partitions": results}]}
    async with serving(client=coordinated({"ALTER_PARTITION_REASSIGNMENTS": answer})) as served:
        asked = [{"topic": "t", "partition": n, "replicas": [1]} for n in range(3)]
        found = await post(served, "reassign", {"partitions": asked})
        assert found.document["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert found.document["message"].startswith("t-1: ")
        assert found.document["message"].endswith(", as 1 others; 1 were done")


@pytest.mark.req("W3")
async def test_the_log_has_no_value_and_no_line_of_any_length() -> None:
    secret = "wonderland"
    hostile = "t\n\u202e<script>" + "x" * 5_000
    answer = {"responses": [OK]}
    async with serving(client=coordinated({"INCREMENTAL_ALTER_CONFIGS": answer})) as served:
        body = {"type": "topic", "name": hostile, "set": {"sasl.jaas.config": secret}}
        found = await post(served, "alter-configs", body)
        assert found.status == 200
        [line] = lines(served)
        assert secret not in json.dumps([line, found.document])
        assert len(line["subject"]) == SUBJECT_MAX
        assert len(served.lines.getvalue().splitlines()) == 1


async def test_an_action_in_doubt_says_so_and_is_in_the_log() -> None:
    fake = coordinated({"DELETE_TOPICS": KafkaError(ErrorCode.NETWORK_EXCEPTION)})
    async with serving(client=fake) as served:
        found = await post(served, "delete-topic", {"name": "t"})
        assert (found.status, found.document["done"]) == (504, "unknown")
        assert [line["result"] for line in lines(served)] == ["NETWORK_EXCEPTION"]


@pytest.mark.req("W3")
async def test_a_page_of_another_site_cannot_act() -> None:
    fake = coordinated({"DELETE_TOPICS": {"responses": [OK]}})
    async with serving(client=fake) as served:
        path = "/console/api/actions/delete-topic"
        without = await served.ask(path, method="POST", json={"name": "t"})
        assert without.status == 400
        form = await served.ask(path, method="POST", headers=OWN, data={"name": "t"})
        assert (form.status, form.document["field"]) == (400, "Content-Type")
        assert (await served.ask(path, headers=OWN)).status == 404
        assert (await post(served, "fly", {})).status == 404
        assert fake.asked == []


# --- offsets of a group ---------------------------------------------------------------------------


def of_group(*, members: bool = False) -> FakeBrokers:
    group: dict[str, Any] = {
        **OK,
        "group_id": "g",
        "group_state": "Empty",
        "group_epoch": 1,
        "assignor_name": "",
        "members": [],
    }
    return coordinated(
        {
            "CONSUMER_GROUP_DESCRIBE": groups.consumers if members else {"groups": [group]},
            "LIST_OFFSETS": transactions.ends,
            "OFFSET_COMMIT": {"topics": led()},
        }
    )


@pytest.mark.parametrize(
    ("to", "offsets"),
    [("earliest", [2, 2]), ("latest", [9, 9]), ("5", [5, 5]), ("1", [2, 2]), ("99", [9, 9])],
)
async def test_offsets_are_set_within_the_partition(to: str, offsets: list[int]) -> None:
    fake = of_group()
    async with serving(client=fake) as served:
        some_topics(served)
        body = {"group": "g", "topic": "t", "to": to, "partitions": None}
        found = await post(served, "reset-offsets", body)
        assert found.document["done"].startswith(f"2 offsets of group g in t are set to {to} (0: ")
        [commit] = fake.questions("OFFSET_COMMIT")
        assert commit.broker_id == 2
        assert commit.body["generation_id_or_member_epoch"] == -1
        [topic] = commit.body["topics"]
        assert [one["committed_offset"] for one in topic["partitions"]] == offsets
        await post(served, "reset-offsets", {**body, "validate_only": True})
        assert len(fake.questions("OFFSET_COMMIT")) == 1


async def test_offsets_of_a_group_with_members_stay() -> None:
    fake = of_group(members=True)
    async with serving(client=fake) as served:
        some_topics(served)
        found = await post(served, "reset-offsets", {"group": "new", "topic": "t", "to": "latest"})
        assert (found.status, found.document["error"]) == (409, "NON_EMPTY_GROUP")
        assert fake.questions("OFFSET_COMMIT") == []


# --- transactions that hang -----------------------------------------------------------------------


async def test_only_what_hangs_is_aborted() -> None:
    fake = transactions.some_transactions()
    written = {"partition_index": 1, "error_code": 0}
    topics = [{"name": "t", "partitions": [written]}]
    fake.answers["WRITE_TXN_MARKERS"] = {"markers": [{"producer_id": 7, "topics": topics}]}
    async with serving(client=fake) as served:
        some_topics(served)
        found = await post(served, "abort-transaction", {"topic": "t", "partition": 0})
        # Its coordinator knows it: there it would lose a part.
        assert (found.status, found.document["error"]) == (409, "INVALID_TXN_STATE")
        assert fake.questions("WRITE_TXN_MARKERS") == []
        found = await post(served, "abort-transaction", {"producer_id": 7})
        assert found.document == {"done": "1 transaction aborted in t-1"}
        [asked] = fake.questions("WRITE_TXN_MARKERS")
        assert asked.broker_id == 2
        [marker] = asked.body["markers"]
        assert (marker["producer_id"], marker["producer_epoch"]) == (7, 2)
        assert (marker["transaction_result"], marker["coordinator_epoch"]) == (False, 0)
        assert marker["topics"] == [{"name": "t", "partition_indexes": [1]}]
