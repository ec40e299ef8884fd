"""Who may administer: each api's operation and resource, and where a denial stands (row S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from broker.apis.handler import InternalTopics, authorization
from broker.protocol.codec import Request
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import ClientConnection, RequestContext
from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.acls import CLUSTER_NAME, Operation, Permission, ResourceType
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.requests.security import (
    AclBinding,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
)
from raftctl.security import Action, Principal, Requester
from tests.kit.authorizing import ListedActions, denying
from tests.unit.broker.apis.asking import ask
from tests.unit.broker.apis.controlled import ControlledBroker
from tests.unit.raftctl.controller.cluster import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataDelta, MetadataImage

pytestmark = pytest.mark.req("S4")

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
OF_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
OF_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OF_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
DENIALS = {OF_CLUSTER, OF_TOPIC, OF_GROUP}
ALICE = Principal("User", "alice")


class OnlyThese(ListedActions):
    """Allows these actions and nothing else."""

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        return not super().authorize(requester, action)


def on_cluster(operation: Operation) -> Action:
    return Action(operation, CLUSTER, CLUSTER_NAME)


def on_topic(operation: Operation, name: str = "t") -> Action:
    return Action(operation, TOPIC, name)


def on_group(operation: Operation) -> Action:
    return Action(operation, GROUP, "g")


class Case(NamedTuple):
    """A request, the action that it needs, and the error codes of its response without it."""

    key: ApiKey
    message: dict[str, Any]
    action: Action
    codes: list[ErrorCode]
    also: tuple[Action, ...] = ()
    """What it needs besides."""


FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "a"}],
    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
}


def describing(kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
    }


def altering(kind: int, name: str) -> dict[str, Any]:
    configs = [{"name": "no.such.key", "config_operation": 0, "value": "1"}]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": False}


def quorum_of(topic: str) -> dict[str, Any]:
    return {"topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]}


def creating(*names: str) -> dict[str, Any]:
    topics = [
        {
            "name": name,
            "num_partitions": 2,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": topics, "timeout_ms": 1000, "validate_only": False}


def deleting(name: str | None, topic_id: Any = None) -> dict[str, Any]:
    names = [] if name is None else [name]
    topics = [{"name": name, "topic_id": topic_id}]
    return {"topic_names": names, "topics": topics, "timeout_ms": 1000}


WITHOUT_TEXT = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.CREATE_PARTITIONS,
}
"""Apache Kafka has none in a refusal."""
CONFIGS = [(2, "t"), (32, "g"), (4, "1"), (4, ""), (8, "1"), (16, "m")]
NEEDS = {2: (on_topic, OF_TOPIC), 32: (on_group, OF_GROUP)}
FEATURE = {
    "feature": "metadata.version",
    "max_version_level": 6,
    "allow_downgrade": False,
    "upgrade_type": 1,
}
CASES = [
    Case(ApiKey.DESCRIBE_ACLS, FILTER, on_cluster(Operation.DESCRIBE), [OF_CLUSTER]),
    Case(
        ApiKey.CREATE_ACLS,
        {"creations": [RULE, RULE]},
        on_cluster(Operation.ALTER),
        [OF_CLUSTER, OF_CLUSTER],
    ),
    Case(ApiKey.DELETE_ACLS, {"filters": [FILTER]}, on_cluster(Operation.ALTER), [OF_CLUSTER]),
    Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {"components": [], "strict": False},
        on_cluster(Operation.DESCRIBE_CONFIGS),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [QUOTA], "validate_only": False},
        on_cluster(Operation.ALTER_CONFIGS),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": None},
        on_cluster(Operation.DESCRIBE),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": [{"name": "bob"}]},
        on_cluster(Operation.DESCRIBE),
        [OF_CLUSTER, OF_CLUSTER],
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []},
        on_cluster(Operation.ALTER),
        [OF_CLUSTER],
    ),
    *(
        Case(ApiKey.DESCRIBE_QUORUM, quorum_of(topic), on_cluster(Operation.DESCRIBE), [OF_CLUSTER])
        for topic in ("__cluster_metadata", "t")
    ),
    Case(
        ApiKey.UPDATE_FEATURES,
        {"timeout_ms": 1000, "feature_updates": [FEATURE], "validate_only": True},
        on_cluster(Operation.ALTER),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.UNREGISTER_BROKER,
        {"broker_id": 3},
        on_cluster(Operation.ALTER),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": "t", "partitions": [0]}],
            "timeout_ms": 1000,
        },
        on_cluster(Operation.ALTER),
        [OF_CLUSTER, OF_CLUSTER],
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000},
        on_cluster(Operation.ALTER),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "timeout_ms": 1000,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [2]}]}],
        },
        on_cluster(Operation.ALTER),
        [OF_CLUSTER, OF_CLUSTER],
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        {"timeout_ms": 1000, "topics": None},
        on_cluster(Operation.DESCRIBE),
        [OF_CLUSTER],
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        {"resource_types": []},
        on_cluster(Operation.DESCRIBE_CONFIGS),
        [OF_CLUSTER],
    ),
    *(
        Case(ApiKey.DESCRIBE_CONFIGS, describing(kind, name), need(operation), [error])
        for operation in (Operation.DESCRIBE_CONFIGS,)
        for kind, name in CONFIGS
        for need, error in (NEEDS.get(kind, (on_cluster, OF_CLUSTER)),)
    ),
    *(
        Case(key, altering(kind, name), need(operation), [error])
        for operation in (Operation.ALTER_CONFIGS,)
        for key in (ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS)
        for kind, name in CONFIGS
        if (key, kind) != (ApiKey.ALTER_CONFIGS, 8)
        for need, error in (NEEDS.get(kind, (on_cluster, OF_CLUSTER)),)
    ),
    Case(ApiKey.CREATE_TOPICS, creating("new"), on_cluster(Operation.CREATE), [OF_TOPIC]),
    Case(ApiKey.CREATE_TOPICS, creating("new"), on_topic(Operation.CREATE, "new"), [OF_TOPIC]),
    Case(ApiKey.DELETE_TOPICS, deleting("t"), on_cluster(Operation.DELETE), [OF_TOPIC]),
    Case(
        ApiKey.DELETE_TOPICS,
        deleting("t"),
        on_topic(Operation.DELETE),
        [OF_TOPIC],
        (on_topic(Operation.DESCRIBE),),
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [{"name": "t", "count": 2, "assignments": None}],
            "timeout_ms": 1000,
            "validate_only": False,
        },
        on_topic(Operation.ALTER),
        [OF_TOPIC],
    ),
]


def fields(answer: Any, wanted: str) -> Iterator[Any]:
    """The values of all fields of a response that have this name, in its order."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name == wanted:
                yield value
            else:
                yield from fields(value, wanted)
    elif isinstance(answer, list):
        for one in answer:
            yield from fields(one, wanted)


