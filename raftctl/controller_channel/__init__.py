"""The channel to the active controller: finds it, retries, and gives up at the deadline.

Two clients share one job and differ in what they may repeat:

    QuorumControllerClient   for the brokers and the controllers of a node: its requests have the
                             same effect twice, so one of unknown outcome is sent again
    KvClient                 for keys and values: a put applied twice could undo another client's,
                             so only a request that certainly was not done is sent again

The package decides which node to ask next and whether to ask again. It must not know what a
request does; what may be repeated is stated once for each kind, by a `RetryRule`.

Invariants:

- A request is answered once: by a response, or by a KafkaError that says whether it may have
  been done.
- Certainly not done means: no connection could be opened, or the node refused because it is
  not the active controller. After any other failure the outcome is unknown.

Source: Kafka's `NodeToControllerChannelManager`; KIP-500, KIP-590.
"""

from raftctl.controller_channel._channel import CLIENT_ID, KvClient, QuorumControllerClient

__all__ = [
    "CLIENT_ID",
    "KvClient",
    "QuorumControllerClient",
]
