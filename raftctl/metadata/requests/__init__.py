"""Requests to the active controller and its responses.

Brokers, standby controllers and administrative tools send these objects over the inner RPC;
they are packed like records. Each module holds one family:

* `cluster`: brokers and controllers register, heartbeat, change ISRs; topics are created and
  deleted;
* `admin`: configs, partitions, elections, reassignments, features, the quorum's description;
* `security`: client quotas, access control lists, SCRAM credentials, delegation tokens;
* `kv`: keys and values, sessions, locks and guarded writes.

`ControllerRequest` is the union of all requests, `ControllerResponse` that of all responses.
`ForwardedRequest` is that of the requests which brokers pass on for clients. Their `requester` is
(principal, host) of the client; the controller's authorizer is asked with it (KIP-590). Their
`origin` names the client's request, for logs and traces.

A response carries an `ErrorCode` of Kafka's table, for the request or for each of its items.
NOT_CONTROLLER means that another node may be the active controller: find it and ask again.
REQUEST_TIMED_OUT means that the outcome is unknown, since the records may still commit.

The requests say nothing about how they are decided, nor about Kafka's own wire protocol:
brokers translate between the two.

Sources: KIP-631 (registration, heartbeats), KIP-497 (AlterPartition), KIP-858 (directories),
KIP-730 (producer ids), KIP-455, KIP-460, KIP-584.
"""

from raftctl.metadata.requests import admin, cluster, kv, security

__all__ = ["ControllerRequest", "ControllerResponse", "ForwardedRequest"]

ControllerRequest = admin.Request | cluster.Request | kv.Request | security.Request
ControllerResponse = admin.Response | cluster.Response | kv.Response | security.Response
ForwardedRequest = (
    admin.Request | cluster.CreateTopicsRequest | cluster.DeleteTopicsRequest | security.Request
)