def codes(answer: Any) -> Iterator[int]:
    """All error codes of a response, in its order."""
    return fields(answer, "error_code")


@pytest.fixture
def broker() -> ControlledBroker:
    """With a topic `t`."""
    broker = ControlledBroker()
    broker.cluster.assign("t", (1, 2))
    broker.publish()
    return broker


def case_id(case: Case) -> str:
    return f"{case.key.name}-{case.action.operation.name}-{case.action.resource_type.name}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
async def test_who_lacks_the_right_is_denied(broker: ControlledBroker, case: Case) -> None:
    before = broker.metadata.image
    broker.authorize_by(OnlyThese(denied=case.also))
    answer = await ask(broker, case.key, SERVED[case.key][-1], case.message)
    assert list(codes(answer)) == case.codes
    assert broker.cluster.image is before
    has_text = case.key not in WITHOUT_TEXT
    assert all(bool(text) == has_text for text in fields(answer, "error_message"))


@pytest.mark.parametrize("case", CASES, ids=case_id)
async def test_who_has_the_right_and_no_other_is_not(broker: ControlledBroker, case: Case) -> None:
    broker.authorize_by(OnlyThese(denied=[case.action, *case.also]))
    answer = await ask(broker, case.key, SERVED[case.key][-1], case.message)
    found = set(codes(answer))
    assert found
    assert not found & DENIALS


