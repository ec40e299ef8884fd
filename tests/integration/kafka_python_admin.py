"""Every administrative operation of kafka-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kafka
import pytest
from kafka import admin as kafka_admin
from kafka.errors import KafkaError, LogDirNotFoundError, NoError, SecurityDisabledError
from kafka.protocol.admin import ElectionType as KafkaElection

from raftctl.errors import ErrorCode
from tests.integration.admin_place import GROUPS, LOCAL, RECORDS, TRANSACTIONS
from tests.integration.clusters import wait_until

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

    from tests.integration.admin_place import Place


class KafkaPython:
    """A method for each of KafkaAdminClient's, of the same name."""

    def api_versions(self, admin: KafkaAdminClient, at: Place) -> None:
        assert len(admin.api_versions()) > 20

    def get_broker_version_data(self, admin: KafkaAdminClient, at: Place) -> None:
        data = admin.get_broker_version_data(at.brokers[1])
        assert set(data.api_versions) == {int(key) for key in admin.api_versions()}

    def describe_cluster(self, admin: KafkaAdminClient, at: Place) -> None:
        found = admin.describe_cluster()
        assert found["cluster_id"] == at.cluster.layout.cluster_id
        assert sorted(one["broker_id"] for one in found["brokers"]) == at.brokers

    def describe_log_dirs(self, admin: KafkaAdminClient, at: Place) -> None:
        def replicas() -> int:
            answers = admin.describe_log_dirs({at.topic: [0, 1]})
            topics = [one for a in answers for d in a["log_dirs"] for one in d["topics"]]
            return sum(len(topic["partitions"]) for topic in topics)

        wait_until(lambda: replicas() == 6, "six replicas have their directories")

    def alter_replica_log_dirs(self, admin: KafkaAdminClient, at: Place) -> None:
        replica = kafka.TopicPartitionReplica(at.topic, 0, at.brokers[0])
        (answer,) = admin.describe_log_dirs(brokers=[replica.broker_id])
        here = answer["log_dirs"][0]["log_dir"]

        def stays() -> bool:
            return bool(admin.alter_replica_log_dirs({replica: here}) == {replica: NoError})

        wait_until(stays, "a replica is where it is wanted")
        refused = admin.alter_replica_log_dirs({replica: "/nowhere"})
        assert refused == {replica: LogDirNotFoundError}

    def describe_metadata_quorum(self, admin: KafkaAdminClient, at: Place) -> None:
        (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        voters = sorted(one["replica_id"] for one in partition["current_voters"])
        assert voters == sorted(node.node_id for node in at.cluster.layout.controllers)

    def update_features(self, admin: KafkaAdminClient, at: Place) -> None:
        name = "eligible.leader.replicas.version"
        admin.update_features({name: 1})
        wait_until(
            lambda: admin.describe_features()[name].get("finalized") == (1, 1), "a level is told"
        )
        with pytest.raises(KafkaError):
            admin.update_features({name: 99}, validate_only=True)

    describe_features = update_features

    def list_config_resources(self, admin: KafkaAdminClient, at: Place) -> None:
        found = admin.list_config_resources(["topic", "broker"])
        assert at.topic in found["topic"]
        assert sorted(map(int, found["broker"])) == at.brokers

    def list_topics(self, admin: KafkaAdminClient, at: Place) -> None:
        assert at.topic in admin.list_topics()

    def describe_topics(self, admin: KafkaAdminClient, at: Place) -> None:
        (found,) = admin.describe_topics([at.topic])
        assert [len(one["replica_nodes"]) for one in found["partitions"]] == [3, 3]

    def describe_topic_partitions(self, admin: KafkaAdminClient, at: Place) -> None:
        (found,) = admin.describe_topic_partitions([at.topic])["topics"]
        assert [len(one["isr_nodes"]) for one in found["partitions"]] == [3, 3]

    def create_topics(self, admin: KafkaAdminClient, at: Place) -> None:
        name = f"{at.topic}-made"
        shape = {"num_partitions": 1, "replication_factor": 2, "configs": {"retention.ms": "5"}}
        admin.create_topics({name: shape}, validate_only=True)
        assert name not in admin.list_topics()
        admin.create_topics({name: shape})
        admin.wait_for_topics([name])
        with pytest.raises(KafkaError, match="TopicAlreadyExists"):
            admin.create_topics({name: shape})

    wait_for_topics = create_topics

    def create_partitions(self, admin: KafkaAdminClient, at: Place) -> None:
        admin.create_partitions({at.topic: 3})
        with pytest.raises(KafkaError, match="InvalidPartitions"):
            admin.create_partitions({at.topic: 1})

    def delete_topics(self, admin: KafkaAdminClient, at: Place) -> None:
        admin.delete_topics([at.topic])
        wait_until(lambda: at.topic not in admin.list_topics(), "it is gone")

    def delete_records(self, admin: KafkaAdminClient, at: Place) -> None:
        at.fill()
        one = kafka.TopicPartition(at.topic, 0)
        assert admin.delete_records({one: 2})[one]["low_watermark"] == 2

    def list_partition_offsets(self, admin: KafkaAdminClient, at: Place) -> None:
        at.fill()
        one = kafka.TopicPartition(at.topic, 0)
        latest = kafka_admin.OffsetSpec.LATEST
        assert admin.list_partition_offsets({one: latest})[one].offset == RECORDS

    def elect_leaders(self, admin: KafkaAdminClient, at: Place) -> None:
        told = admin.elect_leaders(KafkaElection.PREFERRED, {at.topic: [0, 1]}, raise_errors=False)
        assert told.error_code == ErrorCode.NONE

    def alter_partition_reassignments(self, admin: KafkaAdminClient, at: Place) -> None:
        one = kafka.TopicPartition(at.topic, 0)
        (found,) = admin.describe_topics([at.topic])
        before = found["partitions"][0]["replica_nodes"]
        assert admin.alter_partition_reassignments({one: before[:2]}) == {one: None}

        def moved() -> bool:
            (now,) = admin.describe_topics([at.topic])
            return bool(sorted(now["partitions"][0]["replica_nodes"]) == sorted(before[:2]))

        wait_until(moved, "the partition is moved")
        assert one not in admin.list_partition_reassignments()
        (refused,) = admin.alter_partition_reassignments({one: None}).values()
        assert refused.errno == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    list_partition_reassignments = alter_partition_reassignments

    def alter_configs(self, admin: KafkaAdminClient, at: Place) -> None:
        def value(name: str) -> Any:
            asked = kafka_admin.ConfigResource("topic", at.topic, configs=[name])
            found = admin.describe_configs([asked], config_filter="all")
            return found["topic"][at.topic][name]["value"]

        topic = kafka_admin.ConfigResource("topic", at.topic, configs={"retention.ms": "5"})
        admin.alter_configs([topic])
        wait_until(lambda: value("retention.ms") in ("5", 5), "a config in force")
        reset = kafka_admin.ConfigResource("topic", at.topic, configs=["retention.ms"])
        admin.reset_configs([reset])
        wait_until(lambda: value("retention.ms") not in ("5", 5), "the default in force")

    describe_configs = reset_configs = alter_configs

    def create_acls(self, admin: KafkaAdminClient, at: Place) -> None:
        pattern = kafka_admin.ResourcePattern(kafka_admin.ResourceType.TOPIC, at.topic)
        what = (kafka_admin.ACLOperation.READ, kafka_admin.ACLPermissionType.ALLOW)
        rule = kafka_admin.ACL("User:k", "*", *what, pattern)
        # There is no authorizer that would enforce it.
        created = admin.create_acls([rule])
        assert created["succeeded"] == []
        wanted = kafka_admin.ACLFilter("User:k", None, *what, pattern)
        with pytest.raises(SecurityDisabledError):
            admin.describe_acls(wanted)
        ((_, removed, error),) = admin.delete_acls([wanted])
        assert (removed, error) == ([], SecurityDisabledError)

    describe_acls = delete_acls = create_acls

    def alter_user_scram_credentials(self, admin: KafkaAdminClient, at: Place) -> None:
        change = kafka_admin.UserScramCredentialUpsertion(at.topic, "SCRAM-SHA-512", "pencil")
        assert admin.alter_user_scram_credentials([change]) == {at.topic: None}

        def kept() -> bool:
            return at.topic in admin.describe_user_scram_credentials()

        wait_until(kept, "a credential is described")
        gone = kafka_admin.UserScramCredentialDeletion(at.topic, "SCRAM-SHA-512")
        assert admin.alter_user_scram_credentials([gone]) == {at.topic: None}
        wait_until(lambda: not kept(), "a credential is gone")

    describe_user_scram_credentials = alter_user_scram_credentials


KAFKA_PYTHON_ELSEWHERE = {
    **dict.fromkeys(("DEFAULT_CONFIG", "close"), LOCAL),
    **dict.fromkeys(
        (
            "alter_group_offsets",
            "delete_group_offsets",
            "delete_groups",
            "describe_groups",
            "list_group_offsets",
            "list_groups",
            "remove_group_members",
            "reset_group_offsets",
        ),
        GROUPS,
    ),
    **dict.fromkeys(
        (
            "abort_transaction",
            "describe_producers",
            "describe_transactions",
            "find_hanging_transactions",
            "list_transactions",
        ),
        TRANSACTIONS,
    ),
}
