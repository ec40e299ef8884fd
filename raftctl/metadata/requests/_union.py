"""Unions of all requests to the active controller, and of all its responses."""

from __future__ import annotations

from raftctl.metadata.requests.admin import (
    AdminResponse,
    AlterConfigsRequest,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
)
from raftctl.metadata.requests.kv import (
    KvBarrierRequest,
    KvBarrierResponse,
    KvCasRequest,
    KvCloseSessionRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGetResponse,
    KvGuardedWriteRequest,
    KvHeartbeatRequest,
    KvLockRequest,
    KvLockResponse,
    KvOpenSessionRequest,
    KvPutRequest,
    KvSessionResponse,
    KvUnlockRequest,
    KvWriteResponse,
)
from raftctl.metadata.requests.security import (
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

ControllerRequest = (
    RegisterBrokerRequest
    | BrokerHeartbeatRequest
    | AlterPartitionRequest
    | AllocateProducerIdsRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | KvPutRequest
    | KvGetRequest
    | KvCasRequest
    | KvDeleteRequest
    | KvGuardedWriteRequest
    | KvOpenSessionRequest
    | KvHeartbeatRequest
    | KvCloseSessionRequest
    | KvLockRequest
    | KvUnlockRequest
    | KvBarrierRequest
    | CreatePartitionsRequest
    | ElectLeadersRequest
    | AlterConfigsRequest
    | AlterReassignmentsRequest
    | UpdateFeaturesRequest
    | UnregisterBrokerRequest
    | DescribeQuorumRequest
    | AlterClientQuotasRequest
    | CreateAclsRequest
    | DeleteAclsRequest
    | AlterScramRequest
    | AssignReplicasToDirsRequest
    | RegisterControllerRequest
)
ControllerResponse = (
    RegisterBrokerResponse
    | BrokerHeartbeatResponse
    | AlterPartitionResponse
    | AllocateProducerIdsResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | KvGetResponse
    | KvWriteResponse
    | KvSessionResponse
    | KvLockResponse
    | KvBarrierResponse
    | AdminResponse
    | ElectLeadersResponse
    | DescribeQuorumResponse
    | DeleteAclsResponse
    | AssignReplicasToDirsResponse
    | RegisterControllerResponse
)
