"""Apache Kafka's table "Operations and Resources on Protocols" in docs/security.

Each line is a row: number and name of the API, operation, resource; `-` where the page has nothing.
Source: docs/security/authorization-and-acls.md of Apache Kafka 4.3.
"""

from __future__ import annotations

from typing import NamedTuple

_ROWS = """
0 PRODUCE Write TransactionalId
0 PRODUCE IdempotentWrite Cluster
0 PRODUCE Write Topic
1 FETCH ClusterAction Cluster
1 FETCH Read Topic
2 LIST_OFFSETS Describe Topic
3 METADATA Describe Topic
3 METADATA Create Cluster
3 METADATA Create Topic
4 LEADER_AND_ISR ClusterAction Cluster
5 STOP_REPLICA ClusterAction Cluster
6 UPDATE_METADATA ClusterAction Cluster
7 CONTROLLED_SHUTDOWN ClusterAction Cluster
8 OFFSET_COMMIT Read Group
8 OFFSET_COMMIT Read Topic
9 OFFSET_FETCH Describe Group
9 OFFSET_FETCH Describe Topic
10 FIND_COORDINATOR Describe Group
10 FIND_COORDINATOR Describe TransactionalId
11 JOIN_GROUP Read Group
12 HEARTBEAT Read Group
13 LEAVE_GROUP Read Group
14 SYNC_GROUP Read Group
15 DESCRIBE_GROUPS Describe Group
16 LIST_GROUPS Describe Cluster
16 LIST_GROUPS Describe Group
17 SASL_HANDSHAKE - -
18 API_VERSIONS - -
19 CREATE_TOPICS Create Cluster
19 CREATE_TOPICS Create Topic
20 DELETE_TOPICS Delete Topic
21 DELETE_RECORDS Delete Topic
22 INIT_PRODUCER_ID Write TransactionalId
22 INIT_PRODUCER_ID IdempotentWrite Cluster
23 OFFSET_FOR_LEADER_EPOCH ClusterAction Cluster
23 OFFSET_FOR_LEADER_EPOCH Describe Topic
24 ADD_PARTITIONS_TO_TXN Write TransactionalId
24 ADD_PARTITIONS_TO_TXN Write Topic
25 ADD_OFFSETS_TO_TXN Write TransactionalId
25 ADD_OFFSETS_TO_TXN Read Group
26 END_TXN Write TransactionalId
27 WRITE_TXN_MARKERS Alter Cluster
27 WRITE_TXN_MARKERS ClusterAction Cluster
28 TXN_OFFSET_COMMIT Write TransactionalId
28 TXN_OFFSET_COMMIT Read Group
28 TXN_OFFSET_COMMIT Read Topic
29 DESCRIBE_ACLS Describe Cluster
30 CREATE_ACLS Alter Cluster
31 DELETE_ACLS Alter Cluster
32 DESCRIBE_CONFIGS DescribeConfigs Cluster
32 DESCRIBE_CONFIGS DescribeConfigs Topic
33 ALTER_CONFIGS AlterConfigs Cluster
33 ALTER_CONFIGS AlterConfigs Topic
34 ALTER_REPLICA_LOG_DIRS Alter Cluster
35 DESCRIBE_LOG_DIRS Describe Cluster
36 SASL_AUTHENTICATE - -
37 CREATE_PARTITIONS Alter Topic
38 CREATE_DELEGATION_TOKEN - -
38 CREATE_DELEGATION_TOKEN CreateTokens User
39 RENEW_DELEGATION_TOKEN - -
40 EXPIRE_DELEGATION_TOKEN - -
41 DESCRIBE_DELEGATION_TOKEN Describe DelegationToken
41 DESCRIBE_DELEGATION_TOKEN DescribeTokens User
42 DELETE_GROUPS Delete Group
43 ELECT_LEADERS ClusterAction Cluster
44 INCREMENTAL_ALTER_CONFIGS AlterConfigs Cluster
44 INCREMENTAL_ALTER_CONFIGS AlterConfigs Topic
45 ALTER_PARTITION_REASSIGNMENTS Alter Cluster
46 LIST_PARTITION_REASSIGNMENTS Describe Cluster
47 OFFSET_DELETE Delete Group
47 OFFSET_DELETE Read Topic
48 DESCRIBE_CLIENT_QUOTAS DescribeConfigs Cluster
49 ALTER_CLIENT_QUOTAS AlterConfigs Cluster
50 DESCRIBE_USER_SCRAM_CREDENTIALS Describe Cluster
51 ALTER_USER_SCRAM_CREDENTIALS Alter Cluster
52 VOTE ClusterAction Cluster
53 BEGIN_QUORUM_EPOCH ClusterAction Cluster
54 END_QUORUM_EPOCH ClusterAction Cluster
55 DESCRIBE_QUORUM Describe Cluster
56 ALTER_PARTITION ClusterAction Cluster
57 UPDATE_FEATURES Alter Cluster
58 ENVELOPE ClusterAction Cluster
59 FETCH_SNAPSHOT ClusterAction Cluster
60 DESCRIBE_CLUSTER Describe Cluster
61 DESCRIBE_PRODUCERS Read Topic
62 BROKER_REGISTRATION ClusterAction Cluster
63 BROKER_HEARTBEAT ClusterAction Cluster
64 UNREGISTER_BROKER Alter Cluster
65 DESCRIBE_TRANSACTIONS Describe TransactionalId
66 LIST_TRANSACTIONS Describe TransactionalId
67 ALLOCATE_PRODUCER_IDS ClusterAction Cluster
68 CONSUMER_GROUP_HEARTBEAT Read Group
69 CONSUMER_GROUP_DESCRIBE Describe Group
70 CONTROLLER_REGISTRATION ClusterAction Cluster
71 GET_TELEMETRY_SUBSCRIPTIONS - -
72 PUSH_TELEMETRY - -
73 ASSIGN_REPLICAS_TO_DIRS ClusterAction Cluster
74 LIST_CONFIG_RESOURCES DescribeConfigs Cluster
75 DESCRIBE_TOPIC_PARTITIONS Describe Topic
76 SHARE_GROUP_HEARTBEAT Read Group
77 SHARE_GROUP_DESCRIBE Describe Group
78 SHARE_FETCH Read Group
78 SHARE_FETCH Read Topic
79 SHARE_ACKNOWLEDGE Read Group
79 SHARE_ACKNOWLEDGE Read Topic
83 INITIALIZE_SHARE_GROUP_STATE ClusterAction Cluster
84 READ_SHARE_GROUP_STATE ClusterAction Cluster
85 WRITE_SHARE_GROUP_STATE ClusterAction Cluster
86 DELETE_SHARE_GROUP_STATE ClusterAction Cluster
87 READ_SHARE_GROUP_STATE_SUMMARY ClusterAction Cluster
88 STREAMS_GROUP_HEARTBEAT Read Group
88 STREAMS_GROUP_HEARTBEAT Describe Topic
88 STREAMS_GROUP_HEARTBEAT Create Topic
89 STREAMS_GROUP_DESCRIBE Describe Group
89 STREAMS_GROUP_DESCRIBE Describe Topic
90 DESCRIBE_SHARE_GROUP_OFFSETS Describe Group
90 DESCRIBE_SHARE_GROUP_OFFSETS Describe Topic
91 ALTER_SHARE_GROUP_OFFSETS Read Group
91 ALTER_SHARE_GROUP_OFFSETS Read Topic
92 DELETE_SHARE_GROUP_OFFSETS Delete Group
92 DELETE_SHARE_GROUP_OFFSETS Read Topic
"""


class Documented(NamedTuple):
    """A row of the page; operation and resource are empty where it names none."""

    api: int
    name: str
    """Of the API; the page has ELECT_PREFERRED_LEADERS for ELECT_LEADERS."""
    operation: str
    resource: str


def documented() -> list[Documented]:
    """All rows, in the page's order."""
    found = []
    for line in _ROWS.split("\n"):
        if line:
            number, name, operation, resource = (
                "" if word == "-" else word for word in line.split()
            )
            found.append(Documented(int(number), name, operation, resource))
    return found
