"""Every administrative operation of three unmodified clients, on a cluster of real processes.

A table for each client names each of its public methods: either there is a test of it here, or the
table says where it belongs. A method that a new version brings fails the first test.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AiokafkaPartitions
from aiokafka.admin import NewTopic as AiokafkaTopic
from aiokafka.admin.config_resource import ConfigResource as AiokafkaResource
from aiokafka.admin.config_resource import ConfigResourceType
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient

from raftctl.cli.kafka.admin import admin_client
from raftctl.errors import ErrorCode
from tests.integration.admin_place import GROUPS, LOCAL, RECORDS, TIMEOUT_S, Place
from tests.integration.clusters import wait_until
from tests.integration.kafka_python_admin import KAFKA_PYTHON_ELSEWHERE, KafkaPython
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from raftctl.localcluster.cluster import LocalCluster

pytestmark = pytest.mark.req("N1", "C3", "C5", "C7", "C9", "C11", "C12")


def done(futures: Any) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


# --- confluent-kafka ------------------------------------------------------------------------------


class Confluent:
    """A method for each of AdminClient's, of the same name."""

    def alter_configs(self, admin: AdminClient, at: Place) -> None:
        for value in ("5", "6"):
            resource = ConfigResource(ResourceType.TOPIC, at.topic, {"retention.ms": value})
            with pytest.warns(DeprecationWarning, match="alter_configs"):
                done(admin.alter_configs([resource]))
        self._wait_config(admin, at, "retention.ms", "6")

    def incremental_alter_configs(self, admin: AdminClient, at: Place) -> None:
        entry = ConfigEntry(
            "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
        )
        resource = ConfigResource(ResourceType.TOPIC, at.topic, incremental_configs=[entry])
        done(admin.incremental_alter_configs([resource]))
        self._wait_config(admin, at, "cleanup.policy", "delete,compact")

    def describe_configs(self, admin: AdminClient, at: Place) -> None:
        broker = ConfigResource(ResourceType.BROKER, str(at.brokers[0]))
        found = done(admin.describe_configs([broker]))
        assert found["broker.id" if "broker.id" in found else "node.id"].value == broker.name
        self._wait_config(admin, at, "min.insync.replicas", "1")

    def _wait_config(self, admin: AdminClient, at: Place, name: str, value: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, at.topic)
        wait_until(
            lambda: done(admin.describe_configs([resource]))[name].value == value,
            f"{name}={value} in force",
        )

    def cluster_id(self, admin: AdminClient, at: Place) -> None:
        assert admin.cluster_id(timeout=TIMEOUT_S) == at.cluster.layout.cluster_id

    def describe_cluster(self, admin: AdminClient, at: Place) -> None:
        found = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
        assert found.cluster_id == at.cluster.layout.cluster_id
        assert sorted(node.id for node in found.nodes) == at.brokers
        assert found.controller.id in at.brokers
        assert found.authorized_operations

    def list_topics(self, admin: AdminClient, at: Place) -> None:
        (partitions,) = {len(admin.list_topics(at.topic, TIMEOUT_S).topics[at.topic].partitions)}
        assert partitions == 2
        assert at.topic in admin.list_topics(timeout=TIMEOUT_S).topics

    def describe_topics(self, admin: AdminClient, at: Place) -> None:
        found = done(admin.describe_topics(TopicCollection([at.topic])))
        assert [len(one.replicas) for one in found.partitions] == [3, 3]
        assert not found.is_internal

    def create_topics(self, admin: AdminClient, at: Place) -> None:
        assignment = [[3, 1], [2, 3]]
        chosen = NewTopic(f"{at.topic}-chosen", len(assignment), replica_assignment=assignment)
        done(admin.create_topics([chosen]))
        with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
            done(admin.create_topics([NewTopic(at.topic, 1, 1)]))
        tried = NewTopic(f"{at.topic}-tried", 1, 1)
        done(admin.create_topics([tried], validate_only=True))
        assert f"{at.topic}-tried" not in admin.list_topics(timeout=TIMEOUT_S).topics

    def create_partitions(self, admin: AdminClient, at: Place) -> None:
        done(admin.create_partitions([NewPartitions(at.topic, 4)]))
        with pytest.raises(Exception, match="INVALID_PARTITIONS"):
            done(admin.create_partitions([NewPartitions(at.topic, 3)]))

    def delete_topics(self, admin: AdminClient, at: Place) -> None:
        done(admin.delete_topics([at.topic]))
        wait_until(
            lambda: at.topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "it is gone"
        )

    def delete_records(self, admin: AdminClient, at: Place) -> None:
        at.fill()
        first = TopicPartition(at.topic, 0, 2)
        assert done(admin.delete_records([first])).low_watermark == 2

    def list_offsets(self, admin: AdminClient, at: Place) -> None:
        at.fill()
        kinds: Any = OffsetSpec
        for spec, expected in ((kinds.earliest(), 0), (kinds.latest(), RECORDS)):
            asked = {TopicPartition(at.topic, 0): spec}
            assert done(admin.list_offsets(asked)).offset == expected

    def elect_leaders(self, admin: AdminClient, at: Place) -> None:
        one = TopicPartition(at.topic, 0)
        found = admin.elect_leaders(ElectionType.PREFERRED, [one]).result(TIMEOUT_S)
        assert found[one] is None or found[one].code() == ErrorCode.ELECTION_NOT_NEEDED

    def create_acls(self, admin: AdminClient, at: Place) -> None:
        names = (ResourceType.TOPIC, at.topic, ResourcePatternType.LITERAL, "User:a", "*")
        rule = AclBinding(*names, AclOperation.READ, AclPermissionType.ALLOW)
        wanted = AclBindingFilter(*names, AclOperation.ANY, AclPermissionType.ANY)
        # There is no authorizer that would enforce it.
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            done(admin.create_acls([rule]))
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            done(admin.delete_acls([wanted]))
        # Of this one librdkafka keeps the error to itself.
        assert admin.describe_acls(wanted).result(TIMEOUT_S) == []

    describe_acls = delete_acls = create_acls

    def alter_user_scram_credentials(self, admin: AdminClient, at: Place) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(at.topic, info, b"pencil")
        done(admin.alter_user_scram_credentials([change]))

        def kept() -> bool:
            everybody: Any = admin.describe_user_scram_credentials()
            return at.topic in everybody.result(TIMEOUT_S)

        wait_until(kept, "a credential is described")
        deletion = UserScramCredentialDeletion(at.topic, ScramMechanism.SCRAM_SHA_256)
        done(admin.alter_user_scram_credentials([deletion]))
        wait_until(lambda: not kept(), "a credential is gone")

    describe_user_scram_credentials = alter_user_scram_credentials