async def test_an_old_version_has_the_denial_where_it_has_room(broker: ControlledBroker) -> None:
    broker.authorize_by(denying(on_cluster(Operation.ALTER)))
    partitions = [{"topic": "t", "partitions": [0, 1]}]
    answer = await ask(broker, 43, 0, {"topic_partitions": partitions, "timeout_ms": 1000})
    assert list(codes(answer)) == [OF_CLUSTER, OF_CLUSTER]


async def test_reassignments_that_may_not_be_listed_have_no_replicas(
    broker: ControlledBroker,
) -> None:
    broker.authorize_by(denying(on_cluster(Operation.DESCRIBE)))
    topics = [{"name": "t", "partition_indexes": [0]}, {"name": "absent", "partition_indexes": []}]
    answer = await ask(broker, 46, 0, {"timeout_ms": 1000, "topics": topics})
    assert answer["error_code"] == OF_CLUSTER
    named, absent = answer["topics"]
    assert (named["name"], absent) == ("t", {"name": "absent", "partitions": []})
    (partition,) = named["partitions"]
    assert partition["replicas"] == []


# --- topics ---------------------------------------------------------------------------------------


async def test_configs_of_a_new_topic_are_for_who_may_describe_them(
    broker: ControlledBroker,
) -> None:
    broker.authorize_by(denying(on_topic(Operation.DESCRIBE_CONFIGS, "hidden")))
    answer = await ask(broker, 19, 7, creating("hidden", "shown"))
    hidden, shown = answer["topics"]
    assert hidden["error_code"] == shown["error_code"] == 0
    assert hidden["topic_id"] == broker.cluster.topic("hidden").topic_id
    assert hidden["topic_config_error_code"] == OF_TOPIC
    assert (hidden["num_partitions"], hidden["replication_factor"]) == (-1, -1)
    assert not hidden["configs"]
    assert shown["topic_config_error_code"] == 0
    assert (shown["num_partitions"], shown["replication_factor"]) == (2, 1)
    assert shown["configs"]


async def test_a_refusal_to_delete_by_id_has_the_name_for_who_may_describe_it(
    broker: ControlledBroker,
) -> None:
    topic_id = broker.cluster.topic("t").topic_id
    rights = [on_cluster(Operation.DELETE), on_topic(Operation.DELETE)]
    broker.authorize_by(denying(*rights))
    (visible,) = (await ask(broker, 20, 6, deleting(None, topic_id)))["responses"]
    expected = {"name": "t", "topic_id": topic_id, "error_code": OF_TOPIC}
    assert {name: visible[name] for name in expected} == expected
    broker.authorize_by(denying(*rights, on_topic(Operation.DESCRIBE)))
    (hidden,) = (await ask(broker, 20, 6, deleting(None, topic_id)))["responses"]
    assert {name: hidden[name] for name in expected} == expected | {"name": None}


async def test_a_topic_that_may_not_be_described_is_denied_whether_it_exists_or_not(
    broker: ControlledBroker,
) -> None:
    hidden = [on_topic(Operation.DESCRIBE, name) for name in ("t", "absent")]
    broker.authorize_by(denying(on_cluster(Operation.DELETE), *hidden))
    found, absent = [
        (await ask(broker, 20, 6, deleting(name)))["responses"][0] for name in ("t", "absent")
    ]
    assert found | {"name": "absent"} == absent
    assert absent["error_code"] == OF_TOPIC


# --- the controller decides -----------------------------------------------------------------------


