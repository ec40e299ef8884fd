"""Handlers for administration: requests of operators about topics, configs, quotas and the
cluster.

Changes are forwarded to the active controller, item by item (`forwarding`). The response waits
until this broker's own metadata image shows the change: a client that asks the same broker next
sees it. Descriptions are answered from that image.

    topics              CreateTopics, DeleteTopics, DescribeTopicPartitions
    forwarding          CreatePartitions, and the forwarding that the others share
    configs             DescribeConfigs: values in force, and their sources
    alter_configs       AlterConfigs, IncrementalAlterConfigs (KIP-339)
    config_resources    ListConfigResources (KIP-1142)
    elections           ElectLeaders (KIP-460)
    reassignments       AlterPartitionReassignments, ListPartitionReassignments (KIP-455)
    quorum              DescribeQuorum, UpdateFeatures, UnregisterBroker
    quotas              DescribeClientQuotas, AlterClientQuotas (KIP-546)
    scram               DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554)
    acls                DescribeAcls, CreateAcls, DeleteAcls (KIP-290)

The handlers must not decide on a change: only the controller knows the newest metadata.
"""
