"""Unmodified admin clients do all they can for these requests, with the real controller."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions as ConfluentPartitions

from raftctl.errors import ErrorCode
from tests.unit.broker.apis.controlled import ControlledBroker, listening

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("N1")
TIMEOUT_S = 20


# --- confluent-kafka ------------------------------------------------------------------------------


def confluent(broker: ControlledBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


def result(futures: Any) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


@pytest.mark.req("C3", "C5", "C9")
async def test_confluent_kafka_administers_topics_and_configs() -> None:
    async with listening() as broker:
        broker.cluster.assign("t", (2, 1))
        broker.publish()

        def administer() -> dict[str, tuple[str, int]]:
            admin = confluent(broker)
            result(admin.create_partitions([ConfluentPartitions("t", 3)]))
            elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)])
            ((_, error),) = elected.result(TIMEOUT_S).items()
            assert error.code() == ErrorCode.ELECTION_NOT_NEEDED
            change = ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
            result(admin.incremental_alter_configs([resource]))
            found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]))
            return {name: (entry.value, entry.source) for name, entry in found.items()}

        configs = await asyncio.to_thread(administer)
        assert configs["retention.ms"] == ("5", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert len(broker.cluster.topic("t").partitions) == 3


@pytest.mark.req("C12")
async def test_confluent_kafka_administers_rules_and_credentials() -> None:
    async with listening() as broker:
        names = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*")
        rule = AclBinding(*names, AclOperation.READ, AclPermissionType.ALLOW)
        wanted = AclBindingFilter(*names, AclOperation.ANY, AclPermissionType.ANY)

        def administer() -> None:
            admin = confluent(broker)
            result(admin.create_acls([rule]))
            assert admin.describe_acls(wanted).result(TIMEOUT_S) == [rule]
            assert result(admin.delete_acls([wanted])) == [rule]
            assert admin.describe_acls(wanted).result(TIMEOUT_S) == []
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
            credential = UserScramCredentialUpsertion("alice", info, b"pencil", b"salt")
            result(admin.alter_user_scram_credentials([credential]))
            told = result(admin.describe_user_scram_credentials(["alice"]))
            (kept,) = told.scram_credential_infos
            assert (kept.mechanism, kept.iterations) == (ScramMechanism.SCRAM_SHA_512, 8192)

        await asyncio.to_thread(administer)
        assert list(broker.cluster.image.scram) == [("alice", 2)]


# --- kafka-python ---------------------------------------------------------------------------------


@pytest.fixture
def kafka_python() -> Iterator[Any]:
    """Its modules; it reads its schemas in a way that Python 3.11 deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module("kafka")


@pytest.mark.req("C3", "C7", "C9", "C11")
async def test_kafka_python_administers(kafka_python: Any) -> None:
    admins = importlib.import_module("kafka.admin")
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()

        def administer() -> None:
            admin = admins.KafkaAdminClient(bootstrap_servers=broker.address)
            try:
                of_t = kafka_python.TopicPartition("t", 0)
                admin.create_partitions({"t": 2})
                assert admin.alter_partition_reassignments({of_t: [3, 2]}) == {of_t: None}
                (moving,) = admin.list_partition_reassignments().values()
                assert moving["replicas"] == [3, 2, 1]
                assert moving["adding_replicas"] == [3]
                assert moving["removing_replicas"] == [1]
                assert admin.alter_partition_reassignments({of_t: None}) == {of_t: None}
                assert admin.list_partition_reassignments() == {}
                topic = admins.ConfigResource("topic", "t", configs={"retention.ms": "5"})
                admin.alter_configs([topic])
                admin.update_features({"eligible.leader.replicas.version": 1})
                features = admin.describe_features()
                assert features["eligible.leader.replicas.version"]["finalized"] == (1, 1)
                assert features["eligible.leader.replicas.version"]["supported"] == (0, 1)
            finally:
                admin.close()

        await asyncio.to_thread(administer)
        assert broker.cluster.partition("t").replicas == (2, 1)
        assert dict(broker.cluster.image.config(2, "t")) == {"retention.ms": "5"}


# --- aiokafka -------------------------------------------------------------------------------------


@pytest.mark.req("C3", "C9")
async def test_aiokafka_administers() -> None:
    config = importlib.import_module("aiokafka.admin.config_resource")
    async with listening() as broker:
        broker.cluster.assign("t", (1, 2))
        broker.publish()
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
        await admin.start()
        try:
            await admin.create_partitions({"t": NewPartitions(2)})
            topic = config.ConfigResource(config.ConfigResourceType.TOPIC, "t", {"segment.ms": "6"})
            await admin.alter_configs([topic])
            described = await admin.describe_topics(["t"])
        finally:
            await admin.close()
        assert len(described[0]["partitions"]) == 2
        assert dict(broker.cluster.image.config(2, "t")) == {"segment.ms": "6"}
