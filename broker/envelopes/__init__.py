"""Requests that one node makes of brokers in the name of somebody else (KIP-590's ENVELOPE).

A node's console shows what only brokers know, and changes the cluster, as its requester would. The
request of the requester, its principal and its host travel in an envelope over the listener of the
brokers. The broker that opens it answers as it would answer the requester's own connection.

    Envelopes       opens the envelopes of one listener, before dispatch
    LocalBroker     answers as a requester: what is in envelopes, or a node in its own process
    EnvelopeClient  asks brokers: its own in process, others in envelopes

Decides: who may send envelopes, which requests may travel in one, and how large they may be. The
package must not know what a request does, nor what its requester may do: `broker.apis` does.

Invariants:

- Only a principal with CLUSTER_ACTION, on the listener of the brokers, acts for somebody else.
- The rules and the quotas of the requester hold, never those of the sender.
- An envelope has no envelope in it, no login, and nothing that lasts beyond its answer.
- ApiVersions does not list it: clients have no use for it.
- What is in an envelope and in its answer is bounded, whatever a broker has to say.

Source: Apache Kafka's EnvelopeUtils and ForwardingManager; KIP-590.
"""

from broker.envelopes._client import EnvelopeClient
from broker.envelopes._server import Envelopes, LocalBroker

__all__ = [
    "EnvelopeClient",
    "Envelopes",
    "LocalBroker",
]