class RulesOfTheImage:
    """Allows what a rule of the newest image allows literally, and denies all else."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

    def publish(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """See `raftctl.security.Authorizer`."""
        del delta
        self.image = image

    def authorize(self, requester: Requester, action: Action) -> bool:
        """See `raftctl.security.Authorizer`."""
        return any(
            (rule.principal, rule.operation, rule.resource_type, rule.resource_name)
            == (str(requester.principal), *action[:3])
            for rule in self.image.acls.values()
        )

    def authorize_prefix(self, requester: Requester, action: Action) -> bool:
        """Return False: nobody asks."""
        del requester, action
        return False

    def authorize_by_resource_type(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return False: nobody asks."""
        del requester, operation, resource_type
        return False


async def test_a_broker_with_an_older_image_lets_nobody_change_metadata(
    broker: ControlledBroker,
) -> None:
    """The rule is revoked; the controller knows it, and this broker does not yet."""
    rule = AclBinding(TOPIC, "new", 3, str(ALICE), "*", Operation.CREATE, Permission.ALLOW)
    broker.cluster.handle(CreateAclsRequest((rule,)))
    broker.publish()
    stale, newest = RulesOfTheImage(), RulesOfTheImage()
    stale.publish(None, broker.metadata.image)
    newest.publish(None, broker.cluster.image)
    broker.authorize_by(stale)
    broker.controller_authorizer = newest
    (topic,) = (await ask(broker, 19, 7, creating("new"), ALICE))["topics"]
    assert topic["error_code"] == 0
    everything = AclFilter(1, None, 1, None, None, 1, 1)
    broker.cluster.handle(DeleteAclsRequest((everything,)))
    newest.publish(None, broker.cluster.image)
    connection = ClientConnection(principal=ALICE)
    asked: Request[Any] = Request(19, 7, 1, "test", {}, RequestContext(connection))
    create = Operation.CREATE
    assert authorization.is_allowed(broker.context, asked, create, TOPIC, "new")
    broker.cluster.delete(("new", None))
    (topic,) = (await ask(broker, 19, 7, creating("new"), ALICE))["topics"]
    assert topic["error_code"] == OF_TOPIC
    assert broker.cluster.image.topics.by_name("new") is None


async def test_the_principal_and_the_host_travel_with_what_is_forwarded(
    broker: ControlledBroker,
) -> None:
    authorizer = ListedActions()
    broker.authorize_by(authorizer)
    await ask(broker, 19, 7, creating("new"), ALICE)
    assert {requester for requester, _ in authorizer.asked} == {Requester(ALICE, "10.0.0.7")}


async def test_a_broker_creates_its_own_topics_in_its_own_name(broker: ControlledBroker) -> None:
    broker.authorize_by(denying(on_cluster(Operation.CREATE)))
    own = InternalTopics(broker.config, broker, broker.metadata)
    await own.ensure("__consumer_offsets")
    assert broker.cluster.image.topics.by_name("__consumer_offsets") is not None


@pytest.mark.parametrize("version", SERVED[ApiKey.DELETE_TOPICS])
async def test_that_nothing_is_deleted_is_said_to_all(version: int) -> None:
    """As with Apache Kafka, which asks the authorizer afterwards."""
    broker = ControlledBroker(ControllerConfig(cluster_id=CLUSTER_ID, topic_deletion=False))
    broker.cluster.assign("t", (1,))
    broker.publish()
    broker.authorize_by(OnlyThese())
    message = {
        "topics": [{"name": "t", "topic_id": None}],
        "topic_names": ["t"],
        "timeout_ms": 1_000,
    }
    (found,) = (await ask(broker, ApiKey.DELETE_TOPICS, version, message))["responses"]
    disabled = ErrorCode.TOPIC_DELETION_DISABLED
    assert found["error_code"] == (disabled if version >= 3 else ErrorCode.INVALID_REQUEST)
