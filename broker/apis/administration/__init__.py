"""Handlers for administration: requests of operators about topics, configs, quotas, the cluster.

`APIS` is the table of this family, from an api's key to its handler and its refusal. Changes are
forwarded to the active controller, item by item. The response waits until this broker's own
metadata image shows the change: a client that asks the same broker next sees it. Descriptions are
answered from that image.

    topics              CreateTopics, DeleteTopics, DescribeTopicPartitions
    forwarding          CreatePartitions, and the forwarding that the others share
    configs             DescribeConfigs, AlterConfigs, IncrementalAlterConfigs (KIP-339),
                        ListConfigResources (KIP-1142)
    loggers             levels of this broker's loggers, as configs (KIP-412)
    elections           ElectLeaders (KIP-460)
    reassignments       AlterPartitionReassignments, ListPartitionReassignments (KIP-455)
    quorum              DescribeQuorum, UpdateFeatures, UnregisterBroker
    quotas              DescribeClientQuotas, AlterClientQuotas (KIP-546)
    scram               DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554)
    acls                DescribeAcls, CreateAcls, DeleteAcls (KIP-290)
    tokens              CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken,
                        DescribeDelegationToken (KIP-48)

The handlers must not decide on a change, nor on who may make it: only the controller knows the
newest metadata. A broker that refused on its older image would refuse a topic that exists by now.
What a broker answers from its own image, its own authorizer allows.

Invariants:

- Each item of a request has its own error code, unless the controller refuses all.
- A response without an error names what is committed in the metadata log. It may come before this
  broker's image shows it only when the client's timeout is over.
"""

from broker.apis.administration import (
    _acls,
    _configs,
    _elections,
    _forwarding,
    _quorum,
    _quotas,
    _reassignments,
    _scram,
    _tokens,
    _topics,
)
from broker.apis.handler import Api, refuse_each
from broker.protocol.versions import ApiKey

APIS: dict[int, Api] = {
    ApiKey.CREATE_TOPICS: Api(_topics.handle_create, _topics.refuse_create),
    ApiKey.DELETE_TOPICS: Api(_topics.handle_delete, _topics.refuse_delete),
    ApiKey.DESCRIBE_CONFIGS: Api(_configs.handle_describe, refuse_each("resources")),
    ApiKey.CREATE_PARTITIONS: Api(
        _forwarding.handle_create_partitions, _forwarding.refuse_create_partitions
    ),
    ApiKey.ALTER_CONFIGS: Api(_configs.handle_alter, refuse_each("resources")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(_configs.handle_incremental, refuse_each("resources")),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(_reassignments.handle, refuse_each("topics")),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        _reassignments.handle_list, _reassignments.refuse_list
    ),
    ApiKey.DESCRIBE_ACLS: Api(_acls.handle_describe),
    ApiKey.CREATE_ACLS: Api(_acls.handle_create, refuse_each("creations")),
    ApiKey.DELETE_ACLS: Api(_acls.handle_delete, refuse_each("filters")),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api(_quotas.handle_describe, _quotas.refuse_describe),
    ApiKey.ALTER_CLIENT_QUOTAS: Api(_quotas.handle_alter, refuse_each("entries")),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(_scram.handle_describe, _scram.refuse_describe),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api(_scram.handle_alter, _scram.refuse_alter),
    ApiKey.CREATE_DELEGATION_TOKEN: Api(_tokens.handle_create, _tokens.refuse_create),
    ApiKey.RENEW_DELEGATION_TOKEN: Api(_tokens.handle_renew, _tokens.refuse_change),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api(_tokens.handle_expire, _tokens.refuse_change),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api(_tokens.handle_describe),
    ApiKey.DESCRIBE_QUORUM: Api(_quorum.handle_describe),
    ApiKey.UPDATE_FEATURES: Api(_quorum.handle_features),
    ApiKey.UNREGISTER_BROKER: Api(_quorum.handle_unregister, _quorum.refuse_unregister),
    ApiKey.ELECT_LEADERS: Api(_elections.handle, _elections.refuse),
    ApiKey.LIST_CONFIG_RESOURCES: Api(_configs.handle_list),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
        _topics.handle_describe_partitions, refuse_each("topics")
    ),
}

__all__ = [
    "APIS",
]