CONFLUENT_ELSEWHERE = {
    **dict.fromkeys(("poll", "set_sasl_credentials"), LOCAL),
    **dict.fromkeys(
        (
            "alter_consumer_group_offsets",
            "delete_consumer_groups",
            "describe_consumer_groups",
            "list_consumer_group_offsets",
            "list_consumer_groups",
            "list_groups",
        ),
        GROUPS,
    ),
}


# --- aiokafka -------------------------------------------------------------------------------------


class Aiokafka:
    """A method for each of AIOKafkaAdminClient's, of the same name."""

    async def describe_cluster(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        found = await admin.describe_cluster()
        assert sorted(one["node_id"] for one in found["brokers"]) == at.brokers

    async def list_topics(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        assert at.topic in await admin.list_topics()

    async def describe_topics(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        (found,) = await admin.describe_topics([at.topic])
        assert sorted(one["partition"] for one in found["partitions"]) == [0, 1]

    async def create_topics(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        new = AiokafkaTopic(f"{at.topic}-made", 1, 2, topic_configs={"retention.ms": "5"})
        for expected in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            told = await admin.create_topics([new])
            assert told.topic_errors[0][:2] == (new.name, expected)

    async def create_partitions(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        told = await admin.create_partitions({at.topic: AiokafkaPartitions(3)})
        assert told.topic_errors[0][:2] == (at.topic, ErrorCode.NONE)

    async def delete_topics(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        told = await admin.delete_topics([at.topic])
        assert told.topic_error_codes == [(at.topic, ErrorCode.NONE)]

    async def delete_records(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        await asyncio.to_thread(at.fill)
        one = AiokafkaPartition(at.topic, 0)
        assert await admin.delete_records({one: RecordsToDelete(2)}) == {one: 2}

    async def alter_configs(self, admin: AIOKafkaAdminClient, at: Place) -> None:
        kind = ConfigResourceType.TOPIC
        await admin.alter_configs([AiokafkaResource(kind, at.topic, {"segment.ms": "600000"})])
        deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S
        while True:
            (answer,) = await admin.describe_configs([AiokafkaResource(kind, at.topic)])
            ((error, _, _, name, entries),) = answer.resources
            assert (error, name) == (ErrorCode.NONE, at.topic)
            if ("segment.ms", "600000") in [entry[:2] for entry in entries]:
                return
            assert asyncio.get_running_loop().time() < deadline_s, entries

    describe_configs = alter_configs


AIOKAFKA_ELSEWHERE = {
    **dict.fromkeys(("start", "close"), "every operation here does it"),
    **dict.fromkeys(
        (
            "describe_consumer_groups",
            "find_coordinator",
            "list_consumer_group_offsets",
            "list_consumer_groups",
        ),
        GROUPS,
    ),
}


# --- the tables -----------------------------------------------------------------------------------


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def operations(of: type) -> list[str]:
    return sorted(public(of))


@pytest.mark.parametrize(
    ("client", "tested", "elsewhere"),
    [
        (AdminClient, Confluent, CONFLUENT_ELSEWHERE),
        (KafkaAdminClient, KafkaPython, KAFKA_PYTHON_ELSEWHERE),
        (AIOKafkaAdminClient, Aiokafka, AIOKAFKA_ELSEWHERE),
    ],
)
def test_no_operation_is_forgotten(client: type, tested: type, elsewhere: dict[str, str]) -> None:
    assert public(tested).isdisjoint(elsewhere)
    assert public(client) == public(tested) | set(elsewhere)


@pytest.fixture
def place(cluster: LocalCluster, request: pytest.FixtureRequest) -> Place:
    name = request.node.name.replace("[", "-").rstrip("]")
    create_topic(admin_client(cluster.layout.bootstrap), name, 2, 3, {}, TIMEOUT_S)
    return Place(cluster, name)


@pytest.fixture(scope="module")
def confluent(shared_cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_cluster.layout.bootstrap})


@pytest.fixture(scope="module")
def kafka_python(shared_cluster: LocalCluster) -> Iterator[KafkaAdminClient]:
    with contextlib.closing(
        KafkaAdminClient(bootstrap_servers=shared_cluster.layout.bootstrap.split(","))
    ) as client:
        yield client


@pytest.mark.parametrize("operation", operations(Confluent))
def test_confluent_kafka(confluent: AdminClient, place: Place, operation: str) -> None:
    act: Callable[[AdminClient, Place], None] = getattr(Confluent(), operation)
    act(confluent, place)


@pytest.mark.parametrize("operation", operations(KafkaPython))
def test_kafka_python(kafka_python: KafkaAdminClient, place: Place, operation: str) -> None:
    act: Callable[[KafkaAdminClient, Place], None] = getattr(KafkaPython(), operation)
    act(kafka_python, place)


@pytest.mark.parametrize("operation", operations(Aiokafka))
async def test_aiokafka(place: Place, operation: str) -> None:
    act: Callable[[AIOKafkaAdminClient, Place], Awaitable[None]] = getattr(Aiokafka(), operation)
    admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
    await admin.start()
    try:
        await act(admin, place)
    finally:
        await admin.close()
